package upstream

import (
	"fmt"
	"maps"
	"reflect"

	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/types/typed"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/kubernetes/pkg/apis/certificates"
	certificatesv1 "k8s.io/kubernetes/pkg/apis/certificates/v1"
	certificatesv1alpha1 "k8s.io/kubernetes/pkg/apis/certificates/v1alpha1"
	certificatesv1beta1 "k8s.io/kubernetes/pkg/apis/certificates/v1beta1"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/networking"
	networkingv1 "k8s.io/kubernetes/pkg/apis/networking/v1"
)

// forms has the types that upstream's plugins decide on, and their conversion. It has no other
// groups than those that a row of package plugins names.
var forms = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		core.AddToScheme, corev1.AddToScheme, networking.AddToScheme, networkingv1.AddToScheme,
		certificates.AddToScheme, certificatesv1.AddToScheme, certificatesv1beta1.AddToScheme, certificatesv1alpha1.AddToScheme,
	} {
		utilruntime.Must(add(s))
	}
	return s
}()

// internal is an object as upstream's internal type. Errors: the tree does not fit it.
func internal(obj tree.Object, gvk schema.GroupVersionKind) (runtime.Object, error) {
	v, err := forms.New(gvk)
	if err != nil {
		return nil, err
	}
	if err := typed.DecodeUnmanaged(obj, v); err != nil {
		return nil, fmt.Errorf("decode a %s for a plugin: %w", gvk.Kind, err)
	}
	return forms.UnsafeConvertToVersion(v, schema.GroupVersion{Group: gvk.Group, Version: runtime.APIVersionInternal})
}

// external is the tree of an internal object. What it has empty and what it does not have are the same to it, so
// it says what has changed, and not what an object is.
func external(obj runtime.Object, gv schema.GroupVersion) (map[string]any, error) {
	v, err := forms.ConvertToVersion(obj, gv)
	if err != nil {
		return nil, err
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(v)
}

// follow returns v with what differs between was and now. v was like was, and is not changed: what
// changes is replaced, up to the root.
func follow(v, was, now any) any {
	switch now := now.(type) {
	case map[string]any:
		was, ok := was.(map[string]any)
		had, ok2 := v.(map[string]any)
		if !ok || !ok2 {
			return now
		}
		return followMap(maps.Clone(had), was, now)
	case []any:
		was, _ := was.([]any)
		had, _ := v.([]any)
		if len(had) != len(now) || len(was) != len(now) {
			return now
		}
		out := make([]any, len(now))
		for i := range now {
			if out[i] = had[i]; !reflect.DeepEqual(was[i], now[i]) {
				out[i] = follow(had[i], was[i], now[i])
			}
		}
		return out
	}
	return now
}

// followMap is follow of a map that may be changed.
func followMap(out, was, now map[string]any) map[string]any {
	for k, v := range now {
		if before, had := was[k]; !had || !reflect.DeepEqual(before, v) {
			out[k] = follow(out[k], before, v)
		}
	}
	for k := range was {
		if _, has := now[k]; !has {
			delete(out, k)
		}
	}
	return out
}
