package apiserver

import (
	"github.com/quorate/quorate/apiserver/codec"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/patch"
	"github.com/quorate/quorate/apiserver/request"
	"github.com/quorate/quorate/apiserver/status"
	"github.com/quorate/quorate/apiserver/tree"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// isApply reports whether a PATCH is a server-side apply.
func (c *call) isApply() bool { return patch.IsApply(c.r.Header.Get("Content-Type")) }

// readApply reads what every apply begins with.
func (c *call) readApply() (f codec.Format, a objects.Applied, err error) {
	if err = c.Options.CheckApply(); err != nil {
		return
	}
	c.noteWrite()
	shown := c.Resource
	if c.Info.Subresource == "scale" {
		shown = objects.ScaleKind
	}
	if f, err = c.format(shown, codec.ShapeObject); err != nil {
		return
	}
	raw, err := c.body(shown)
	if err != nil {
		return
	}
	body, err := codec.Decode(codec.YAML, raw, shown)
	if err != nil {
		return
	}
	if body.Object == nil {
		err = status.BadRequest("error decoding YAML: the body is not an object")
		return
	}
	if len(body.Duplicates) > 0 {
		switch c.Options.Strictness() {
		case request.StrictFields:
			err = status.BadRequest("error strict decoding YAML: %s", objects.JoinFindings(body.Duplicates))
			return
		case request.WarnFields:
			c.Warn(body.Duplicates)
		}
	}
	if a.Model, err = c.Model(); err != nil {
		return
	}
	a.Tree, c.Applying = body.Object, true
	if shown == c.Resource {
		if a.Tree, err = objects.Canonical(body.Object, a.Model); err != nil {
			err = status.CannotBeHandled(c.Resource.GVK(), c.Resource.Kind, err)
			return
		}
	}
	a.Manager, err = c.FieldManager()
	return
}

// apply serves a server-side apply (KEP-555) of an object.
func (c *call) apply() error {
	f, a, err := c.readApply()
	if err != nil {
		return err
	}
	w, err := c.GuaranteedUpdate(c.Key(), func(cur *mvcc.Version) (objects.Change, error) {
		if cur == nil {
			return c.ApplyNew(a)
		}
		old, obj, err := c.Merged(cur, a)
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

// applyPart serves an apply of the status or of another part.
func (c *call) applyPart(take objects.Part) error {
	f, a, err := c.readApply()
	if err != nil {
		return err
	}
	w, err := c.GuaranteedUpdate(c.Key(), func(cur *mvcc.Version) (objects.Change, error) {
		if cur == nil {
			return objects.Change{}, c.NotFound()
		}
		old, obj, err := c.Merged(cur, a)
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

// applyToScale serves an apply of a Scale: that of the field of the object that the
// Scale shows.
func (c *call) applyToScale() error {
	f, a, err := c.readApply()
	if err != nil {
		return err
	}
	if _, err := objects.CheckKind(a.Tree, objects.ScaleKind.GVK()); err != nil {
		return err
	}
	sent, err := tree.Meta(a.Tree)
	if err != nil {
		return err
	}
	part := tree.Object{"kind": c.Resource.Kind, "apiVersion": c.Resource.GroupVersion().String(), "metadata": tree.Object{}}
	for _, name := range [...]string{"name", "namespace", "uid", "resourceVersion"} {
		if v, ok := sent[name]; ok {
			part["metadata"].(tree.Object)[name] = v
		}
	}
	if replicas := tree.Lookup(a.Tree, "spec.replicas"); replicas != nil {
		if err := tree.Set(part, c.Subresource.SpecReplicas, replicas); err != nil {
			return err
		}
	}
	a.Tree = part
	w, err := c.GuaranteedUpdate(c.Key(), func(cur *mvcc.Version) (objects.Change, error) {
		if cur == nil {
			return objects.Change{}, c.NotFound()
		}
		old, merged, err := c.Merged(cur, a)
		if err != nil {
			return objects.Change{}, err
		}
		scaled, meta, err := tree.WithOwnMeta(old)
		if err != nil {
			return objects.Change{}, err
		}
		mergedMeta, err := tree.Meta(merged)
		if err != nil {
			return objects.Change{}, err
		}
		tree.CopyField(meta, mergedMeta, "managedFields")
		return c.Rescale(cur, scaled, old, tree.Lookup(merged, c.Subresource.SpecReplicas))
	})
	if err != nil {
		return err
	}
	return c.answerScale(f, w.Object)
}
