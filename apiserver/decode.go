package apiserver

import (
	"fmt"

	"github.com/quorate/quorate/apiserver/codec"
	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/request"
	"github.com/quorate/quorate/apiserver/schema"
	"github.com/quorate/quorate/apiserver/status"
	"github.com/quorate/quorate/apiserver/tree"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// readObject reads and decodes a request's body as an object of res, checks its
// kind and makes it fit the model.
func (c *call) readObject(res *kinds.Resource, model *schema.Model) (tree.Object, error) {
	raw, err := c.body(res)
	if err != nil {
		return nil, err
	}
	body, err := codec.Decode(c.r.Header.Get("Content-Type"), raw, res)
	if err != nil {
		return nil, err
	}
	if body.Object == nil {
		return nil, status.Unrecognized(res.Kind, fmt.Errorf("the body is not an object"), raw)
	}
	gvk, err := objects.CheckKind(body.Object, res.GVK())
	if err != nil {
		if res.Custom && gvk.Kind != res.Kind {
			// Upstream takes any kind of its group when it decodes, and validates it.
			err = status.Invalid(gvk.GroupKind(), tree.Text(tree.As(body.Object["metadata"]), "name"), field.ErrorList{
				field.Invalid(field.NewPath("kind"), gvk.Kind, "must be "+res.Kind),
			})
		}
		return nil, err
	}
	return body.Object, c.fit(body, gvk, res.Kind, model)
}

// fit makes a decoded body conform to the model. What that drops is ignored,
// warned about or refused, as fieldValidation asks.
func (c *call) fit(body codec.Body, gvk apischema.GroupVersionKind, kind string, model *schema.Model) error {
	unknown, err := model.Fit(body.Object)
	if err != nil {
		return status.CannotBeHandled(gvk, kind, err)
	}
	findings := objects.Findings(body.Duplicates, unknown)
	if len(findings) > 1 && !c.Resource.Custom { // whose are in upstream's order
		findings = body.InOrder(findings)
	}
	return c.found(findings, gvk, kind)
}

// found refuses or warns about what strict decoding has found, as fieldValidation asks.
func (c *call) found(findings []string, gvk apischema.GroupVersionKind, kind string) error {
	switch c.Options.Strictness() {
	case request.StrictFields:
		if len(findings) > 0 {
			return status.StrictDecoding(gvk, kind, findings)
		}
	case request.WarnFields:
		c.Warn(findings)
	}
	return nil
}
