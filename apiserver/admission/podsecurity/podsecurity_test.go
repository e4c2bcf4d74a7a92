package podsecurity_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/podsecurity"
	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/memstore"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/apis/audit"
)

const (
	plain      = `{"containers":[{"name":"c","image":"i"}]}`
	host       = `{"hostNetwork":true,"containers":[{"name":"c","image":"i"}]}`
	restricted = `{"securityContext":{"runAsNonRoot":true,"seccompProfile":{"type":"RuntimeDefault"}},` +
		`"containers":[{"name":"c","image":"i","securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}}]}`
	exemptions = `{"apiVersion":"pod-security.admission.config.k8s.io/v1","kind":"PodSecurityConfiguration","defaults":{"enforce":"baseline"},` +
		`"exemptions":{"namespaces":["exempt"],"usernames":["root"],"runtimeClasses":["vm"]}}`
	ofHost = `host namespaces (hostNetwork=true)`
)

func TestPods(t *testing.T) {
	for _, c := range []struct {
		title, config, labels, namespace, user, pod string
		want                                        string // the refusal
		told                                        string // warnings and annotations
	}{
		{"no labels", "", "", "n", "a", host, "", "enforce-policy=privileged:latest"},
		{"baseline is kept", "", "enforce=baseline", "n", "a", plain, "", "enforce-policy=baseline:latest"},
		{"and is not", "", "enforce=baseline", "n", "a", host, `pods "p" is forbidden: violates PodSecurity "baseline:latest": ` + ofHost, "enforce-policy=baseline:latest"},
		{"restricted is kept", "", "enforce=restricted", "n", "a", restricted, "", "enforce-policy=restricted:latest"},
		{"an old version asks for less", "", "enforce=restricted enforce-version=v1.0", "n", "a", `{"securityContext":{"runAsNonRoot":true},"containers":[{"name":"c","image":"i"}]}`, "", "enforce-policy=restricted:v1.0"},
		{"warnings", "", "warn=baseline", "n", "a", host, "", `enforce-policy=privileged:latest warning:would violate PodSecurity "baseline:latest": ` + ofHost},
		{"audit annotations", "", "audit=baseline", "n", "a", host, "", `audit-violations=would violate PodSecurity "baseline:latest": ` + ofHost + ` enforce-policy=privileged:latest`},
		{"labels that cannot be read count as restricted", "", "enforce=strict", "n", "a", plain, `pods "p" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")`,
			`enforce-policy=restricted:latest error=Failed to parse policy: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: "strict": must be one of privileged, baseline, restricted`},
		{"the defaults of a file", exemptions, "", "n", "a", host, `pods "p" is forbidden: violates PodSecurity "baseline:latest": ` + ofHost, "enforce-policy=baseline:latest"},
		{"a namespace that is exempt", exemptions, "enforce=baseline", "exempt", "a", host, "", "exempt=namespace"},
		{"a user", exemptions, "enforce=baseline", "n", "root", host, "", "exempt=user"},
		{"a runtime class", exemptions, "enforce=baseline", "n", "a", `{"runtimeClassName":"vm",` + host[1:], "", "exempt=runtimeClass"},
	} {
		t.Run(c.title, func(t *testing.T) {
			e := newEnv(t, c.config)
			e.namespace(c.namespace, c.labels)
			a, told := e.attributes("pods", c.namespace, "p", `{"metadata":{"name":"p"},"spec":`+c.pod+`}`)
			a.User = &auth.User{Name: c.user}
			if !e.plugin.Handles(a) {
				t.Fatal("it is not handled")
			}
			wants(t, e.plugin.Validate(t.Context(), a), c.want)
			if got := told.String(); got != c.told {
				t.Errorf("it said\n%s\nwant\n%s", got, c.told)
			}
		})
	}
}

// TestUpdates: a Pod that does not change in what counts may stay as it is.
func TestUpdates(t *testing.T) {
	e := newEnv(t, "")
	e.namespace("n", "enforce=baseline")
	pod := `{"metadata":{"name":"p"},"spec":` + host + `}`
	a, _ := e.attributes("pods", "n", "p", pod)
	a.Operation, a.Old = admission.Update, must.Decode[tree.Object](t, pod)
	wants(t, e.plugin.Validate(t.Context(), a), "")
	a.Object = must.Decode[tree.Object](t, strings.Replace(pod, `"image":"i"`, `"image":"j"`, 1))
	wants(t, e.plugin.Validate(t.Context(), a), `pods "p" is forbidden: violates PodSecurity "baseline:latest": `+ofHost)
}

// TestWorkloads: they are warned of, and not refused.
func TestWorkloads(t *testing.T) {
	e := newEnv(t, "")
	e.namespace("n", "enforce=restricted warn=baseline audit=baseline")
	for gr, path := range map[schema.GroupResource]string{
		{Group: "apps", Resource: "deployments"}:  `{"template":{"spec":` + host + `}}`,
		{Group: "batch", Resource: "cronjobs"}:    `{"jobTemplate":{"spec":{"template":{"spec":` + host + `}}}}`,
		{Resource: "replicationcontrollers"}:      `{"template":{"spec":` + host + `}}`,
		{Group: "apps", Resource: "statefulsets"}: `{"template":{"spec":` + host + `}}`,
	} {
		a, told := e.attributes(gr.Resource, "n", "d", `{"metadata":{"name":"d"},"spec":`+path+`}`)
		a.Resource.Group = gr.Group
		wants(t, e.plugin.Validate(t.Context(), a), "")
		const want = `audit-violations=would violate PodSecurity "baseline:latest": ` + ofHost + ` warning:would violate PodSecurity "baseline:latest": ` + ofHost
		if got := told.String(); got != want {
			t.Errorf("%s: it said\n%s\nwant\n%s", gr, got, want)
		}
	}
	a, told := e.attributes("replicationcontrollers", "n", "d", `{"metadata":{"name":"d"},"spec":{}}`)
	wants(t, e.plugin.Validate(t.Context(), a), "")
	if got := told.String(); got != "" {
		t.Errorf("without a template: it said %s", got)
	}
}

func TestNamespaces(t *testing.T) {
	e := newEnv(t, "")
	for i, spec := range []string{host, host, restricted} {
		e.write("pods", fmt.Sprintf("n/p%d", i), fmt.Sprintf(`{"metadata":{"name":"p%d"},"spec":%s}`, i, spec), nil)
	}
	e.write("pods", "other/p", `{"metadata":{"name":"p"},"spec":`+host+`}`, nil)
	labelled := func(labels string) string {
		text, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": "n", "labels": labelsOf(labels)}})
		must.OK(t, err)
		return string(text)
	}
	a, _ := e.attributes("namespaces", "", "n", labelled("enforce=strict"))
	wants(t, e.plugin.Validate(t.Context(), a), `Namespace "n" is invalid: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: "strict": must be one of privileged, baseline, restricted`)
	a, _ = e.attributes("namespaces", "", "n", labelled("enforce=baseline"))
	wants(t, e.plugin.Validate(t.Context(), a), "")
	for _, c := range []struct{ old, now, want, told string }{
		{"", "enforce=baseline", "", `warning:existing pods in namespace "n" violate the new PodSecurity enforce level "baseline:latest" warning:p0 (and 1 other pod): host namespaces`},
		{"enforce=baseline", "enforce=privileged", "", ""},
		{"enforce=baseline", "enforce=baseline warn=restricted", "", ""},
		{"enforce=strict", "enforce=strict", "", ""}, // wrong as it was
		{"", "enforce-version=1", `Namespace "n" is invalid: metadata.labels[pod-security.kubernetes.io/enforce-version]: Invalid value: "1": must be "latest" or "v1.x"`, ""},
	} {
		a, told := e.attributes("namespaces", "", "n", labelled(c.now))
		a.Operation, a.Old = admission.Update, must.Decode[tree.Object](t, labelled(c.old))
		wants(t, e.plugin.Validate(t.Context(), a), c.want)
		if got := told.String(); got != c.told {
			t.Errorf("from %q to %q: it said\n%s\nwant\n%s", c.old, c.now, got, c.told)
		}
	}
}

// TestManyPods: they are looked at until the client's time ends.
func TestManyPods(t *testing.T) {
	e := newEnv(t, "")
	e.write("pods", "n/p", `{"metadata":{"name":"p"},"spec":`+host+`}`, nil)
	a, told := e.attributes("namespaces", "", "n", `{"metadata":{"name":"n","labels":{"pod-security.kubernetes.io/enforce":"baseline"}}}`)
	a.Operation, a.Old = admission.Update, must.Decode[tree.Object](t, `{"metadata":{"name":"n"}}`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wants(t, e.plugin.Validate(ctx, a), "")
	if got, want := told.String(), "warning:failed to list pods while checking new PodSecurity enforce level"; got != want {
		t.Errorf("it said %q, want %q", got, want)
	}
}

func TestMetrics(t *testing.T) {
	e := newEnv(t, exemptions)
	e.namespace("n", "")
	for _, namespace := range []string{"n", "exempt"} {
		a, _ := e.attributes("pods", namespace, "p", `{"metadata":{"name":"p"},"spec":`+host+`}`)
		_ = e.plugin.Validate(t.Context(), a) // it is counted, whatever comes of it
	}
	families, err := e.registry.Gather()
	must.OK(t, err)
	var got []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if m.GetCounter().GetValue() == 0 {
				continue
			}
			line := f.GetName()
			for _, l := range m.GetLabel() {
				line += " " + l.GetName() + "=" + l.GetValue()
			}
			got = append(got, line)
		}
	}
	want := []string{
		"pod_security_evaluations_total decision=deny mode=enforce policy_level=baseline policy_version=latest request_operation=create resource=pod subresource=",
		"pod_security_exemptions_total request_operation=create resource=pod subresource=",
	}
	if !slices.Equal(got, want) {
		t.Errorf("counted\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestConfiguration(t *testing.T) {
	for config, want := range map[string]string{
		`{`: "read the configuration: ",
		`{"apiVersion":"pod-security.admission.config.k8s.io/v1","kind":"Other"}`:                                                    "read the configuration: ",
		`{"apiVersion":"pod-security.admission.config.k8s.io/v1","kind":"PodSecurityConfiguration","defaults":{"enforce":"strict"}}`: "enforce",
	} {
		if _, err := podsecurity.New(nil, strings.NewReader(config), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", config, err, want)
		}
	}
}

func TestHandles(t *testing.T) {
	e := newEnv(t, "")
	for _, c := range []struct {
		operation                    admission.Operation
		group, resource, subresource string
		want                         bool
	}{
		{admission.Create, "", "pods", "", true},
		{admission.Update, "", "pods", "ephemeralcontainers", true},
		{admission.Update, "", "pods", "resize", true},
		{admission.Update, "", "pods", "status", false},
		{admission.Create, "", "pods", "binding", false},
		{admission.Delete, "", "pods", "", false},
		{admission.Create, "", "namespaces", "", true},
		{admission.Update, "", "namespaces", "finalize", false},
		{admission.Create, "apps", "deployments", "", true},
		{admission.Update, "apps", "deployments", "scale", false},
		{admission.Create, "apps", "controllerrevisions", "", false},
		{admission.Create, "batch", "jobs", "", true},
		{admission.Create, "", "configmaps", "", false},
		{admission.Create, "example.com", "pods", "", false},
	} {
		a := &admission.Attributes{Operation: c.operation, Resource: schema.GroupVersionResource{Group: c.group, Version: "v1", Resource: c.resource}, Subresource: c.subresource}
		if got := e.plugin.Handles(a); got != c.want {
			t.Errorf("%s %s/%s %s: %t", c.operation, c.group, c.resource, c.subresource, got)
		}
	}
}

// BenchmarkPrivileged is what a Pod costs in a namespace without labels.
func BenchmarkPrivileged(b *testing.B) {
	e := newEnv(b, "")
	e.namespace("n", "")
	a, _ := e.attributes("pods", "n", "p", `{"metadata":{"name":"p"},"spec":`+host+`}`)
	a.Told = nil
	b.ReportAllocs()
	for b.Loop() {
		if err := e.plugin.Validate(b.Context(), a); err != nil {
			b.Fatal(err)
		}
	}
}

type env struct {
	t        testing.TB
	store    *memstore.Store
	plugin   *podsecurity.Plugin
	registry *prometheus.Registry
}

func newEnv(t testing.TB, config string) *env {
	e := &env{t: t, store: memstore.New(), registry: prometheus.NewRegistry()}
	t.Cleanup(func() { must.Close(t, e.store) })
	var err error
	if e.plugin, err = podsecurity.New(state.New(e.store), strings.NewReader(config), e.registry); err != nil {
		t.Fatal(err)
	}
	return e
}

func (e *env) write(table, key, value string, labels map[string]string) {
	e.t.Helper()
	w := &proto.Write{Op: proto.Op_OP_PUT, Table: table, Key: key, Value: []byte(value), RequestId: []byte(strings.Repeat(key+table, 16))[:proto.RequestIDSize]}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		w.Labels = append(w.Labels, &proto.Attribute{Name: name, Value: labels[name]})
	}
	if _, err := e.store.Propose(context.Background(), w); err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) namespace(name, labels string) {
	e.write("namespaces", name, `{"metadata":{"name":"`+name+`"}}`, labelsOf(labels))
}

// labelsOf are "enforce=baseline warn=restricted" with the prefix of all of them.
func labelsOf(list string) map[string]string {
	out := map[string]string{"kubernetes.io/metadata.name": "x"}
	for l := range strings.FieldsSeq(list) {
		name, value, _ := strings.Cut(l, "=")
		out["pod-security.kubernetes.io/"+name] = value
	}
	return out
}

func (e *env) attributes(resource, namespace, name, obj string) (*admission.Attributes, *told) {
	said := &told{}
	kinds := map[string]string{"pods": "Pod", "namespaces": "Namespace"}
	return &admission.Attributes{
		Operation: admission.Create, Kind: schema.GroupVersionKind{Version: "v1", Kind: kinds[resource]}, Resource: schema.GroupVersionResource{Version: "v1", Resource: resource},
		Namespace: namespace, Name: name, Object: must.Decode[tree.Object](e.t, obj), Told: said,
	}, said
}

// told is what the plugin says beside its answer.
type told struct{ warnings, notes []string }

func (s *told) Warn(texts []string) {
	for _, w := range texts {
		s.warnings = append(s.warnings, "warning:"+w)
	}
}

func (s *told) Annotate(key, value string, _ audit.Level) {
	s.notes = append(s.notes, strings.TrimPrefix(key, "pod-security.kubernetes.io/")+"="+value)
}

func (s *told) String() string {
	slices.Sort(s.notes)
	return strings.Join(slices.Concat(s.notes, s.warnings), " ")
}

func wants(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}
