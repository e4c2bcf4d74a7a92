package fieldmanager

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
)

// Convert returns objects in another version of their resource; the objects themselves
// are not changed. For a version that is not served the error is runtime's
// NotRegisteredError: what was managed in such a version is then forgotten.
type Convert func(objs []map[string]any, from, to apischema.GroupVersion) ([]map[string]any, error)

// versions is the runtime.ObjectConvertor of one resource.
type versions struct {
	convert Convert
	// beside, if not nil, is an object that the library is about to ask for in the same
	// versions as others of its own one.
	beside map[string]any
}

var _ runtime.ObjectConvertor = versions{}

// ConvertToVersion implements runtime.ObjectConvertor.
func (v versions) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	u, ok := in.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("convert a %T: only trees are converted here", in)
	}
	from := u.GroupVersionKind()
	to, ok := target.KindForGroupVersionKinds([]apischema.GroupVersionKind{from})
	if !ok {
		// The versioner names a version; ask for our kind in it.
		gv, err := apischema.ParseGroupVersion(target.Identifier())
		if err != nil {
			return nil, fmt.Errorf("convert %s: %w", from, err)
		}
		to = gv.WithKind(from.Kind)
	}
	if to.GroupVersion() == from.GroupVersion() {
		return in, nil
	}
	objs := []map[string]any{u.Object}
	if v.beside["apiVersion"] == from.GroupVersion().String() {
		objs = append(objs, v.beside)
	}
	out, err := v.convert(objs, from.GroupVersion(), to.GroupVersion())
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: out[0]}, nil
}

// Convert implements runtime.ObjectConvertor; nothing here calls it.
func (versions) Convert(in, _, _ any) error { return fmt.Errorf("convert a %T in place: not done", in) }

// ConvertFieldLabel implements runtime.ObjectConvertor; nothing here calls it.
func (versions) ConvertFieldLabel(_ apischema.GroupVersionKind, label, _ string) (string, string, error) {
	return "", "", fmt.Errorf("field label %s: not converted", label)
}
