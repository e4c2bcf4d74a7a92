package plugins_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/plugins"
	"github.com/quorate/quorate/apiserver/admission/suspension"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/memstore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestUnreadableRules: while there is a webhook configuration, a policy or a binding that cannot
// be read, writes are refused, since nobody knows what it would say; but for those that mend it.
func TestUnreadableRules(t *testing.T) {
	store := memstore.New()
	defer store.Close()
	write := func(w *proto.Write) {
		t.Helper()
		if _, err := store.Propose(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	write(&proto.Write{Table: "namespaces", Key: "default", Op: proto.Op_OP_PUT, Value: []byte(`{"metadata":{"name":"default"}}`)})
	log := slog.New(slog.DiscardHandler)
	registry, err := kinds.Available()
	must.OK(t, err)
	chain, err := plugins.New(plugins.Config{
		Kinds: func() *kinds.Registry { return registry },
		Store: store, Authorizer: auth.Default(), Log: log, Suspensions: suspension.NewView(store, time.Now, log),
		Confirm: func(context.Context) error { return nil },
	})
	must.OK(t, err)
	const group = "admissionregistration.k8s.io"
	ask := func(operation admission.Operation, kind schema.GroupVersionKind, resource string) error {
		a := admission.Attributes{
			Operation: operation, Kind: kind, Resource: kind.GroupVersion().WithResource(resource), Name: "a",
			User: &auth.User{Name: "alice", Groups: []string{auth.Authenticated}},
		}
		obj := map[string]any{"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind, "metadata": map[string]any{"name": "a"}}
		if kind.Kind == "ConfigMap" {
			a.Namespace = "default"
			obj["metadata"].(map[string]any)["namespace"] = "default"
		}
		if a.Object = obj; operation == admission.Delete {
			a.Object, a.Old = nil, obj
		}
		if err := chain.Admit(t.Context(), &a); err != nil {
			return err
		}
		return chain.Validate(t.Context(), &a)
	}
	configMap := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	for _, row := range []struct {
		resource, value string
		suspendable     bool
		deletes         bool // are refused, too
	}{
		{"validatingwebhookconfigurations", `{"webhooks":[{"timeoutSeconds":"soon"}]}`, true, true},
		{"mutatingwebhookconfigurations", `{"webhooks":7}`, true, true},
		{"validatingadmissionpolicies", `{"spec":{"validations":[{"expression":1}]}}`, true, true},
		{"validatingadmissionpolicybindings", `{"spec":[]}`, false, true},
		{"mutatingadmissionpolicies", `{"spec":{"mutations":{}}}`, true, false},
		{"mutatingadmissionpolicybindings", `no JSON`, false, false},
	} {
		t.Run(row.resource, func(t *testing.T) {
			table := row.resource + "." + group
			must.OK(t, ask(admission.Create, configMap, "configmaps"))
			write(&proto.Write{Table: table, Key: "broken", Op: proto.Op_OP_PUT, Value: []byte(row.value)})
			for operation, refused := range map[admission.Operation]bool{admission.Create: true, admission.Update: true, admission.Delete: row.deletes} {
				err := ask(operation, configMap, "configmaps")
				if got := apierrors.IsInternalError(err) && strings.Contains(err.Error(), row.resource) && strings.Contains(err.Error(), "/broken"); got != refused || !refused && err != nil {
					t.Errorf("%s: %v", operation, err)
				}
			}
			// What mends it.
			for _, operation := range []admission.Operation{admission.Update, admission.Delete} {
				if err := ask(operation, schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Anything"}, row.resource); err != nil {
					t.Errorf("%s of itself: %v", operation, err)
				}
			}
			if row.suspendable {
				s := &suspension.Suspension{Resource: row.resource, Name: "broken", Until: time.Now().Add(time.Hour)}
				value, err := json.Marshal(s)
				must.OK(t, err)
				write(&proto.Write{Table: suspension.Table(), Key: s.Key(), Op: proto.Op_OP_PUT, Value: value})
				if err := ask(admission.Create, configMap, "configmaps"); err != nil {
					t.Errorf("suspended: %v", err)
				}
				write(&proto.Write{Table: suspension.Table(), Key: s.Key(), Op: proto.Op_OP_DELETE})
			}
			write(&proto.Write{Table: table, Key: "broken", Op: proto.Op_OP_DELETE})
			if err := ask(admission.Create, configMap, "configmaps"); err != nil {
				t.Errorf("after its end: %v", err)
			}
		})
	}
}
