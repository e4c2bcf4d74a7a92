package apiserver

import (
	"errors"

	"github.com/quorate/quorate/apiserver/codec"
	"github.com/quorate/quorate/apiserver/fieldmanager"
	"github.com/quorate/quorate/apiserver/patch"
	"github.com/quorate/quorate/apiserver/request"
	"github.com/quorate/quorate/apiserver/revise"
	"github.com/quorate/quorate/apiserver/schema"
	"github.com/quorate/quorate/apiserver/status"
	"github.com/quorate/quorate/apiserver/tree"
	"github.com/quorate/quorate/raftstore/mvcc"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
)

// isApply reports whether a PATCH is a server-side apply.
func (c *call) isApply() bool { return patch.IsApply(c.r.Header.Get("Content-Type")) }

// applied is a configuration that a client applies.
type applied struct {
	tree  tree.Object
	model *schema.Model
	m     *fieldmanager.Manager
}

// readApply reads what every apply begins with.
func (c *call) readApply() (f codec.Format, a applied, err error) {
	if err = c.q.CheckApply(); err != nil {
		return
	}
	c.noteWrite()
	shown := c.res
	if c.info.Subresource == "scale" {
		shown = scaleResource
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
		switch c.q.Strictness() {
		case request.StrictFields:
			err = status.BadRequest("error strict decoding YAML: %s", joinFindings(body.Duplicates))
			return
		case request.WarnFields:
			c.warn(body.Duplicates)
		}
	}
	if a.model, err = c.model(); err != nil {
		return
	}
	a.tree, c.applying = body.Object, true
	if shown == c.res {
		if a.tree, err = canonical(body.Object, a.model); err != nil {
			err = status.CannotBeHandled(c.res.GVK(), c.res.Kind, err)
			return
		}
	}
	a.m, err = c.s.objects.fields.of(c.res, c.info.Subresource, c.s.cfg.Kinds())
	return
}

// canonical is a configuration with its values in the form in which they are
// stored, so that to apply "1000m" where there is "1" is no conflict; upstream
// compares the texts. What does not fit is left to the merge, which names it, and
// nulls are left as they are: they say that a field is there. Errors: schema.ErrTooDeep.
func canonical(sent tree.Object, model *schema.Model) (tree.Object, error) {
	fitted := runtime.DeepCopyJSON(sent)
	dropNulls(fitted)
	switch unknown, err := model.FitKeeping(fitted); {
	case errors.Is(err, schema.ErrTooDeep):
		return nil, err
	case err != nil || len(unknown) > 0:
		return sent, nil
	}
	addNulls(fitted, sent)
	return fitted, nil
}

// dropNulls takes the fields that are null out of an object.
func dropNulls(v any) {
	switch v := v.(type) {
	case tree.Object:
		for k, x := range v {
			if x == nil {
				delete(v, k)
				continue
			}
			dropNulls(x)
		}
	case []any:
		for _, x := range v {
			dropNulls(x)
		}
	}
}

// addNulls gives an object the fields that are null in from, which has the same
// lists.
func addNulls(v, from any) {
	switch from := from.(type) {
	case tree.Object:
		to, ok := v.(tree.Object)
		if !ok {
			return
		}
		for k, x := range from {
			if x == nil {
				to[k] = nil
			} else if y, ok := to[k]; ok {
				addNulls(y, x)
			}
		}
	case []any:
		to, ok := v.([]any)
		if !ok || len(to) != len(from) {
			return
		}
		for i, x := range from {
			addNulls(to[i], x)
		}
	}
}

// apply serves a server-side apply (KEP-555) of an object.
func (c *call) apply() error {
	f, a, err := c.readApply()
	if err != nil {
		return err
	}
	w, err := c.mutate(c.key(), func(cur *mvcc.Version) (change, error) {
		if cur == nil {
			return c.applyNew(a)
		}
		old, obj, err := c.merged(cur, a)
		if err != nil {
			return change{}, err
		}
		if c.res.Subresource("status") != nil {
			tree.CopyField(obj, old, "status")
		}
		return c.replace(cur, obj, old)
	})
	if err != nil {
		return err
	}
	return c.answer(f, codeOf(w.created), w)
}

// applyPart serves an apply of the status or of another part.
func (c *call) applyPart(take part) error {
	f, a, err := c.readApply()
	if err != nil {
		return err
	}
	w, err := c.mutate(c.key(), func(cur *mvcc.Version) (change, error) {
		if cur == nil {
			return change{}, c.notFound()
		}
		old, obj, err := c.merged(cur, a)
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

// applyNew creates the object that is applied.
func (o *op) applyNew(a applied) (change, error) {
	obj, err := a.m.Apply(a.m.Nothing(), a.tree, o.q.FieldManager, o.q.Forced())
	if err != nil {
		return change{}, revise.Settled{Err: applyError(err)}
	}
	obj, meta, err := o.fitMerged(a, obj)
	if err != nil {
		return change{}, revise.Settled{Err: err}
	}
	if tree.Text(meta, "uid") != "" {
		return change{}, status.UIDPrecondition(o.res.GroupResource(), o.info.Name, o.keyPath(), tree.Text(meta, "uid"), "")
	}
	return o.decideInsert(obj, meta)
}

// merged merges a configuration into the current version.
func (o *op) merged(cur *mvcc.Version, a applied) (old, obj tree.Object, err error) {
	if old, err = o.decode(cur); err != nil {
		return nil, nil, err
	}
	result, err := a.m.Apply(old, a.tree, o.q.FieldManager, o.q.Forced())
	if err != nil {
		return nil, nil, applyError(err)
	}
	obj, meta, err := o.fitMerged(a, result)
	if err != nil {
		return nil, nil, err
	}
	return old, obj, o.checkIdentity(meta, cur)
}

// fitMerged brings the result of an apply, whose values are as the client wrote
// them, into the form in which they are stored.
func (o *op) fitMerged(a applied, result tree.Object) (obj, meta tree.Object, err error) {
	if _, err := a.model.Fit(result); err != nil {
		return nil, nil, status.CannotBeHandled(o.res.GVK(), o.res.Kind, err)
	}
	if obj, meta, err = tree.WithOwnMeta(result); err != nil {
		return nil, nil, err
	}
	return obj, meta, o.matchPath(obj)
}

// applyError words what the merge refuses. Upstream answers 500 for a
// configuration that does not fit the schema; it is the client's mistake.
func applyError(err error) error {
	if _, ok := err.(apierrors.APIStatus); ok {
		return err
	}
	return status.BadRequest("%v", err)
}

// applyToScale serves an apply of a Scale: that of the field of the object that the
// Scale shows.
func (c *call) applyToScale() error {
	f, a, err := c.readApply()
	if err != nil {
		return err
	}
	if _, err := checkKind(a.tree, scaleResource.GVK()); err != nil {
		return err
	}
	sent, err := tree.Meta(a.tree)
	if err != nil {
		return err
	}
	part := tree.Object{"kind": c.res.Kind, "apiVersion": c.res.GroupVersion().String(), "metadata": tree.Object{}}
	for _, name := range [...]string{"name", "namespace", "uid", "resourceVersion"} {
		if v, ok := sent[name]; ok {
			part["metadata"].(tree.Object)[name] = v
		}
	}
	if replicas := tree.Lookup(a.tree, "spec.replicas"); replicas != nil {
		if err := tree.Set(part, c.sub.SpecReplicas, replicas); err != nil {
			return err
		}
	}
	a.tree = part
	w, err := c.mutate(c.key(), func(cur *mvcc.Version) (change, error) {
		if cur == nil {
			return change{}, c.notFound()
		}
		old, merged, err := c.merged(cur, a)
		if err != nil {
			return change{}, err
		}
		scaled, meta, err := tree.WithOwnMeta(old)
		if err != nil {
			return change{}, err
		}
		mergedMeta, err := tree.Meta(merged)
		if err != nil {
			return change{}, err
		}
		tree.CopyField(meta, mergedMeta, "managedFields")
		return c.rescale(cur, scaled, old, tree.Lookup(merged, c.sub.SpecReplicas))
	})
	if err != nil {
		return err
	}
	return c.answerScale(f, w.obj)
}
