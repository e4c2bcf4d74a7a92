package apiserver

import (
	"net/http"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/wire/codec"
)

// scale serves the scale subresource: a small object that shows and changes the
// number of replicas, at the paths that the resource declares.
func (c verbs) scale() error {
	kind := objects.Scale.Kind(&c.Op)
	switch {
	case c.Info.Verb == "get":
		return c.getScale(kind)
	case c.Info.Verb == "patch" && !c.isApply():
		// It is refused for its options and the form of its answer before its type; other
		// patches are refused for their type first.
		if err := c.writeOptions(c.Options.CheckModify("PatchOptions")); err != nil {
			return err
		}
		if _, err := c.format(kind, codec.ShapeObject); err != nil {
			return err
		}
	}
	return c.modify(objects.Scale)
}

func (c verbs) getScale(kind *kinds.Resource) error {
	f, err := c.format(kind, codec.ShapeObject)
	if err != nil {
		return err
	}
	v, err := c.readOne()
	if err != nil {
		return err
	}
	obj, err := c.Decode(v)
	if err != nil {
		return err
	}
	return codec.Respond(c, c.r, f).Tree(http.StatusOK, kind, objects.Scale.Shown(&c.Op, obj))
}
