package apiserver

import (
	"github.com/quorate/quorate/apiserver/status"
	"github.com/quorate/quorate/apiserver/tree"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// part is what a write of a subresource changes of an object: it takes that from
// sent into obj, which is old with metadata of its own. Values of all three may be
// shared and are replaced, not changed.
type part func(o *op, obj, sent, old tree.Object) error

// partOf serves a subresource that shows the whole object and changes a part of it.
func (c *call) partOf(take part) error {
	switch c.info.Verb {
	case "get":
		return c.get()
	case "update":
		return c.updatePart(take)
	case "patch":
		return c.patchPart(take)
	}
	return status.NoSuchMethod()
}

func (c *call) updatePart(take part) error {
	f, sent, err := c.readWrite("UpdateOptions")
	if err != nil {
		return err
	}
	if err := c.matchPath(sent); err != nil {
		return err
	}
	w, err := c.mutate(c.key(), func(cur *mvcc.Version) (change, error) {
		if cur == nil {
			return change{}, c.notFound()
		}
		meta, err := tree.Meta(sent)
		if err != nil {
			return change{}, err
		}
		if err := c.checkIdentity(meta, cur); err != nil {
			return change{}, err
		}
		old, err := c.decode(cur)
		if err != nil {
			return change{}, err
		}
		return c.replacePart(cur, sent, old, take)
	})
	if err != nil {
		return err
	}
	return c.answer(f, codeOf(false), w)
}

func (c *call) patchPart(take part) error {
	if c.isApply() {
		return c.applyPart(take)
	}
	f, p, model, err := c.readPatch()
	if err != nil {
		return err
	}
	w, err := c.mutate(c.key(), func(cur *mvcc.Version) (change, error) {
		if cur == nil {
			return change{}, c.notFound()
		}
		old, obj, err := c.patched(cur, p, model)
		if err != nil {
			return change{}, err
		}
		return c.replacePart(cur, obj, old, take)
	})
	if err != nil {
		return err
	}
	return c.answer(f, codeOf(false), w)
}

func (o *op) replacePart(cur *mvcc.Version, sent, old tree.Object, take part) (change, error) {
	obj, meta, err := tree.WithOwnMeta(old)
	if err != nil {
		return change{}, err
	}
	if o.applying {
		tree.CopyField(meta, tree.As(sent["metadata"]), "managedFields")
	}
	if err := take(o, obj, sent, old); err != nil {
		return change{}, err
	}
	return o.replace(cur, obj, old)
}

// takeStatus is the part of the status subresource. Built-in kinds take labels and
// annotations along, as upstream's do; custom resources do not.
func takeStatus(o *op, obj, sent, _ tree.Object) error {
	tree.CopyField(obj, sent, "status")
	if o.res.Custom {
		return nil
	}
	return carryLabels(obj, sent)
}

func carryLabels(obj, sent tree.Object) error {
	sentMeta, err := tree.Meta(sent)
	if err != nil {
		return err
	}
	tree.CopyField(tree.As(obj["metadata"]), sentMeta, "labels")
	tree.CopyField(tree.As(obj["metadata"]), sentMeta, "annotations")
	return nil
}
