package apiserver

import (
	"fmt"

	"github.com/quorate/quorate/apiserver/codec"
	"github.com/quorate/quorate/apiserver/patch"
	"github.com/quorate/quorate/apiserver/request"
	"github.com/quorate/quorate/apiserver/schema"
	"github.com/quorate/quorate/apiserver/status"
	"github.com/quorate/quorate/apiserver/tree"
	"github.com/quorate/quorate/raftstore/mvcc"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (c *call) patch() error {
	if c.isApply() {
		return c.apply()
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

// readPatch reads what every patch begins with.
func (c *call) readPatch() (f codec.Format, p *patch.Patch, model *schema.Model, err error) {
	// The type first: options such as force belong to some types only.
	if err = patch.Check(c.r.Header.Get("Content-Type"), c.res.Custom); err != nil {
		return
	}
	if err = c.writeOptions("PatchOptions"); err != nil {
		return
	}
	if f, err = c.format(c.res, codec.ShapeObject); err != nil {
		return
	}
	raw, err := c.body(c.res)
	if err != nil {
		return
	}
	if p, err = patch.Parse(c.r.Header.Get("Content-Type"), raw, c.res.Custom); err != nil {
		return
	}
	model, err = c.model()
	return
}

// patched applies a patch to the current version and returns the decoded
// version and the patched object, which has metadata of its own and names the
// same object.
func (o *op) patched(cur *mvcc.Version, p *patch.Patch, model *schema.Model) (old, obj tree.Object, err error) {
	if old, err = o.decode(cur); err != nil {
		return nil, nil, err
	}
	result, err := p.Apply(old, model.PatchMeta())
	if err != nil {
		return nil, nil, err
	}
	if _, err := checkKind(result, o.res.GVK()); err != nil {
		return nil, nil, err
	}
	unknown, err := model.Fit(result)
	if err != nil {
		return nil, nil, o.unfitPatch(p, err)
	}
	if err := o.patchFindings(p, unknown); err != nil {
		return nil, nil, err
	}
	obj, meta, err := tree.WithOwnMeta(result)
	if err != nil {
		return nil, nil, err
	}
	if err := o.matchPath(obj); err != nil {
		return nil, nil, err
	}
	// Another uid is an attempt to change it, which validation refuses; a PUT of an
	// object with another uid is about another object.
	return old, obj, o.checkRevision(meta, cur)
}

// unfitPatch is the answer to a patch whose result has a value of the wrong type.
func (o *op) unfitPatch(p *patch.Patch, err error) error {
	return status.Invalid(apischema.GroupKind{}, "", field.ErrorList{
		field.Invalid(field.NewPath("patch"), string(p.Raw), err.Error()),
	})
}

// patchFindings deals with unknown and duplicate fields of a patch. What is
// stored has none, so the result's are the patch's.
func (o *op) patchFindings(p *patch.Patch, unknown []string) error {
	findings := findingsOf(p.Duplicates, unknown)
	if len(findings) == 0 {
		return nil
	}
	switch o.q.Strictness() {
	case request.StrictFields:
		return status.Invalid(apischema.GroupKind{}, "", field.ErrorList{
			field.Invalid(field.NewPath("patch"), string(p.Raw), fmt.Sprintf("strict decoding error: %s", joinFindings(findings))),
		})
	case request.WarnFields:
		o.warn(findings)
	}
	return nil
}
