package plugins_test

import (
	"testing"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/ownerreferences"
	"github.com/quorate/quorate/apiserver/objects/objectstest"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/raftstore/view"
)

// TestOwnerReferencesOperations: the roles are those that a case creates.
func TestOwnerReferencesOperations(t *testing.T) {
	served, err := kinds.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	objectstest.Run(t, "testdata/ownerreferences/*.txt", objectstest.Options{Admission: func(_ view.Store, authorizer auth.Authorizer) []admission.Named {
		return []admission.Named{{Name: "OwnerReferencesPermissionEnforcement", Plugin: ownerreferences.New(authorizer, func() *kinds.Registry { return served })}}
	}})
}

// TestOwnerReferencesHandles: nothing is asked of writes without owners, of deletions and of the status of Pods.
func TestOwnerReferencesHandles(t *testing.T) {
	p := ownerreferences.New(nil, nil)
	owned := map[string]any{"metadata": map[string]any{"ownerReferences": []any{map[string]any{"uid": "u"}}}}
	free := map[string]any{"metadata": map[string]any{}}
	for _, c := range []struct {
		name            string
		operation       admission.Operation
		group, resource string
		sub             string
		object, old     map[string]any
		want            bool
	}{
		{"an owner is set", admission.Create, "", "pods", "", owned, nil, true},
		{"no owner", admission.Create, "", "pods", "", free, nil, false},
		{"an owner is taken away", admission.Update, "", "pods", "", free, owned, true},
		{"a deletion", admission.Delete, "", "pods", "", nil, owned, false},
		{"the status of a Pod", admission.Update, "", "pods", "status", owned, owned, false},
		{"another status", admission.Update, "apps", "deployments", "status", owned, owned, true},
		{"the status of another group's pods", admission.Update, "metrics.k8s.io", "pods", "status", owned, owned, true},
	} {
		a := admission.Attributes{Operation: c.operation, Subresource: c.sub, Object: c.object, Old: c.old}
		a.Resource.Group, a.Resource.Resource = c.group, c.resource
		if got := p.Handles(&a); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}
