package apiserver

import (
	"net/http"

	"github.com/quorate/quorate/apiserver/codec"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/schema"
	"github.com/quorate/quorate/apiserver/status"
	"github.com/quorate/quorate/apiserver/tree"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// scale serves the scale subresource: a small object that shows and changes the
// number of replicas, at the paths that the resource declares.
func (c *call) scale() error {
	if c.Info.Verb == "patch" && c.isApply() {
		return c.applyToScale()
	}
	if c.Info.Verb != "get" {
		options := "UpdateOptions"
		if c.Info.Verb == "patch" {
			options = "PatchOptions"
		}
		if err := c.writeOptions(options); err != nil {
			return err
		}
	}
	f, err := c.format(objects.ScaleKind, codec.ShapeObject)
	if err != nil {
		return err
	}
	var v *mvcc.Version
	switch c.Info.Verb {
	case "get":
		v, err = c.readOne()
	case "update":
		return c.updateScale(f)
	case "patch":
		return c.patchScale(f)
	default:
		return status.NoSuchMethod()
	}
	if err != nil {
		return err
	}
	obj, err := c.Decode(v)
	if err != nil {
		return err
	}
	return c.answerScale(f, obj)
}

func (c *call) answerScale(f codec.Format, obj tree.Object) error {
	return codec.Respond(c, c.r, f).Tree(http.StatusOK, objects.ScaleKind, c.ScaleOf(obj))
}

func (c *call) updateScale(f codec.Format) error {
	model, err := schema.Lookup(objects.ScaleKind.Model)
	if err != nil {
		return err
	}
	sent, err := c.readObject(objects.ScaleKind, model)
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
		old, err := c.Decode(cur)
		if err != nil {
			return objects.Change{}, err
		}
		return c.ApplyScale(cur, sent, old)
	})
	if err != nil {
		return err
	}
	return c.answerScale(f, w.Object)
}

func (c *call) patchScale(f codec.Format) error {
	_, p, _, err := c.readPatch()
	if err != nil {
		return err
	}
	model, err := schema.Lookup(objects.ScaleKind.Model)
	if err != nil {
		return err
	}
	w, err := c.GuaranteedUpdate(c.Key(), func(cur *mvcc.Version) (objects.Change, error) {
		if cur == nil {
			return objects.Change{}, c.NotFound()
		}
		old, err := c.Decode(cur)
		if err != nil {
			return objects.Change{}, err
		}
		sent, err := p.Apply(c.ScaleOf(old), model.PatchMeta())
		if err != nil {
			return objects.Change{}, err
		}
		unknown, err := model.Fit(sent)
		if err != nil {
			return objects.Change{}, c.UnfitPatch(p, err)
		}
		if err := c.PatchFindings(p, unknown); err != nil {
			return objects.Change{}, err
		}
		if err := c.MatchPath(sent); err != nil {
			return objects.Change{}, err
		}
		return c.ApplyScale(cur, sent, old)
	})
	if err != nil {
		return err
	}
	return c.answerScale(f, w.Object)
}
