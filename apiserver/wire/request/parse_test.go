package request

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"testing"
)

// ParseInfo parses into a new Info.
func ParseInfo(r *http.Request) (info Info, ok bool) {
	ok = info.Parse(r)
	return info, ok
}

func TestParseInfo(t *testing.T) {
	for _, x := range []struct {
		method, path, query string
		want                Info
		bad                 bool
	}{
		{method: "GET", path: "/api/v1/pods", want: Info{IsResource: true, Verb: "list", Version: "v1", Resource: "pods"}},
		{method: "GET", path: "/api/v1/pods", query: "watch=1", want: Info{IsResource: true, Verb: "watch", Version: "v1", Resource: "pods"}},
		{method: "GET", path: "/api/v1/pods", query: "watch=false", want: Info{IsResource: true, Verb: "list", Version: "v1", Resource: "pods"}},
		{method: "GET", path: "/api/v1/pods", query: "%77atch=1", want: Info{IsResource: true, Verb: "watch", Version: "v1", Resource: "pods"}},
		{method: "GET", path: "/api/v1/pods", query: "watch=%66alse&watch=1", want: Info{IsResource: true, Verb: "list", Version: "v1", Resource: "pods"}},
		{method: "GET", path: "/api/v1/pods", query: "watch=%30", want: Info{IsResource: true, Verb: "list", Version: "v1", Resource: "pods"}},
		{method: "GET", path: "/api/v1/pods", query: "watch=1;x&watch=%zz&watch", want: Info{IsResource: true, Verb: "watch", Version: "v1", Resource: "pods"}},
		{method: "GET", path: "/api/v1/pods", query: "watch=1;x", want: Info{IsResource: true, Verb: "list", Version: "v1", Resource: "pods"}},
		{method: "GET", path: "/api/v1/namespaces/n/pods/p", query: "watch=1", want: Info{IsResource: true, Verb: "get", Version: "v1", Resource: "pods", Namespace: "n", Name: "p"}},
		{method: "PUT", path: "/apis/apps/v1/namespaces/n/deployments/d/scale", want: Info{IsResource: true, Verb: "update", Group: "apps", Version: "v1", Resource: "deployments", Subresource: "scale", Namespace: "n", Name: "d"}},
		{method: "GET", path: "/api/v1/namespaces/n", want: Info{IsResource: true, Verb: "get", Version: "v1", Resource: "namespaces", Namespace: "n", Name: "n", OwnNamespace: true}},
		{method: "PUT", path: "/api/v1/namespaces/n/finalize", want: Info{IsResource: true, Verb: "update", Version: "v1", Resource: "namespaces", Subresource: "finalize", Namespace: "n", Name: "n", OwnNamespace: true}},
		{method: "GET", path: "/api/v1/namespaces/n/pods/p/proxy/a/b", want: Info{IsResource: true, Verb: "get", Version: "v1", Resource: "pods", Subresource: "proxy", Namespace: "n", Name: "p", trailing: "a/b"}},
		{method: "GET", path: "/api/v1/watch/namespaces/n/pods", want: Info{IsResource: true, Verb: "watch", Version: "v1", Resource: "pods", Namespace: "n", legacyWatch: true}},
		{method: "DELETE", path: "/api/v1/nodes", want: Info{IsResource: true, Verb: "deletecollection", Version: "v1", Resource: "nodes"}},
		{method: "GET", path: "/apis/apps/v1", want: Info{Verb: "get"}},
		{method: "GET", path: "/apis//v1/pods", want: Info{Verb: "get"}},
		{method: "GET", path: "/api//pods", want: Info{Verb: "get"}},
		{method: "GET", path: "/apis/apps//pods", want: Info{Verb: "get"}},
		{method: "GET", path: "/api", want: Info{Verb: "get"}},
		{method: "GET", path: "/livez/ping", want: Info{Verb: "get"}},
		{method: "GET", path: "/api/v1/namespaces//pods", bad: true},
		{method: "GET", path: "/api/v1/namespaces/../pods", bad: true},
	} {
		r := &http.Request{Method: x.method, URL: &url.URL{Path: x.path, RawQuery: x.query}}
		got, ok := ParseInfo(r)
		x.want.Path = x.path
		if ok == x.bad || ok && !reflect.DeepEqual(got, x.want) {
			t.Errorf("%s %s?%s: %+v %v, want %+v", x.method, x.path, x.query, got, ok, x.want)
		}
	}
}

// TestReadSelector: what permissions follow from is what is answered.
func TestReadSelector(t *testing.T) {
	for _, x := range []struct{ method, path, query, name, fields string }{
		{"GET", "/api/v1/pods", "fieldSelector=spec.nodeName%3Da,metadata.name%3Dp", "p", "[{= metadata.name p} {= spec.nodeName a}]"},
		{"GET", "/api/v1/pods", "watch=1&fieldSelector=spec.nodeName!%3Da", "", "[{!= spec.nodeName a}]"},
		{"GET", "/api/v1/pods", "fieldSelector=metadata.name%3Da%2Fb", "", "[{= metadata.name a/b}]"},
		{"DELETE", "/apis/resource.k8s.io/v1/resourceslices", "fieldSelector=spec.nodeName==a,metadata.name=b", "", "[{= metadata.name b} {= spec.nodeName a}]"},
		{"GET", "/api/v1/pods", "fieldSelector=spec.nodeName%3Da&fieldSelector=spec.nodeName%3Db", "", "[{= spec.nodeName a}]"},
		{"GET", "/api/v1/pods", "field%53elector=spec.nodeName%3Da", "", "[{= spec.nodeName a}]"},
		{"GET", "/api/v1/pods", "%66ieldSelector=metadata.name!=p&fieldSelector=metadata.name=p", "", "[{!= metadata.name p}]"},
		{"GET", "/api/v1/pods", "fieldSelector=a=b=c,,", "", "[]"},
		{"GET", "/api/v1/pods", "fieldSelector=%zz", "", "[]"},
		{"GET", "/api/v1/pods", "x=fieldSelector=spec.nodeName", "", "[]"},
		{"GET", "/api/v1/namespaces/n/pods/p", "fieldSelector=spec.nodeName%3Da", "", "[]"},
		{"GET", "/api/v1/watch/pods", "fieldSelector=spec.nodeName%3Da", "", "[]"},
		{"POST", "/api/v1/namespaces/n/pods", "fieldSelector=spec.nodeName%3Da", "", "[]"},
	} {
		r := &http.Request{Method: x.method, URL: &url.URL{Path: x.path, RawQuery: x.query}}
		info, ok := ParseInfo(r)
		info.ReadSelector(x.query)
		if got := fmt.Sprint(info.FieldSelector); !ok || info.Selected != x.name || got != x.fields {
			t.Errorf("%s %s?%s: %q %s", x.method, x.path, x.query, info.Selected, got)
		}
	}
}

func TestObjectPath(t *testing.T) {
	for _, path := range []string{"/api/v1/nodes/n", "/api/v1/namespaces/n/pods/p", "/apis/apps/v1/namespaces/n/deployments/d", "/apis/g/v1/things/t"} {
		info, ok := ParseInfo(&http.Request{Method: "DELETE", URL: &url.URL{Path: path}})
		if got := info.ObjectPath(); !ok || got != path {
			t.Errorf("the path of the object at %s is %s", path, got)
		}
	}
}

func TestParseInfoAllocates(t *testing.T) {
	r := &http.Request{Method: "GET", URL: &url.URL{Path: "/apis/apps/v1/namespaces/n/deployments/d/status"}}
	if n := testing.AllocsPerRun(100, func() { ParseInfo(r) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzParseInfo(f *testing.F) {
	for _, path := range []string{"/api/v1/pods", "/apis/a/b/c/d/e/f", "/api/v1/watch/namespaces/n/x/y/z", "/api//", "/apis/g/v/namespaces/"} {
		f.Add("GET", path, "watch=1&x=%zz")
	}
	f.Fuzz(func(t *testing.T, method, path, query string) {
		info, ok := ParseInfo(&http.Request{Method: method, URL: &url.URL{Path: path, RawQuery: query}})
		if !ok || !info.IsResource {
			return
		}
		if info.Version == "" || info.Resource == "" {
			t.Errorf("%q: a resource without version or name: %+v", path, info)
		}
		for _, s := range []string{info.Namespace, info.Name, info.Resource} {
			if s == ".." || s == "." {
				t.Errorf("%q climbs: %+v", path, info)
			}
		}
	})
}

func FuzzParseOptions(f *testing.F) {
	for _, q := range []string{
		"resourceVersion=1&limit=2&continue=x", "labelSelector=a%3Db&fieldSelector=c+d", "limit=%zz",
		"dryRun=All&dryRun=All", "timeoutSeconds=-1", "sendInitialEvents=&watch", "limit=1&limit=2", "timeout=1h&gracePeriodSeconds=0&propagationPolicy=x&orphanDependents=1",
	} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		var q Options
		if q.parse(raw, math.MaxUint32) != nil {
			return
		}
		// What is accepted reads as the standard library reads it.
		values, err := url.ParseQuery(raw)
		if err != nil {
			return // it also refuses parameters that nobody here knows
		}
		for _, x := range [][2]string{
			{"resourceVersion", q.ResourceVersion}, {"continue", q.Continue}, {"labelSelector", q.LabelSelector},
			{"fieldSelector", q.FieldSelector}, {"fieldManager", q.FieldManager},
		} {
			if got := values.Get(x[0]); got != x[1] {
				t.Errorf("%q: %s is %q, want %q", raw, x[0], x[1], got)
			}
		}
	})
}

// TestCheckForwarded: what another server could read differently is refused.
func TestCheckForwarded(t *testing.T) {
	for query, bad := range map[string]bool{
		"": false, "watch=1&fieldSelector=a%3Db": false, "command=a&command=b&dryRun=All&dryRun=x": false, "watch=1&%77atch=1": false,
		"watch=1&watch=0": true, "%66ieldSelector=a&fieldSelector=b": true, "field%53elector=&fieldSelector=b": true,
		"limit=1&limit=2": true, "a=1;b=2": true, "a=%zz": true, "%zz=1": true,
	} {
		if err := CheckForwarded(query); (err != nil) != bad {
			t.Errorf("%s: %v", query, err)
		}
	}
}

// FuzzParameter: each name has the value that url.ParseQuery finds first.
func FuzzParameter(f *testing.F) {
	for _, query := range []string{"a=1&b=2", "%61=1&a=2", "a=1;b=2&a=%zz&a=+", "=&a", "a==b&&a=c"} {
		f.Add(query, "a")
	}
	f.Fuzz(func(t *testing.T, query, name string) {
		values, _ := url.ParseQuery(query)
		for _, name := range append(slices.Collect(maps.Keys(values)), name) {
			got, ok := Parameter(query, name)
			if want := values[name]; ok != (len(want) > 0) || ok && got != want[0] {
				t.Errorf("%q of %q: %q %v, want %q", name, query, got, ok, want)
			}
		}
	})
}
