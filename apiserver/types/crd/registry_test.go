package crd_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/types/crd"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/memstore"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// world is a store with definitions and the registry of them.
type world struct {
	t   testing.TB
	mem *memstore.Store
	*crd.Registry
}

func newWorld(t testing.TB) *world {
	t.Helper()
	mem := memstore.New()
	t.Cleanup(func() { must.Close(t, mem) })
	builtin, err := kinds.Builtin()
	must.OK(t, err)
	return &world{t, mem, crd.New(mem, builtin, slog.New(slog.DiscardHandler))}
}

// put stores a definition under a name, or deletes it.
func (w *world) put(name, value string) {
	w.t.Helper()
	write := &proto.Write{Table: crd.Table, Key: name, Op: proto.Op_OP_PUT, Value: []byte(value), RequestId: fmt.Appendf(nil, "%016d", w.mem.State().Applied())}
	if value == "" {
		write.Op = proto.Op_OP_DELETE
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := w.mem.Propose(ctx, write); err != nil {
		w.t.Fatal(err)
	}
}

// established is a stored definition whose names are accepted. more is the rest of its spec.
func established(plural, kind, group, more string) string {
	return fmt.Sprintf(`{"metadata":{"name":"%[1]s.%[3]s"},"spec":{"group":%[3]q,"scope":"Cluster","names":{"plural":%[1]q,"kind":%[2]q,"listKind":"%[2]sList","singular":"x%[1]s"}%[4]s,
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]},
		"status":{"acceptedNames":{"plural":%[1]q,"kind":%[2]q,"listKind":"%[2]sList","singular":"x%[1]s"},"storedVersions":["v1"],
		"conditions":[{"type":"NamesAccepted","status":"True","reason":"NoConflicts"},{"type":"Established","status":"True","reason":"InitialNamesAccepted"}]}}`, plural, kind, group, more)
}

func gvr(group, plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: "v1", Resource: plural}
}

// TestRegistryFollows: what is served is what the definitions say, from one state to
// the next, and what does not change is taken over.
func TestRegistryFollows(t *testing.T) {
	w := newWorld(t)
	builtin := w.Current()
	w.put("as.example.com", established("as", "A", "example.com", ""))
	w.put("bs.example.com", established("bs", "B", "example.com", ""))
	first := w.Current()
	a, b := first.Lookup(gvr("example.com", "as")), first.Lookup(gvr("example.com", "bs"))
	if a == nil || b == nil || first.LookupKind(a.GVK()) != a || len(first.All()) != len(builtin.All())+2 {
		t.Fatalf("served: %v %v", a, b)
	}
	if w.Current() != first {
		t.Error("the registry changes without a definition")
	}
	w.put("as.example.com", established("as", "A", "example.com", `,"preserveUnknownFields":false,"conversion":{"strategy":"None"}`))
	second := w.Current()
	select {
	case <-crd.Ended(a):
	default:
		t.Error("who uses a definition that has changed does not hear of it")
	}
	select {
	case <-crd.Ended(b):
		t.Error("who uses a definition that is as it was is told that it ended")
	default:
	}
	if second.Lookup(gvr("example.com", "bs")) != b {
		t.Error("a definition that is as it was has another resource")
	}
	if changed := second.Lookup(gvr("example.com", "as")); changed == a || crd.Same(changed, a) {
		t.Error("a definition that has changed has the same resource")
	}
	// A kind that two have, and one that is built in: the first by name, and the built-in one.
	w.put("zs.example.com", established("zs", "B", "example.com", ""))
	w.put("pods.", established("pods", "Pod", "", ""))
	third := w.Current()
	if third.LookupKind(b.GVK()) != b {
		t.Error("a second definition takes the kind")
	}
	if third.Lookup(schema.GroupVersionResource{Version: "v1", Resource: "pods"}) != builtin.Lookup(schema.GroupVersionResource{Version: "v1", Resource: "pods"}) {
		t.Error("a definition takes the place of what is built in")
	}
	w.put("bs.example.com", "")
	fourth := w.Current()
	if fourth.Lookup(gvr("example.com", "bs")) != nil || fourth.LookupKind(b.GVK()) != fourth.Lookup(gvr("example.com", "zs")) {
		t.Error("the kind of a deleted definition is not the second's")
	}
	w.put("broken", `{"spec":`)
	if n := len(w.Definitions()); n != 4 || w.Current().Lookup(gvr("example.com", "as")) == nil {
		t.Errorf("a definition that cannot be read: %d", n)
	}
	all := w.Current().All()
	for i := 1; i < len(all); i++ {
		x, y := all[i-1], all[i]
		if x.Group > y.Group || x.Group == y.Group && (x.Version > y.Version || x.Version == y.Version && x.Plural >= y.Plural) {
			t.Errorf("out of order: %v, %v", x.GVR(), y.GVR())
		}
	}
}

// TestRegistryRefuses: what could be another resource's is not served, and nothing is
// deleted for it.
func TestRegistryRefuses(t *testing.T) {
	for _, c := range []struct{ why, name, value string }{
		{"a version that is built in", "aaas.networking.k8s.io", established("aaas", "Ingress", "networking.k8s.io", "")},
		{"the core group", "pods.", established("pods", "Pod", "", "")},
		{"another name than the definition's", "xs.example.com", established("ys", "Y", "example.com", "")},
		{"accepted names that are another definition's", "xs.example.com", strings.Replace(established("ys", "Y", "example.com", ""), `"plural":"ys"`, `"plural":"xs"`, 1)},
		{"a plural with a slash", "quorate/xs.example.com", established("quorate/xs", "X", "example.com", "")},
		{"a plural with a dot", "a.xs.example.com", established("a.xs", "X", "example.com", "")},
	} {
		w := newWorld(t)
		before := w.Current()
		w.put(c.name, c.value)
		if all := w.Current().All(); len(all) != len(before.All()) {
			t.Errorf("%s: it is served", c.why)
		}
		d := w.Definitions()[0]
		if s := d.Storage(); s != nil && (c.name != s.GroupResource().String() || s.Table() != c.name) {
			t.Errorf("%s: its objects would be those of %s", c.why, s.Table())
		}
	}
	w := newWorld(t)
	w.put("roles.rbac.authorization.k8s.io", strings.ReplaceAll(established("roles", "Role", "rbac.authorization.k8s.io", ""), `"name":"v1"`, `"name":"v3"`))
	group := schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v3"}
	if r := w.Current().Lookup(group.WithResource("roles")); r == nil || r.Table() != "custom/roles.rbac.authorization.k8s.io" {
		t.Errorf("another version of a built-in group: %v", r)
	}
}

// BenchmarkFollow is one changed definition beside 2,000.
func BenchmarkFollow(b *testing.B) {
	w := newWorld(b)
	for i := range 2000 {
		plural := fmt.Sprintf("many%ds", i)
		w.put(plural+".example.com", established(plural, fmt.Sprintf("Many%d", i), "example.com", ""))
	}
	w.Current()
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		n++
		w.put("one.example.com", established("one", fmt.Sprintf("One%d", n), "example.com", ""))
		b.StartTimer()
		w.Current()
	}
}

// BenchmarkAcceptNames is what the leader does with 2,000 definitions that are as they
// ought to be.
func BenchmarkAcceptNames(b *testing.B) {
	w := newWorld(b)
	for i := range 2000 {
		plural := fmt.Sprintf("many%ds", i)
		w.put(plural+".example.com", established(plural, fmt.Sprintf("Many%d", i), "example.com", ""))
	}
	definitions := w.Definitions()
	b.ReportAllocs()
	for b.Loop() {
		if d := crd.AcceptNames(definitions, time.Now()); len(d) != 0 {
			b.Fatalf("%d decisions", len(d))
		}
	}
}
