package plugins_test

import (
	"testing"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/externalips"
	"github.com/quorate/quorate/apiserver/objects/objectstest"
	"github.com/quorate/quorate/raftstore/view"
)

func TestExternalIPsOperations(t *testing.T) {
	objectstest.Run(t, "testdata/externalips/*.txt", objectstest.Options{Admission: func(view.Store, auth.Authorizer) []admission.Named {
		return []admission.Named{{Name: "DenyServiceExternalIPs", Plugin: externalips.New()}}
	}})
}

// TestExternalIPsOld: a Service keeps the external IPs that it had, in any order and in part.
func TestExternalIPsOld(t *testing.T) {
	service := func(ips ...any) map[string]any {
		return map[string]any{"metadata": map[string]any{"name": "a"}, "spec": map[string]any{"externalIPs": ips}}
	}
	for _, c := range []struct {
		name     string
		now, old map[string]any
		refused  bool
	}{
		{"the same", service("192.0.2.1", "192.0.2.2"), service("192.0.2.1", "192.0.2.2"), false},
		{"in another order", service("192.0.2.2", "192.0.2.1"), service("192.0.2.1", "192.0.2.2"), false},
		{"fewer", service("192.0.2.2"), service("192.0.2.1", "192.0.2.2"), false},
		{"none", service(), service("192.0.2.1"), false},
		{"one more", service("192.0.2.1", "192.0.2.2"), service("192.0.2.1"), true},
		{"another", service("192.0.2.2"), service("192.0.2.1"), true},
	} {
		a := admission.Attributes{Operation: admission.Update, Name: "a", Object: c.now, Old: c.old}
		a.Resource.Resource = "services"
		if err := externalips.New().Validate(t.Context(), &a); (err != nil) != c.refused {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
