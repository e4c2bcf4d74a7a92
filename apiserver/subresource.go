package apiserver

import (
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/status"
	"github.com/quorate/quorate/apiserver/tree"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// subresourceOfPart serves a subresource that shows the whole object and changes a part of it.
func (c *call) subresourceOfPart(take objects.Part) error {
	switch c.Info.Verb {
	case "get":
		return c.get()
	case "update":
		return c.updatePart(take)
	case "patch":
		return c.patchPart(take)
	}
	return status.NoSuchMethod()
}

func (c *call) updatePart(take objects.Part) error {
	f, sent, err := c.readWrite("UpdateOptions")
	if err != nil {
		return err
	}
	if err := c.MatchPath(sent); err != nil {
		return err
	}
	w, err := c.GuaranteedUpdate(c.Key(), func(cur *mvcc.Version) (objects.Change, error) {
		if cur == nil {
			return objects.Change{}, c.NotFound()
		}
		meta, err := tree.Meta(sent)
		if err != nil {
			return objects.Change{}, err
		}
		if err := c.CheckIdentity(meta, cur); err != nil {
			return objects.Change{}, err
		}
		old, err := c.Decode(cur)
		if err != nil {
			return objects.Change{}, err
		}
		return c.ReplacePart(cur, sent, old, take)
	})
	if err != nil {
		return err
	}
	return c.answer(f, codeOf(false), w)
}

func (c *call) patchPart(take objects.Part) error {
	if c.isApply() {
		return c.applyPart(take)
	}
	f, p, model, err := c.readPatch()
	if err != nil {
		return err
	}
	w, err := c.GuaranteedUpdate(c.Key(), func(cur *mvcc.Version) (objects.Change, error) {
		if cur == nil {
			return objects.Change{}, c.NotFound()
		}
		old, obj, err := c.Patched(cur, p, model)
		if err != nil {
			return objects.Change{}, err
		}
		return c.ReplacePart(cur, obj, old, take)
	})
	if err != nil {
		return err
	}
	return c.answer(f, codeOf(false), w)
}

// put serves a subresource that the whole object is put to and that changes it in a way
// of its own.
func (c *call) put(change func(o *objects.Op, sent tree.Object) (objects.Written, error)) error {
	f, sent, err := c.readWrite("UpdateOptions")
	if err != nil {
		return err
	}
	if err := c.MatchPath(sent); err != nil {
		return err
	}
	w, err := change(&c.Op, sent)
	if err != nil {
		return err
	}
	return c.answer(f, codeOf(false), w)
}
