package random

import (
	"encoding/json"
	"testing"

	"github.com/quorate/quorate/apiserver/types/tree"
	"k8s.io/apimachinery/pkg/runtime"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/authentication/install"
	_ "k8s.io/kubernetes/pkg/apis/authorization/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/certificates/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/flowcontrol/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	_ "k8s.io/kubernetes/pkg/apis/storagemigration/install"
	kjson "sigs.k8s.io/json"
)

// Read is a body as upstream's decoder reads it: typed, with its defaults, in the internal version.
func Read(t *testing.T, body tree.Object, gvk apischema.GroupVersionKind) (runtime.Object, error) {
	obj, err := legacyscheme.Scheme.New(gvk)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, obj); err != nil {
		t.Fatal(err)
	}
	legacyscheme.Scheme.Default(obj)
	return legacyscheme.Scheme.UnsafeConvertToVersion(obj, Internal(gvk)) // as its decoder: what both forms share stays shared
}

// Internal is the internal version of a kind's group.
func Internal(gvk apischema.GroupVersionKind) apischema.GroupVersion {
	return apischema.GroupVersion{Group: gvk.Group, Version: runtime.APIVersionInternal}
}

// Keep is an internal object as it is read after it was stored in a version.
func Keep(internal runtime.Object, gvk apischema.GroupVersionKind) (runtime.Object, error) {
	made, err := legacyscheme.Scheme.ConvertToVersion(internal, gvk.GroupVersion())
	if err != nil {
		return nil, err
	}
	b, err := made.(stored).Marshal()
	if err != nil {
		return nil, err
	}
	read, err := legacyscheme.Scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	return read, read.(stored).Unmarshal(b)
}

// stored is an object in its stored form, protobuf.
type stored interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}
