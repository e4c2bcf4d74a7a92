package apiserver

import (
	"github.com/quorate/quorate/apiserver/codec"
	"github.com/quorate/quorate/apiserver/status"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// status serves the status subresource: the same object, of which a write
// changes only the status and some metadata.
func (c *call) status() error {
	switch c.info.Verb {
	case "get":
		return c.get()
	case "update":
		return c.updateStatus()
	case "patch":
		return c.patchStatus()
	}
	return status.NoSuchMethod()
}

func (c *call) updateStatus() error {
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
		meta, err := metaOf(sent)
		if err != nil {
			return change{}, err
		}
		if err := c.checkIdentity(meta, cur); err != nil {
			return change{}, err
		}
		old, err := codec.DecodeStored(c.res, cur)
		if err != nil {
			return change{}, err
		}
		return c.replaceStatus(cur, sent, old)
	})
	if err != nil {
		return err
	}
	return c.answer(f, codeOf(false), w)
}

func (c *call) patchStatus() error {
	if c.isApply() {
		return c.applyStatus()
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
		return c.replaceStatus(cur, obj, old)
	})
	if err != nil {
		return err
	}
	return c.answer(f, codeOf(false), w)
}

// replaceStatus takes the status from sent and the rest from old. Built-in kinds
// take labels and annotations along, as upstream's do; custom resources do not.
func (c *call) replaceStatus(cur *mvcc.Version, sent, old tree) (change, error) {
	obj, meta, err := shallow(old)
	if err != nil {
		return change{}, err
	}
	carry(obj, sent, "status")
	sentMeta, err := metaOf(sent)
	if err != nil {
		return change{}, err
	}
	if c.applying {
		carry(meta, sentMeta, "managedFields")
	}
	if !c.res.Custom {
		carry(meta, sentMeta, "labels")
		carry(meta, sentMeta, "annotations")
	}
	return c.replace(cur, obj, old)
}
