package plugins_test

import (
	"errors"
	"testing"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/lifecycle"
	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/memstore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestLifecycle(t *testing.T) {
	store := memstore.New()
	defer func() { must.Close(t, store) }()
	for name, flags := range map[string]uint32{"here": 0, "going": proto.FlagTerminating} {
		w := &proto.Write{Table: "namespaces", Key: name, Op: proto.Op_OP_PUT, Value: []byte("{}"), Flags: flags}
		if _, err := store.Propose(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	p := lifecycle.New(state.New(store))
	for _, c := range []struct {
		namespace       string
		operation       admission.Operation
		group, resource string
		want            string // the error
	}{
		{"here", admission.Create, "", "configmaps", ""},
		{"here", admission.Update, "", "configmaps", ""},
		{"going", admission.Create, "apps", "deployments", `deployments.apps "x" is forbidden: unable to create new content in namespace going because it is being terminated`},
		{"going", admission.Update, "", "configmaps", ""},
		{"going", admission.Delete, "", "configmaps", ""},
		{"gone", admission.Create, "", "configmaps", `namespaces "gone" not found`},
		{"gone", admission.Update, "", "configmaps", `namespaces "gone" not found`},
		{"gone", admission.Delete, "", "configmaps", ""},
		{"gone", admission.Create, "authorization.k8s.io", "localsubjectaccessreviews", ""},
		{"gone", admission.Update, "", "namespaces", ""},
		{"", admission.Create, "", "nodes", ""},
	} {
		a := &admission.Attributes{
			Operation: c.operation, Namespace: c.namespace, Name: "x",
			Resource: schema.GroupVersionResource{Group: c.group, Version: "v1", Resource: c.resource},
		}
		var err error
		if p.Handles(a) {
			err = p.Admit(t.Context(), a)
		}
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s %s in %q: %q, want %q", c.operation, c.resource, c.namespace, got, c.want)
		}
		var s *apierrors.StatusError
		if apierrors.IsForbidden(err) && (!errors.As(err, &s) || len(s.ErrStatus.Details.Causes) != 1 || s.ErrStatus.Details.Causes[0].Type != "NamespaceTerminating") {
			t.Errorf("%s %s in %q: no cause in %+v", c.operation, c.resource, c.namespace, s)
		}
	}
}
