package objects

import (
	"fmt"
	"slices"

	"github.com/quorate/quorate/apiserver/codec"
	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/apiserver/request"
	"github.com/quorate/quorate/apiserver/status"
	"github.com/quorate/quorate/apiserver/tree"
	"k8s.io/apimachinery/pkg/runtime"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// DecodeBody decodes a body as an object of a kind, checks that it is one, and makes it fit its
// model. What that drops is ignored, warned about or refused, as fieldValidation asks.
func (o *Op) DecodeBody(contentType string, raw []byte, res *kinds.Resource) (tree.Object, error) {
	model, err := ModelOf(res)
	if err != nil {
		return nil, err
	}
	body, err := codec.Decode(contentType, raw, res)
	if err != nil {
		return nil, err
	}
	if body.Object == nil {
		return nil, status.Unrecognized(res.Kind, fmt.Errorf("the body is not an object"), raw)
	}
	gvk, err := CheckKind(body.Object, res.GVK())
	if err != nil {
		if res.Custom && gvk.Kind != res.Kind {
			// Upstream takes any kind of its group when it decodes, and validates it.
			err = status.Invalid(gvk.GroupKind(), tree.Text(tree.As(body.Object["metadata"]), "name"), field.ErrorList{
				field.Invalid(field.NewPath("kind"), gvk.Kind, "must be "+res.Kind),
			})
		}
		return nil, err
	}
	unknown, err := model.Fit(body.Object)
	if err != nil {
		return nil, status.CannotBeHandled(gvk, res.Kind, err)
	}
	found := findings(body.Duplicates, unknown)
	if len(found) > 1 && !o.Resource.Custom { // whose are in upstream's order
		found = body.InOrder(found)
	}
	return body.Object, o.Found(found, gvk, res.Kind)
}

// DecodePut decodes a body that is to be what the path names.
func (o *Op) DecodePut(contentType string, raw []byte, on Target) (Put, error) {
	sent, err := o.DecodeBody(contentType, raw, on.Kind(o))
	if err == nil {
		err = o.MatchPath(sent)
	}
	return Put{sent}, err
}

// DecodeApply decodes a configuration.
func (o *Op) DecodeApply(raw []byte, on Target) (a Apply, err error) {
	body, err := codec.Decode(codec.YAML, raw, on.Kind(o))
	if err != nil {
		return a, err
	}
	if body.Object == nil {
		return a, status.BadRequest("error decoding YAML: the body is not an object")
	}
	if len(body.Duplicates) > 0 { // fields that are unknown are the merge's to find
		switch o.Options.Strictness() {
		case request.StrictFields:
			return a, status.BadRequest("error strict decoding YAML: %s", joinFindings(body.Duplicates))
		case request.WarnFields:
			o.Warn(body.Duplicates)
		}
	}
	if a.Model, err = o.Model(); err != nil {
		return a, err
	}
	if a.Manager, err = o.FieldManager(); err != nil {
		return a, err
	}
	a.Tree, err = on.configuration(o, body.Object, a.Model)
	return a, err
}

// DecodePosted decodes what is posted and not stored straight into its type of k8s.io/api, as
// upstream decodes it.
func (o *Op) DecodePosted(contentType string, raw []byte, p *Creater) (runtime.Object, error) {
	res, in := p.KindOf(o), p.New()
	strict := o.Options.Strictness() != request.IgnoreFields
	findings, gvk, err := codec.DecodeTyped(contentType, raw, res, in, strict, func(apiVersion, kind string) (apischema.GroupVersionKind, error) {
		if slices.Contains(p.Also, apiVersion) {
			apiVersion = res.GroupVersion().String()
		}
		return sentKind(kind, apiVersion, res.GVK())
	})
	if err != nil {
		return nil, err
	}
	return in, o.Found(findings, gvk, res.Kind)
}

// Found refuses or warns about what strict decoding has found, as fieldValidation asks.
func (o *Op) Found(findings []string, gvk apischema.GroupVersionKind, kind string) error {
	switch o.Options.Strictness() {
	case request.StrictFields:
		if len(findings) > 0 {
			return status.StrictDecoding(gvk, kind, findings)
		}
	case request.WarnFields:
		o.Warn(findings)
	}
	return nil
}
