package webhook

import (
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/tree"
	"k8s.io/apimachinery/pkg/runtime"
)

// attributes are those of a write with objects of the kind's own type: upstream decodes what a
// webhook has made of an object into the type that it was of.
type attributes struct {
	*admission.Attributes
	object, old runtime.Object
}

func of(a *admission.Attributes) *attributes {
	made := &attributes{Attributes: a}
	made.object, made.old = made.typed(a.Object), made.typed(a.Old)
	return made
}

// GetObject implements upstream's Attributes.
func (a *attributes) GetObject() runtime.Object { return a.object }

// GetOldObject implements upstream's Attributes.
func (a *attributes) GetOldObject() runtime.Object { return a.old }

// typed is an object with its kind, whose content is obj; nil if there is none.
func (a *attributes) typed(obj tree.Object) runtime.Object {
	if obj == nil {
		return nil
	}
	made, err := a.Interfaces.GetObjectCreater().New(a.Kind)
	if err != nil {
		return nil // it has no errors
	}
	if content, ok := made.(runtime.Unstructured); ok {
		content.SetUnstructuredContent(obj)
	}
	return made
}
