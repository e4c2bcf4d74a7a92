package apiserver

import (
	"github.com/quorate/quorate/apiserver/codec"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/patch"
	"github.com/quorate/quorate/apiserver/schema"
	"github.com/quorate/quorate/apiserver/tree"
	"github.com/quorate/quorate/raftstore/mvcc"
)

func (c *call) patch() error {
	if c.isApply() {
		return c.apply()
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
		if c.Resource.Subresource("status") != nil {
			tree.CopyField(obj, old, "status")
		}
		return c.Replace(cur, obj, old)
	})
	if err != nil {
		return err
	}
	return c.answer(f, codeOf(w.Created), w)
}

// readPatch reads what every patch begins with.
func (c *call) readPatch() (f codec.Format, p *patch.Patch, model *schema.Model, err error) {
	// The type first: options such as force belong to some types only.
	if err = patch.Check(c.r.Header.Get("Content-Type"), c.Resource.Custom); err != nil {
		return
	}
	if err = c.writeOptions("PatchOptions"); err != nil {
		return
	}
	if f, err = c.format(c.Resource, codec.ShapeObject); err != nil {
		return
	}
	raw, err := c.body(c.Resource)
	if err != nil {
		return
	}
	if p, err = patch.Parse(c.r.Header.Get("Content-Type"), raw, c.Resource.Custom); err != nil {
		return
	}
	model, err = c.Model()
	return
}
