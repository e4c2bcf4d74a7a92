package limitranger_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/limitranger"
	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/memstore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestDefaults: what containers leave out, they are given, and an annotation says so.
func TestDefaults(t *testing.T) {
	const limits = `{"type":"Container","default":{"cpu":"500m","memory":"1Gi"},"defaultRequest":{"cpu":"0.1"}}`
	note := func(s string) string {
		return `{"metadata":{"annotations":{"kubernetes.io/limit-ranger":"LimitRanger plugin set: ` + s + `"},"name":"p"},"spec":`
	}
	for _, c := range []struct{ title, ranges, spec, want string }{
		{"nothing is left out", limits, `{"containers":[{"name":"a","resources":{"limits":{"cpu":"1","memory":"1"},"requests":{"cpu":"1"}}}]}`,
			`{"metadata":{"name":"p"},"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"1","memory":"1"},"requests":{"cpu":"1"}}}]}}`},
		{"all is", limits, `{"containers":[{"name":"a"}]}`,
			note("cpu request for container a; cpu, memory limit for container a") + `{"containers":[{"name":"a","resources":{"limits":{"cpu":"500m","memory":"1Gi"},"requests":{"cpu":"100m"}}}]}}`},
		{"some is, in several containers", limits, `{"containers":[{"name":"a","resources":{"limits":{"cpu":"1"}}},{"name":"b","resources":{"requests":{"cpu":1}}}],"initContainers":[{"name":"i"}]}`,
			note("cpu request for container a; memory limit for container a; cpu, memory limit for container b; cpu request for init container i; cpu, memory limit for init container i") +
				`{"containers":[{"name":"a","resources":{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"100m"}}},` +
				`{"name":"b","resources":{"limits":{"cpu":"500m","memory":"1Gi"},"requests":{"cpu":1}}}],` +
				`"initContainers":[{"name":"i","resources":{"limits":{"cpu":"500m","memory":"1Gi"},"requests":{"cpu":"100m"}}}]}}`},
		{"of the same resource the later item counts", limits + `,{"type":"Container","default":{"cpu":"2"}}`, `{"containers":[{"name":"a"}]}`,
			note("cpu request for container a; cpu, memory limit for container a") + `{"containers":[{"name":"a","resources":{"limits":{"cpu":"2","memory":"1Gi"},"requests":{"cpu":"100m"}}}]}}`},
		{"other types have no defaults", `{"type":"Pod","max":{"cpu":"1"}}`, `{"containers":[{"name":"a"}]}`, `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"a"}]}}`},
	} {
		t.Run(c.title, func(t *testing.T) {
			e := newEnv(t)
			e.add("r", c.ranges)
			pod := must.Decode[tree.Object](t, `{"metadata":{"name":"p"},"spec":`+c.spec+`}`)
			sent, before := pod["spec"], must.Encode(t, pod["spec"])
			a := attributes(pod)
			must.OK(t, e.plugin.Admit(t.Context(), a))
			if got := must.Encode(t, a.Object); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
			if after := must.Encode(t, sent); after != before {
				t.Errorf("what was sent has changed:\n%s\n%s", before, after)
			}
			if rules, _ := a.Decided(); rules != admission.Rules(proto.RuleLimitRanges) {
				t.Errorf("it consulted %b", rules)
			}
		})
	}
}

// TestTwoRanges: what the first one gives, the second one finds; the annotation is of the last
// one that gave something.
func TestTwoRanges(t *testing.T) {
	e := newEnv(t)
	e.add("a", `{"type":"Container","default":{"cpu":"1"}}`)
	e.add("b", `{"type":"Container","default":{"cpu":"2","memory":"2"}}`)
	a := attributes(must.Decode[tree.Object](t, `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c"}]}}`))
	must.OK(t, e.plugin.Admit(t.Context(), a))
	const want = `{"metadata":{"annotations":{"kubernetes.io/limit-ranger":"LimitRanger plugin set: memory limit for container c"},"name":"p"},"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"1","memory":"2"}}}]}}`
	if got := must.Encode(t, a.Object); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestLimits: what a range does not allow is refused in upstream's words.
func TestLimits(t *testing.T) {
	container := func(requests, limits string) string {
		return `{"name":"c","resources":{"requests":{` + requests + `},"limits":{` + limits + `}}}`
	}
	one := func(requests, limits string) string { return `{"containers":[` + container(requests, limits) + `]}` }
	for _, c := range []struct{ title, ranges, spec, want string }{
		{"a minimum that is kept", `{"type":"Container","min":{"cpu":"100m"}}`, one(`"cpu":"100m"`, ``), ""},
		{"no request", `{"type":"Container","min":{"cpu":"100m"}}`, one(``, ``), "minimum cpu usage per Container is 100m.  No request is specified"},
		{"a small request", `{"type":"Container","min":{"cpu":"100m"}}`, one(`"cpu":"0.099"`, ``), "minimum cpu usage per Container is 100m, but request is 99m"},
		{"a small limit", `{"type":"Container","min":{"cpu":"100m"}}`, one(`"cpu":"1"`, `"cpu":"99m"`), "minimum cpu usage per Container is 100m, but limit is 99m"},
		{"no limit", `{"type":"Container","max":{"memory":"1Gi"}}`, one(`"memory":"1"`, ``), "maximum memory usage per Container is 1Gi.  No limit is specified"},
		{"a large limit", `{"type":"Container","max":{"memory":"1Gi"}}`, one(`"memory":"1"`, `"memory":"2Gi"`), "maximum memory usage per Container is 1Gi, but limit is 2Gi"},
		{"a large request", `{"type":"Container","max":{"memory":"1Gi"}}`, one(`"memory":"2Gi"`, `"memory":"1Gi"`), "maximum memory usage per Container is 1Gi, but request is 2Gi"},
		{"a ratio that is kept", `{"type":"Container","maxLimitRequestRatio":{"cpu":"1.5"}}`, one(`"cpu":"2"`, `"cpu":"3"`), ""},
		{"one that is not", `{"type":"Container","maxLimitRequestRatio":{"cpu":"1.5"}}`, one(`"cpu":"1"`, `"cpu":"2"`), "cpu max limit to request ratio per Container is 1500m, but provided ratio is 2.000000"},
		{"a ratio of no request", `{"type":"Container","maxLimitRequestRatio":{"cpu":"2"}}`, one(`"cpu":"0"`, `"cpu":"2"`), "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0"},
		{"a ratio of no limit", `{"type":"Container","maxLimitRequestRatio":{"cpu":"2"}}`, one(`"cpu":"1"`, ``), "cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0"},
		{"init containers", `{"type":"Container","max":{"cpu":"1"}}`, `{"containers":[` + container(``, `"cpu":"1"`) + `],"initContainers":[` + container(``, `"cpu":"2"`) + `]}`,
			"maximum cpu usage per Container is 1, but limit is 2"},
		{"several faults at once", `{"type":"Container","min":{"cpu":"1","memory":"1"},"max":{"cpu":"2"}}`, one(``, ``),
			"[minimum cpu usage per Container is 1.  No request is specified, minimum memory usage per Container is 1.  No request is specified, maximum cpu usage per Container is 2.  No limit is specified]"},
		{"a Pod's sum", `{"type":"Pod","max":{"cpu":"2"}}`, `{"containers":[` + container(``, `"cpu":"1"`) + `,` + container(``, `"cpu":"1100m"`) + `]}`,
			"maximum cpu usage per Pod is 2, but limit is 2100m"},
		{"an init container counts alone", `{"type":"Pod","max":{"cpu":"2"}}`, `{"containers":[` + container(``, `"cpu":"2"`) + `],"initContainers":[` + container(``, `"cpu":"2"`) + `]}`, ""},
		{"a sidecar counts beside the others", `{"type":"Pod","max":{"cpu":"2"}}`,
			`{"containers":[` + container(``, `"cpu":"2"`) + `],"initContainers":[{"name":"i","restartPolicy":"Always","resources":{"limits":{"cpu":"1"}}}]}`, "maximum cpu usage per Pod is 2, but limit is 3"},
		{"the Pod's own resources count instead", `{"type":"Pod","max":{"cpu":"2"}}`, `{"resources":{"limits":{"cpu":"3"}},"containers":[` + container(``, `"cpu":"1"`) + `]}`, "maximum cpu usage per Pod is 2, but limit is 3"},
		{"but not its huge pages", `{"type":"Pod","max":{"hugepages-2Mi":"2Mi"}}`, `{"resources":{"limits":{"hugepages-2Mi":"4Mi"}},"containers":[` + container(``, `"hugepages-2Mi":"2Mi"`) + `]}`, ""},
		{"claims are not Pods", `{"type":"PersistentVolumeClaim","max":{"storage":"1"}}`, one(``, ``), ""},
	} {
		t.Run(c.title, func(t *testing.T) {
			e := newEnv(t)
			e.add("r", c.ranges)
			a := attributes(must.Decode[tree.Object](t, `{"metadata":{"name":"p"},"spec":`+c.spec+`}`))
			wants(t, e.plugin.Validate(t.Context(), a), "pods", c.want)
			a.Old = must.Decode[tree.Object](t, `{"metadata":{"name":"p","deletionTimestamp":"2026-01-01T12:00:00Z"}}`)
			a.Operation, a.Subresource = admission.Update, "resize"
			wants(t, e.plugin.Validate(t.Context(), a), "pods", "") // what is being deleted
		})
	}
}

func TestClaims(t *testing.T) {
	const ranges = `{"type":"PersistentVolumeClaim","min":{"storage":"1Gi"},"max":{"storage":"2Gi"}},{"type":"Container","min":{"storage":"1Ti"}}`
	for storage, want := range map[string]string{
		`"storage":"1Gi"`:   "",
		`"storage":"512Mi"`: "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 512Mi",
		`"storage":"3Gi"`:   "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi",
		``:                  "[minimum storage usage per PersistentVolumeClaim is 1Gi.  No request is specified, maximum storage usage per PersistentVolumeClaim is 2Gi.  No request is specified]",
	} {
		e := newEnv(t)
		e.add("r", ranges)
		a := attributes(must.Decode[tree.Object](t, `{"metadata":{"name":"p"},"spec":{"resources":{"requests":{`+storage+`}}}}`))
		a.Resource.Resource = "persistentvolumeclaims"
		before := must.Encode(t, a.Object)
		if err := e.plugin.Admit(t.Context(), a); err != nil || must.Encode(t, a.Object) != before {
			t.Errorf("Admit: %v, %s", err, must.Encode(t, a.Object))
		}
		wants(t, e.plugin.Validate(t.Context(), a), "persistentvolumeclaims", want)
	}
}

// TestResize: it is held to the ranges, and its metadata do not change.
func TestResize(t *testing.T) {
	e := newEnv(t)
	e.add("r", `{"type":"Container","default":{"cpu":"1"},"max":{"cpu":"2"}}`)
	a := attributes(must.Decode[tree.Object](t, `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c"}]}}`))
	a.Operation, a.Subresource, a.Old = admission.Update, "resize", must.Decode[tree.Object](t, `{"metadata":{"name":"p"}}`)
	if !e.plugin.Handles(a) {
		t.Error("a resize is not handled")
	}
	must.OK(t, e.plugin.Admit(t.Context(), a))
	if got, want := must.Encode(t, a.Object), `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"1"}}}]}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestHandles(t *testing.T) {
	e := newEnv(t)
	for _, c := range []struct {
		operation             admission.Operation
		resource, subresource string
		want                  bool
	}{
		{admission.Create, "pods", "", true},
		{admission.Update, "pods", "", false},
		{admission.Update, "pods", "status", false},
		{admission.Create, "pods", "binding", false},
		{admission.Delete, "pods", "", false},
		{admission.Create, "persistentvolumeclaims", "", true},
		{admission.Update, "persistentvolumeclaims", "", true},
		{admission.Update, "persistentvolumeclaims", "status", false},
		{admission.Create, "configmaps", "", false},
	} {
		a := &admission.Attributes{Operation: c.operation, Resource: schema.GroupVersionResource{Version: "v1", Resource: c.resource}, Subresource: c.subresource}
		if got := e.plugin.Handles(a); got != c.want {
			t.Errorf("%s %s/%s: %t", c.operation, c.resource, c.subresource, got)
		}
	}
}

// BenchmarkNothing is what a Pod costs in a namespace without ranges.
func BenchmarkNothing(b *testing.B) {
	e := newEnv(b)
	a := attributes(must.Decode[tree.Object](b, `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c"}]}}`))
	b.ReportAllocs()
	for b.Loop() {
		if e.plugin.Admit(b.Context(), a) != nil || e.plugin.Validate(b.Context(), a) != nil {
			b.Fatal("refused")
		}
	}
}

type env struct {
	t      testing.TB
	store  *memstore.Store
	plugin *limitranger.Plugin
}

func newEnv(t testing.TB) *env {
	e := &env{t: t, store: memstore.New()}
	t.Cleanup(func() { must.Close(t, e.store) })
	e.plugin = limitranger.New(state.New(e.store), slog.New(slog.DiscardHandler))
	return e
}

// add stores a LimitRange in the namespace n, and one that allows nothing in another one.
func (e *env) add(name, limits string) {
	e.t.Helper()
	for key, items := range map[string]string{"n/" + name: limits, "other/" + name: `{"type":"Pod","max":{"cpu":"0"}}`} {
		w := &proto.Write{
			Op: proto.Op_OP_PUT, Table: "limitranges", Key: key, RequestId: []byte(strings.Repeat(key, 16))[:proto.RequestIDSize],
			Value: fmt.Appendf(nil, `{"metadata":{"name":%q},"spec":{"limits":[%s]}}`, name, items),
		}
		if _, err := e.store.Propose(context.Background(), w); err != nil {
			e.t.Fatal(err)
		}
	}
}

func attributes(obj tree.Object) *admission.Attributes {
	return &admission.Attributes{
		Operation: admission.Create, Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespace: "n", Name: "p", Object: obj,
	}
}

func wants(t *testing.T, err error, resource, want string) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Errorf("refused: %v", err)
		}
		return
	}
	if want = resource + ` "p" is forbidden: ` + want; err == nil || err.Error() != want || !apierrors.IsForbidden(err) {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}
