package serviceaccount_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/serviceaccount"
	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/memstore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// accounts are what the namespace n has.
var accounts = map[string]string{
	"default": `{"metadata":{"name":"default","namespace":"n"}}`,
	"quiet":   `{"metadata":{"name":"quiet","namespace":"n"},"automountServiceAccountToken":false,"imagePullSecrets":[{"name":"pull"},{"name":"more"}]}`,
	"strict": `{"metadata":{"name":"strict","namespace":"n","annotations":{"kubernetes.io/enforce-mountable-secrets":"true"}},
		"automountServiceAccountToken":false,"secrets":[{"name":"ok"}],"imagePullSecrets":[{"name":"pull"}]}`,
	"lax": `{"metadata":{"name":"lax","namespace":"n","annotations":{"kubernetes.io/enforce-mountable-secrets":"no"}},"automountServiceAccountToken":false}`,
}

const (
	mount  = `{"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount","name":"kube-api-access-XXXXX","readOnly":true}`
	volume = `{"name":"kube-api-access-XXXXX","projected":{"defaultMode":420,"sources":[` +
		`{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}},` +
		`{"configMap":{"items":[{"key":"ca.crt","path":"ca.crt"}],"name":"kube-root-ca.crt"}},` +
		`{"downwardAPI":{"items":[{"fieldRef":{"apiVersion":"v1","fieldPath":"metadata.namespace"},"path":"namespace"}]}}]}}`
)

func TestAdmit(t *testing.T) {
	const forbidden = `pods "p" is forbidden: `
	of := func(name string) string { return `"serviceAccount":"` + name + `","serviceAccountName":"` + name + `"` }
	own := `{"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount","name":"mine"}`
	for _, c := range []struct{ title, spec, want string }{
		{"an account that does not exist", `{"serviceAccountName":"none"}`, forbidden + `error looking up service account n/none: serviceaccount "none" not found`},
		{"the default account, its token in all containers", `{"containers":[{"name":"a"},{"name":"b","volumeMounts":[{"name":"x","mountPath":"/x"}]}],"initContainers":[{"name":"i"}]}`,
			`{"containers":[{"name":"a","volumeMounts":[` + mount + `]},{"name":"b","volumeMounts":[{"mountPath":"/x","name":"x"},` + mount + `]}],` +
				`"initContainers":[{"name":"i","volumeMounts":[` + mount + `]}],` + of("default") + `,"volumes":[` + volume + `]}`},
		{"containers that mount something there do not get it", `{"containers":[{"name":"a","volumeMounts":[` + own + `]}]}`,
			`{"containers":[{"name":"a","volumeMounts":[` + own + `]}],` + of("default") + `}`},
		{"one of two does", `{"containers":[{"name":"a","volumeMounts":[` + own + `]},{"name":"b"}]}`,
			`{"containers":[{"name":"a","volumeMounts":[` + own + `]},{"name":"b","volumeMounts":[` + mount + `]}],` + of("default") + `,"volumes":[` + volume + `]}`},
		{"a volume of that name is taken for it", `{"containers":[{"name":"a"}],"volumes":[{"name":"kube-api-access-mine"}]}`,
			`{"containers":[{"name":"a","volumeMounts":[` + strings.Replace(mount, "XXXXX", "mine", 1) + `]}],` + of("default") + `,"volumes":[{"name":"kube-api-access-mine"}]}`},
		{"the Pod wants none", `{"automountServiceAccountToken":false,"containers":[{"name":"a"}]}`, `{"automountServiceAccountToken":false,"containers":[{"name":"a"}],` + of("default") + `}`},
		{"the account wants none; pull secrets", `{"serviceAccountName":"quiet","containers":[{"name":"a"}]}`,
			`{"containers":[{"name":"a"}],"imagePullSecrets":[{"name":"pull"},{"name":"more"}],` + of("quiet") + `}`},
		{"the Pod wants one all the same, and has pull secrets", `{"serviceAccountName":"quiet","automountServiceAccountToken":true,"imagePullSecrets":[{"name":"own"}],"containers":[{"name":"a"}]}`,
			`{"automountServiceAccountToken":true,"containers":[{"name":"a","volumeMounts":[` + mount + `]}],"imagePullSecrets":[{"name":"own"}],` + of("quiet") + `,"volumes":[` + volume + `]}`},
		{"secrets that the account lists", `{"serviceAccountName":"strict","volumes":[{"name":"v","secret":{"secretName":"ok"}}],"containers":[{"name":"a","envFrom":[{"secretRef":{"name":"ok"}}]}]}`,
			`{"containers":[{"envFrom":[{"secretRef":{"name":"ok"}}],"name":"a"}],"imagePullSecrets":[{"name":"pull"}],` + of("strict") + `,"volumes":[{"name":"v","secret":{"secretName":"ok"}}]}`},
		{"a volume's secret", `{"serviceAccountName":"strict","volumes":[{"name":"v","secret":{"secretName":"other"}}]}`,
			forbidden + `volume with secret.secretName="other" is not allowed because service account strict does not reference that secret`},
		{"a variable's secret", `{"serviceAccountName":"strict","containers":[{"name":"a","env":[{"name":"E","valueFrom":{"secretKeyRef":{"name":"other"}}}]}]}`,
			forbidden + `container a with envVar E referencing secret.secretName="other" is not allowed because service account strict does not reference that secret`},
		{"an init container's", `{"serviceAccountName":"strict","initContainers":[{"name":"a","env":[{"name":"E","valueFrom":{"secretKeyRef":{"name":"other"}}}]}]}`,
			forbidden + `init container a with envVar E referencing secret.secretName="other" is not allowed because service account strict does not reference that secret`},
		{"an environment", `{"serviceAccountName":"strict","initContainers":[{"name":"a","envFrom":[{"secretRef":{"name":"other"}}]}]}`,
			forbidden + `init container a with envFrom referencing secret.secretName="other" is not allowed because service account strict does not reference that secret`},
		{"pull secrets", `{"serviceAccountName":"strict","imagePullSecrets":[{"name":"pull"},{"name":"ok"}]}`,
			forbidden + `imagePullSecrets[1].name="ok" is not allowed because service account strict does not reference that imagePullSecret`},
		{"what is no true enforces nothing", `{"serviceAccountName":"lax","volumes":[{"name":"v","secret":{"secretName":"other"}}]}`,
			`{` + of("lax") + `,"volumes":[{"name":"v","secret":{"secretName":"other"}}]}`},
	} {
		t.Run(c.title, func(t *testing.T) {
			e := newEnv(t)
			e.addAll()
			pod := must.Decode[tree.Object](t, `{"metadata":{"name":"p"},"spec":`+c.spec+`}`)
			before := must.Encode(t, pod["spec"])
			sent := pod["spec"]
			a := e.create(pod)
			got, err := e.plugin.Admit(t.Context(), a), ""
			if got != nil {
				err = got.Error()
				if !apierrors.IsForbidden(got) {
					t.Errorf("not Forbidden: %v", got)
				}
			} else {
				err = masked(must.Encode(t, a.Object["spec"]))
				if final := e.plugin.Validate(t.Context(), a); final != nil {
					t.Errorf("refused afterwards: %v", final)
				}
			}
			if err != c.want {
				t.Errorf("got\n%s\nwant\n%s", err, c.want)
			}
			if after := must.Encode(t, sent); after != before {
				t.Errorf("what was sent has changed:\n%s\n%s", before, after)
			}
			if rules, _ := a.Decided(); rules != admission.Rules(proto.RuleServiceAccounts) {
				t.Errorf("it consulted %b", rules)
			}
		})
	}
}

// TestMirrorPods: a Pod that runs already by a file of its node has no account, and no secrets.
func TestMirrorPods(t *testing.T) {
	const secrets = "a mirror pod may not reference secrets"
	for _, c := range []struct{ spec, want string }{
		{`{"containers":[{"name":"a"}]}`, ""},
		{`{"serviceAccountName":"default"}`, "a mirror pod may not reference service accounts"},
		{`{"imagePullSecrets":[{"name":"s"}]}`, secrets},
		{`{"imagePullSecrets":[{}]}`, ""},
		{`{"containers":[{"name":"a","envFrom":[{"secretRef":{"name":"s"}}]}]}`, secrets},
		{`{"initContainers":[{"name":"a","env":[{"valueFrom":{"secretKeyRef":{"name":"s"}}}]}]}`, secrets},
		{`{"ephemeralContainers":[{"name":"a","env":[{"valueFrom":{"secretKeyRef":{"name":"s"}}}]}]}`, secrets},
		{`{"volumes":[{"secret":{"secretName":"s"}}]}`, secrets},
		{`{"volumes":[{"csi":{"nodePublishSecretRef":{"name":"s"}}}]}`, secrets},
		{`{"volumes":[{"projected":{"sources":[{"secret":{"name":"s"}}]}}]}`, secrets},
		{`{"volumes":[{"projected":{"sources":[{"configMap":{"name":"s"}}]}}]}`, ""},
		{`{"volumes":[{"projected":{"sources":[{"serviceAccountToken":{"path":"t"}}]}}]}`, "a mirror pod may not use ServiceAccountToken volume projections"},
	} {
		e := newEnv(t)
		pod := must.Decode[tree.Object](t, `{"metadata":{"name":"p","annotations":{"kubernetes.io/config.mirror":"x"}},"spec":`+c.spec+`}`)
		a := e.create(pod)
		err := e.plugin.Admit(t.Context(), a)
		if got := fmt.Sprint(err); c.want == "" && err != nil || c.want != "" && got != `pods "p" is forbidden: `+c.want {
			t.Errorf("%s: %v, want %q", c.spec, err, c.want)
		}
		if got := must.Encode(t, a.Object["spec"]); got != must.Encode(t, must.Decode[tree.Object](t, c.spec)) {
			t.Errorf("%s was made %s", c.spec, got)
		}
	}
}

// TestEphemeralContainers: they are held to the secrets of the Pod's account, too.
func TestEphemeralContainers(t *testing.T) {
	const env = `"ephemeralContainers":[{"name":"a","env":[{"name":"E","valueFrom":{"secretKeyRef":{"name":"other"}}}]}]`
	for _, c := range []struct{ spec, want string }{
		{`{"serviceAccountName":"strict",` + env + `}`, `ephemeral container a with envVar E referencing secret.secretName="other" is not allowed because service account strict does not reference that secret`},
		{`{"serviceAccountName":"quiet",` + env + `}`, ""},
		{`{` + env + `}`, `pods "p" is forbidden: no service account specified for pod n/p`},
		{`{"serviceAccountName":"none",` + env + `}`, `pods "p" is forbidden: error looking up service account n/none: serviceaccount "none" not found`},
	} {
		e := newEnv(t)
		e.addAll()
		a := e.create(must.Decode[tree.Object](t, `{"metadata":{"name":"p"},"spec":`+c.spec+`}`))
		a.Operation, a.Subresource = admission.Update, "ephemeralcontainers"
		if err := e.plugin.Admit(t.Context(), a); err != nil {
			t.Errorf("%s: Admit: %v", c.spec, err)
		}
		if err := e.plugin.Validate(t.Context(), a); c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != c.want) {
			t.Errorf("%s: %v, want %q", c.spec, err, c.want)
		}
	}
}

// TestHandles: nothing but Pods that are created, and containers that are added.
func TestHandles(t *testing.T) {
	e := newEnv(t)
	for _, c := range []struct {
		operation             admission.Operation
		resource, subresource string
		want                  bool
	}{
		{admission.Create, "pods", "", true},
		{admission.Update, "pods", "", false},
		{admission.Update, "pods", "ephemeralcontainers", true},
		{admission.Update, "pods", "status", false},
		{admission.Create, "pods", "eviction", false},
		{admission.Delete, "pods", "", false},
		{admission.Create, "configmaps", "", false},
	} {
		a := &admission.Attributes{Operation: c.operation, Resource: schema.GroupVersionResource{Version: "v1", Resource: c.resource}, Subresource: c.subresource}
		if got := e.plugin.Handles(a); got != c.want {
			t.Errorf("%s %s/%s: %t", c.operation, c.resource, c.subresource, got)
		}
	}
}

// TestDefaultAccountIsAwaited: a controller makes it after its namespace, so that a Pod may
// come first.
func TestDefaultAccountIsAwaited(t *testing.T) {
	e := newEnv(t)
	go func() {
		<-e.confirmed
		e.add("default")
	}()
	a := e.create(must.Decode[tree.Object](t, `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"a"}]}}`))
	must.OK(t, e.plugin.Admit(t.Context(), a))
	if tree.Lookup(a.Object, "spec.serviceAccountName") != "default" {
		t.Errorf("the Pod is %s", must.Encode(t, a.Object))
	}
}

// TestMissingDefaultAccount: it is not awaited for ever, and not longer than the client waits.
func TestMissingDefaultAccount(t *testing.T) {
	e := newEnv(t)
	a := e.create(must.Decode[tree.Object](t, `{"metadata":{"name":"p"},"spec":{}}`))
	err := e.plugin.Admit(t.Context(), a)
	if want := `pods "p" is forbidden: error looking up service account n/default: serviceaccount "default" not found`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errors.New("the client is gone"))
	defer cancel()
	if err := e.plugin.Admit(ctx, e.create(must.Decode[tree.Object](t, `{"metadata":{"name":"p"},"spec":{}}`))); err == nil || err.Error() != "the client is gone" {
		t.Errorf("with a client that is gone: %v", err)
	}
}

// TestLaggingNode: an account that this node does not have yet is not missing.
func TestLaggingNode(t *testing.T) {
	e := newEnv(t)
	e.catchUp = func() error { e.add("quiet"); return nil }
	if err := e.plugin.Admit(t.Context(), e.create(must.Decode[tree.Object](t, `{"metadata":{"name":"p"},"spec":{"serviceAccountName":"quiet"}}`))); err != nil {
		t.Errorf("an account that came with the confirmation: %v", err)
	}
	lost := errors.New("no quorum")
	e.catchUp = func() error { return lost }
	if err := e.plugin.Admit(t.Context(), e.create(must.Decode[tree.Object](t, `{"metadata":{"name":"p"},"spec":{"serviceAccountName":"none"}}`))); !errors.Is(err, lost) {
		t.Errorf("without a quorum: %v", err)
	}
}

func BenchmarkAdmit(b *testing.B) {
	e := newEnv(b)
	e.addAll()
	pod := must.Decode[tree.Object](b, `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"a","image":"i"},{"name":"b","image":"i"}]}}`)
	for b.Loop() {
		if err := e.plugin.Admit(b.Context(), e.create(tree.Clone(pod))); err != nil {
			b.Fatal(err)
		}
	}
}

// env is the plugin over a store in memory.
type env struct {
	t         testing.TB
	store     *memstore.Store
	plugin    *serviceaccount.Plugin
	confirmed chan struct{} // closed with the first confirmation
	catchUp   func() error  // what a confirmation brings
}

func newEnv(t testing.TB) *env {
	e := &env{t: t, store: memstore.New(), confirmed: make(chan struct{}), catchUp: func() error { return nil }}
	t.Cleanup(func() { must.Close(t, e.store) })
	e.plugin = serviceaccount.New(state.New(e.store), func(context.Context) error {
		select {
		case <-e.confirmed:
		default:
			close(e.confirmed)
		}
		return e.catchUp()
	})
	return e
}

func (e *env) addAll() {
	for name := range accounts {
		e.add(name)
	}
}

func (e *env) add(name string) {
	w := &proto.Write{
		Op: proto.Op_OP_PUT, Table: "serviceaccounts", Key: "n/" + name, Value: []byte(accounts[name]),
		RequestId: []byte(strings.Repeat(name, 16))[:proto.RequestIDSize],
	}
	if _, err := e.store.Propose(context.Background(), w); err != nil {
		e.t.Error(err)
	}
}

func (e *env) create(pod tree.Object) *admission.Attributes {
	return &admission.Attributes{
		Operation: admission.Create, Kind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"},
		Namespace: "n", Name: "p", Object: pod,
	}
}

// masked replaces the random part of the volume's name.
func masked(s string) string {
	const prefix = "kube-api-access-"
	parts := strings.Split(s, prefix)
	for i := 1; i < len(parts); i++ {
		if !strings.HasPrefix(parts[i], "mine") {
			parts[i] = "XXXXX" + parts[i][5:]
		}
	}
	return strings.Join(parts, prefix)
}
