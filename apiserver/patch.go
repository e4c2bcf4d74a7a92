package apiserver

import (
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/objects/patch"
	"github.com/quorate/quorate/apiserver/wire/codec"
)

// readPatch reads a patch.
func (c verbs) readPatch(on objects.Target) (f codec.Format, want objects.Patch, err error) {
	// The type first: options such as force belong to some types only.
	if err = patch.Check(c.r.Header.Get("Content-Type"), c.Resource.Custom); err != nil {
		return
	}
	if err = c.writeOptions(c.Options.CheckModify("PatchOptions")); err != nil {
		return
	}
	if f, err = c.format(c.Resource, codec.ShapeObject); err != nil {
		return
	}
	if kind := on.Kind(&c.Op); kind != c.Resource {
		if f, err = c.format(kind, codec.ShapeObject); err != nil {
			return
		}
	}
	raw, err := c.body(c.Resource)
	if err != nil {
		return
	}
	parse := patch.Parse
	if on == objects.Scale {
		parse = patch.ParseOfScale
	}
	want.Patch, err = parse(c.r.Header.Get("Content-Type"), raw, c.Resource.Custom)
	return
}
