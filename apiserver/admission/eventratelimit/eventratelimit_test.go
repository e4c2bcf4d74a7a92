package eventratelimit

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission"
)

const head = "apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Configuration\n"

func event(user, namespace, component string) *admission.Attributes {
	a := &admission.Attributes{Operation: admission.Create, Namespace: namespace, User: &auth.User{Name: user},
		Object: map[string]any{"source": map[string]any{"component": component}, "involvedObject": map[string]any{"name": "o"}}}
	a.Kind.Version, a.Kind.Kind = "v1", "Event"
	a.Resource.Version, a.Resource.Resource = "v1", "events"
	return a
}

// TestLimits: each case says who asks, and "+1s" that time passes; ! is a refusal.
func TestLimits(t *testing.T) {
	for _, c := range []struct{ name, limits, asks, refusal string }{
		{"the server has one bucket", "[{type: Server, qps: 1, burst: 3}]",
			"a/n/c a/m/d b/n/e !a/n/c +1s a/n/c !a/n/c +5s a/n/c a/n/c a/n/c !a/n/c", "limit reached on type Server for key "},
		{"each namespace has one", "[{type: Namespace, qps: 1, burst: 2, cacheSize: 10}]",
			"a/n/c b/n/c !a/n/c a/m/c a/m/c !a/m/c +1s a/n/c a/m/c !a/m/c", "limit reached on type Namespace for key m"},
		{"each user has one", "[{type: User, qps: 1, burst: 1}]",
			"a/n/c !a/m/c b/n/c !b/n/d", "limit reached on type User for key b"},
		{"what an Event is of and about has one", "[{type: SourceAndObject, qps: 1, burst: 1}]",
			"a/n/c a/n/d !b/m/c !a/n/d", "limit reached on type SourceAndObject for key do"},
		{"the bucket that was asked longest ago is forgotten", "[{type: Namespace, qps: 1, burst: 2, cacheSize: 2}]",
			// C takes the place of b, which begins again with a full one.
			"u/a/x u/a/x u/b/x u/b/x !u/a/x u/c/x !u/a/x u/b/x u/b/x !u/b/x", "limit reached on type Namespace for key b"},
		{"all limits count", "[{type: Server, qps: 1, burst: 3}, {type: User, qps: 1, burst: 1}]",
			"a/n/c !a/n/c b/n/c !c/n/c !c/n/c", "[limit reached on type Server for key , limit reached on type User for key c]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := time.Unix(0, 0)
			p, err := newAt(strings.NewReader(head+"limits: "+c.limits), func() time.Time { return now })
			if err != nil {
				t.Fatal(err)
			}
			last := ""
			for i, ask := range strings.Fields(c.asks) {
				if after, ok := strings.CutPrefix(ask, "+"); ok {
					d, err := time.ParseDuration(after)
					if err != nil {
						t.Fatal(err)
					}
					now = now.Add(d)
					continue
				}
				ask, refused := strings.CutPrefix(ask, "!")
				parts := strings.Split(ask, "/")
				err := p.Validate(t.Context(), event(parts[0], parts[1], parts[2]))
				if (err != nil) != refused {
					t.Fatalf("%d, %s: %v", i, ask, err)
				}
				if err != nil {
					last = strings.TrimPrefix(err.Error(), "Too many requests: ")
				}
			}
			if last != c.refusal {
				t.Errorf("the last refusal is %q, want %q", last, c.refusal)
			}
		})
	}
}

// TestKeys: each part of what an Event is of and about makes another bucket.
func TestKeys(t *testing.T) {
	seen := map[string]string{}
	for _, path := range []string{"", "source component", "source host", "involvedObject kind", "involvedObject namespace", "involvedObject name", "involvedObject uid", "involvedObject apiVersion"} {
		a := event("u", "n", "")
		a.Object["involvedObject"] = map[string]any{}
		if outer, inner, ok := strings.Cut(path, " "); ok {
			a.Object[outer] = map[string]any{inner: path}
		}
		key := ofSourceAndObject.keyOf(a)
		if other, twice := seen[key]; twice {
			t.Errorf("%q and %q have one key", path, other)
		}
		seen[key] = path
	}
	if ofUser.keyOf(&admission.Attributes{}) != "" || ofServer.keyOf(event("u", "n", "c")) != "" {
		t.Error("there is a key of nothing")
	}
}

// TestHandles: only Events of the core group that are written for good.
func TestHandles(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(a *admission.Attributes)
		want   bool
	}{
		{"a create", func(*admission.Attributes) {}, true},
		{"an update", func(a *admission.Attributes) { a.Operation = admission.Update }, true},
		{"a deletion", func(a *admission.Attributes) { a.Operation = admission.Delete }, false},
		{"a dry run", func(a *admission.Attributes) { a.DryRun = true }, false},
		{"another kind", func(a *admission.Attributes) { a.Kind.Kind = "Pod" }, false},
		{"the other group", func(a *admission.Attributes) { a.Kind.Group = "events.k8s.io" }, false},
	} {
		a := event("u", "n", "c")
		c.change(a)
		if got := (&plugin{}).Handles(a); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

// TestBounded: there are never more buckets than the limit says, whatever clients choose as keys.
func TestBounded(t *testing.T) {
	b := newBuckets(&limit{Type: ofUser, QPS: 1, Burst: 1, CacheSize: 3})
	for i := range 100 {
		if !b.take(strings.Repeat("x", 1000)+fmt.Sprint(i), time.Unix(0, 0)) {
			t.Fatalf("a new bucket is not full")
		}
		if len(b.byKey) != b.order.Len() || b.order.Len() > 3 {
			t.Fatalf("%d buckets, %d keys", b.order.Len(), len(b.byKey))
		}
	}
}

func TestConfiguration(t *testing.T) {
	for _, c := range []struct{ name, config, want string }{
		{"good", head + "limits: [{type: Server, qps: 1, burst: 1, cacheSize: -1}]", ""},
		{"JSON", `{"apiVersion":"eventratelimit.admission.k8s.io/v1alpha1","kind":"Configuration","limits":[{"type":"User","qps":1,"burst":1}]}`, ""},
		{"none", "", "limits: Invalid value: null: must not be empty"},
		{"no limits", head, "limits: Invalid value: null: must not be empty"},
		{"no kind", "limits: []", "Object 'Kind' is missing in 'limits: []'"},
		{"another kind", "apiVersion: v1\nkind: Pod", `no kind "Pod" is registered for version "v1" in scheme "`},
		{"another type", head + "limits: [{type: Node, qps: 1, burst: 1}]", `limits[0].type: Unsupported value: "Node": supported values: "Namespace", "Server", "SourceAndObject", "User"`},
		{"numbers", head + "limits: [{type: User, qps: 0, burst: -1, cacheSize: -1}]", "[limits[0].burst: Invalid value: -1: must be positive, limits[0].qps: Invalid value: 0: must be positive, limits[0].cacheSize: Invalid value: -1: must not be negative]"},
		{"an unknown field", head + "limits: [{type: User, qps: 1, burst: 1, cachesize: 1}]", `strict decoding error: unknown field "limits[0].cachesize"`},
	} {
		var config io.Reader
		if c.config != "" {
			config = strings.NewReader(c.config)
		}
		_, err := New(config)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
	if n := (&limit{Type: ofUser}).buckets(); n != defaultCacheSize {
		t.Errorf("%d buckets by default", n)
	}
}

func FuzzConfiguration(f *testing.F) {
	f.Add([]byte(head + "limits: [{type: Server, qps: 1, burst: 1}]"))
	f.Add([]byte(`{"kind":"Configuration"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := load(strings.NewReader(string(raw)))
		if err != nil {
			return
		}
		if len(c.Limits) == 0 {
			t.Fatal("no limits")
		}
		for i := range c.Limits {
			if l := &c.Limits[i]; l.buckets() <= 0 || l.QPS <= 0 || l.Burst <= 0 {
				t.Fatalf("%+v", l)
			}
		}
	})
}
