package plugins_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/plugins"
	"github.com/quorate/quorate/apiserver/objects/objectstest"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/view"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// configured are the configurations of plugins in testdata/decisions.
var configured = map[string]string{
	"PodNodeSelector":          "podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: usual=yes, strict: \"usual=yes,disk=ssd\"}",
	"PodTolerationRestriction": restriction("default: [{key: usual, operator: Exists}]\nwhitelist: [{key: usual, operator: Exists}, {key: node.kubernetes.io/memory-pressure, operator: Exists}]"),
}

func restriction(rest string) string {
	return "apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1\nkind: Configuration\n" + rest
}

// attester may attest for one signer.
var attester = auth.AuthorizerFunc(func(_ context.Context, a auth.Attributes) (auth.Decision, string, error) {
	if a.Verb == "attest" && a.Resource == "signers" && a.Name == "example.com/mine" {
		return auth.Allow, "", nil
	}
	return auth.NoOpinion, "", nil
})

// create is how NamespaceAutoProvision makes a namespace.
func create(t *testing.T) func(context.Context, string) error {
	return func(_ context.Context, name string) error {
		switch name {
		case "raced":
			return apierrors.NewAlreadyExists(corev1.Resource("namespaces"), name)
		case "there":
			t.Error("an existing namespace is created")
		}
		return errors.New("create " + name)
	}
}

// TestEach plays testdata/decisions/PLUGIN/*.txt: the decisions of plugins. They are together in this package,
// because each test binary costs a second of linking.
func TestEach(t *testing.T) {
	files, err := filepath.Glob("testdata/decisions/*/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no decisions: %v", err)
	}
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		t.Run(name+"/"+strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			objectstest.Run(t, file, objectstest.Options{Plugin: func(s view.Store) admission.Plugin {
				return plugins.NewEnv(t, s, attester, func(c *plugins.Config) { c.CreateNamespace = create(t) }).Must(t, name, configured[name]).Plugin
			}})
		})
	}
}

// TestOperations plays operations on objects, with the plugins that are named. The roles are those that a
// case creates.
func TestOperations(t *testing.T) {
	for files, names := range map[string]string{
		"certificates/*.txt":      "CertificateApproval CertificateSigning CertificateSubjectRestriction",
		"claimresize/*.txt":       "PersistentVolumeClaimResize",
		"defaultclass/*.txt":      "DefaultStorageClass DefaultIngressClass",
		"externalips/*.txt":       "DenyServiceExternalIPs",
		"ownerreferences/*.txt":   "OwnerReferencesPermissionEnforcement",
		"storageprotection/*.txt": "StorageObjectInUseProtection",
	} {
		t.Run(filepath.Dir(files), func(t *testing.T) {
			o := objectstest.Options{Admission: func(s view.Store, authorizer auth.Authorizer) (all []admission.Named) {
				e := plugins.NewEnv(t, s, authorizer, nil)
				for _, name := range strings.Fields(names) {
					all = append(all, e.Must(t, name, ""))
				}
				return all
			}}
			objectstest.Run(t, "testdata/"+files, o)
		})
	}
}

// TestNewestClass: each object is a second newer than the one before.
func TestNewestClass(t *testing.T) {
	var calls atomic.Int64
	objectstest.Run(t, "testdata/defaultclass/newest/*.txt", objectstest.Options{
		Now: func() time.Time { return time.Unix(1767268800+calls.Add(1), 0) },
		Admission: func(s view.Store, authorizer auth.Authorizer) []admission.Named {
			e := plugins.NewEnv(t, s, authorizer, nil)
			return []admission.Named{e.Must(t, "DefaultStorageClass", ""), e.Must(t, "DefaultIngressClass", "")}
		},
	})
}

// TestMistakes: a configuration that cannot have an effect ends the start.
func TestMistakes(t *testing.T) {
	for _, c := range []struct{ name, config string }{
		{"PodNodeSelector", `podNodeSelectorPluginConfig: [1]`},
		{"PodNodeSelector", `{`},
		{"PodNodeSelector", `podNodeSelectorPluginConfig: {a: "x in (y)"}`},
		{"PodTolerationRestriction", `{"kind": "Configuration"}`},
		{"PodTolerationRestriction", `{`},
		{"PodTolerationRestriction", restriction(`default: [{operator: Equal}]`)},
		{"PodTolerationRestriction", restriction(`whitelist: [{key: a, effect: Sometimes}]`)},
		{"EventRateLimit", "{"},
		{"EventRateLimit", rates(`{type: Server, qps: 1, burst: 0}`)},
		{"EventRateLimit", rates(`{type: Nobody, qps: 1, burst: 1}`)},
	} {
		if _, err := plugins.NewEnv(t, nil, nil, nil).One(c.name, c.config); err == nil {
			t.Errorf("%s: %s is taken", c.name, c.config)
		}
	}
}

func rates(limit string) string {
	return "apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Configuration\nlimits: [" + limit + "]"
}

// TestCertificatesPermissions: the signer is asked for by its name, then by its domain.
func TestCertificatesPermissions(t *testing.T) {
	for _, c := range []struct {
		allowed string // the name on which the user has the permission
		refused bool
		asked   string
	}{
		{"example.com/s", false, "example.com/s"},
		{"example.com/*", false, "example.com/s example.com/*"},
		{"error", true, "example.com/s example.com/*"},
	} {
		var asked []string
		authorizer := auth.AuthorizerFunc(func(_ context.Context, a auth.Attributes) (auth.Decision, string, error) {
			if a.User.Name != "alice" || a.Verb != "approve" || a.APIGroup != "certificates.k8s.io" || a.Resource != "signers" || !a.ResourceRequest || a.Namespace != "" {
				t.Errorf("asked for %+v", a)
			}
			asked = append(asked, a.Name)
			if a.Name == c.allowed {
				return auth.Allow, "", nil
			}
			return auth.NoOpinion, "", errors.New("a role is missing")
		})
		p := plugins.NewEnv(t, nil, authorizer, nil).Must(t, "CertificateApproval", "").Plugin.(admission.Validator)
		a := write(admission.Update, "certificates.k8s.io", "certificatesigningrequests", "CertificateSigningRequest")
		a.Subresource, a.User = "approval", &auth.User{Name: "alice"}
		a.Object = map[string]any{"spec": map[string]any{"signerName": "example.org/chosen"}}
		a.Old = map[string]any{"spec": map[string]any{"signerName": "example.com/s"}}
		if !p.Handles(a) {
			t.Fatal("an approval is not asked about")
		}
		if err := p.Validate(t.Context(), a); (err != nil) != c.refused || strings.Join(asked, " ") != c.asked {
			t.Errorf("%s: %v, asked for %q, want %q", c.allowed, err, asked, c.asked)
		}
	}
}

// write is a write of an object named a in version v1.
func write(op admission.Operation, group, resource, kind string) *admission.Attributes {
	gv := schema.GroupVersion{Group: group, Version: "v1"}
	return &admission.Attributes{Operation: op, Name: "a", Resource: gv.WithResource(resource), Kind: gv.WithKind(kind)}
}

// TestOwners: nothing is asked of writes without owners, of deletions and of the status of Pods.
func TestOwners(t *testing.T) {
	served := auth.AuthorizerFunc(func(context.Context, auth.Attributes) (auth.Decision, string, error) {
		return auth.NoOpinion, "", nil
	})
	p := plugins.NewEnv(t, nil, served, nil).Must(t, "OwnerReferencesPermissionEnforcement", "").Plugin.(admission.Validator)
	owned := map[string]any{"metadata": map[string]any{"ownerReferences": []any{map[string]any{"uid": "u"}}}}
	free := map[string]any{"metadata": map[string]any{}}
	for _, c := range []struct {
		name            string
		operation       admission.Operation
		group, resource string
		sub             string
		object, old     map[string]any
		handled         bool
		refused         bool
	}{
		{"an owner is set", admission.Create, "", "pods", "", owned, nil, true, false},
		{"no owner", admission.Create, "", "pods", "", free, nil, false, false},
		{"an owner is taken away", admission.Update, "", "pods", "", free, owned, true, true},
		{"a deletion", admission.Delete, "", "pods", "", nil, owned, false, false},
		{"the status of a Pod", admission.Update, "", "pods", "status", free, owned, true, false},
		{"another status", admission.Update, "apps", "deployments", "status", free, owned, true, true},
		{"the status of another group's pods", admission.Update, "metrics.k8s.io", "pods", "status", free, owned, true, true},
	} {
		a := write(c.operation, c.group, c.resource, "Any")
		a.Subresource, a.Object, a.Old = c.sub, c.object, c.old
		if got := p.Handles(a); got != c.handled {
			t.Errorf("%s: handled %t", c.name, got)
		}
		if err := p.Validate(t.Context(), a); c.handled && (err != nil) != c.refused {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestConsulted: a plugin that reads a table says so, also if nothing was there.
func TestConsulted(t *testing.T) {
	claim := map[string]any{"metadata": map[string]any{}, "spec": map[string]any{}}
	for _, c := range []struct {
		plugin, group, resource, kind string
		object                        map[string]any
		want                          uint32
	}{
		{"DefaultStorageClass", "", "persistentvolumeclaims", "PersistentVolumeClaim", claim, proto.RuleStorageClasses},
		{"DefaultStorageClass", "", "persistentvolumeclaims", "PersistentVolumeClaim", map[string]any{"spec": map[string]any{"storageClassName": "a"}}, 0},
		{"DefaultStorageClass", "", "persistentvolumeclaims", "PersistentVolumeClaim", map[string]any{"spec": map[string]any{"storageClassName": ""}}, 0},
		{"DefaultIngressClass", "networking.k8s.io", "ingresses", "Ingress", map[string]any{"spec": map[string]any{}}, proto.RuleIngressClasses},
		{"RuntimeClass", "", "pods", "Pod", map[string]any{"spec": map[string]any{"runtimeClassName": "none"}}, proto.RuleRuntimeClasses},
		{"AlwaysPullImages", "", "pods", "Pod", map[string]any{"spec": map[string]any{}}, 0},
	} {
		p := plugins.NewEnv(t, objectstest.NewCase(t, objectstest.Options{}).Memory, nil, nil).Must(t, c.plugin, "").Plugin.(admission.Mutator)
		a := write(admission.Create, c.group, c.resource, c.kind)
		a.Object = c.object
		if !p.Handles(a) {
			t.Errorf("%s has nothing to say", c.plugin)
		}
		_ = p.Admit(t.Context(), a)
		if rules, _ := a.Decided(); uint32(rules) != c.want {
			t.Errorf("%s: rules %b, want %b", c.plugin, rules, c.want)
		}
	}
}

// TestLongEventKeys: what EventRateLimit keeps of an Event is short, whatever the Event says.
func TestLongEventKeys(t *testing.T) {
	p := plugins.NewEnv(t, nil, nil, nil).Must(t, "EventRateLimit", rates("{type: SourceAndObject, qps: 1, burst: 1}")).Plugin.(admission.Validator)
	long := strings.Repeat("x", 1<<20)
	var m runtime.MemStats
	for i := range 100 {
		if i == 10 {
			runtime.GC()
			runtime.ReadMemStats(&m)
		}
		a := write(admission.Create, "", "events", "Event")
		a.Object = map[string]any{"involvedObject": map[string]any{"name": fmt.Sprint(i, long)}}
		must.OK(t, p.Validate(t.Context(), a))
	}
	before := m.HeapAlloc
	runtime.GC()
	if runtime.ReadMemStats(&m); m.HeapAlloc > before+10<<20 {
		t.Errorf("the keys of 90 Events of a MiB take %d MiB", (m.HeapAlloc-before)>>20)
	}
	again := write(admission.Create, "", "events", "Event")
	again.Object = map[string]any{"involvedObject": map[string]any{"name": fmt.Sprint(99, long)}}
	if err := p.Validate(t.Context(), again); err == nil || !strings.Contains(err.Error(), "limit reached on type SourceAndObject") || len(err.Error()) > 1000 {
		t.Errorf("%.1000v", err)
	}
}
