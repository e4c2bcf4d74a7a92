package apiserver_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

// TestFullStorage: where the storage limit is reached, what makes objects take more is 507, with words that say
// what to do and no time to try again, and what makes room, or takes little, goes on.
func TestFullStorage(t *testing.T) {
	e := newEnv(t, nil)
	large := strings.Repeat("x", 50<<10)
	for _, name := range []string{"a", "b"} {
		if w, answer := e.do("POST", maps, nil, `{"metadata":{"name":"`+name+`","finalizers":["x.example/f"]},"data":{"k":"`+large+`"}}`); w.StatusCode != 201 {
			t.Fatal(answer)
		}
	}
	const leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
	if w, answer := e.do("POST", leases, nil, `{"metadata":{"name":"l"},"spec":{"holderIdentity":"a"}}`); w.StatusCode != 201 {
		t.Fatal(answer)
	}
	must.OK(t, e.mem.LimitStorage(t.Context(), e.mem.State().Used(), 0))
	merge := http.Header{"Content-Type": {"application/merge-patch+json"}}
	apply := http.Header{"Content-Type": {"application/apply-patch+yaml"}}
	for _, r := range []struct {
		name, method, path string
		header             http.Header
		body               string
		code               int
	}{
		{"create", "POST", maps, nil, `{"metadata":{"name":"c"}}`, 507},
		{"create by PUT", "PUT", leases + "/m", nil, `{"metadata":{"name":"m"}}`, 507},
		{"apply", "PATCH", maps + "/c?fieldManager=x", apply, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}`, 507},
		{"grow", "PATCH", maps + "/b", merge, `{"data":{"l":"` + large + `"}}`, 507},
		{"what is there already", "POST", maps, nil, `{"metadata":{"name":"a"}}`, 409},
		{"invalid", "POST", maps, nil, `{"metadata":{"name":"A"}}`, 422},
		{"a label", "PATCH", maps + "/b", merge, `{"metadata":{"labels":{"a":"b"}}}`, 200},
		{"a lease", "PATCH", leases + "/l", merge, `{"spec":{"holderIdentity":"another"}}`, 200},
		{"the mark of a deletion", "DELETE", maps + "/a", nil, "", 200},
		{"the finalizer", "PATCH", maps + "/a", merge, `{"metadata":{"finalizers":null}}`, 200},
		{"room", "POST", maps, nil, `{"metadata":{"name":"c"}}`, 201},
		{"too much again", "POST", maps, nil, `{"metadata":{"name":"d"},"data":{"k":"` + large + large + `"}}`, 507},
		{"shrink", "PATCH", maps + "/b", merge, `{"data":{"k":"short"}}`, 200},
		{"more room", "POST", maps, nil, `{"metadata":{"name":"d"},"data":{"k":"` + large + `"}}`, 201},
	} {
		w, answer := e.do(r.method, r.path, r.header, r.body)
		if w.StatusCode != r.code {
			t.Fatalf("%s: %d %s, want %d", r.name, w.StatusCode, clip(answer), r.code)
		}
		if r.code != 507 {
			continue
		}
		if again := w.Header.Get("Retry-After"); again != "" || strings.Contains(answer, "retryAfterSeconds") {
			t.Errorf("%s: try again in %q: %s", r.name, again, answer)
		}
		for _, says := range []string{`"reason":"InsufficientStorage"`, `"code":507`, "the storage of the cluster has no room for this", "Delete what is not needed", "--storage-bytes"} {
			if !strings.Contains(answer, says) {
				t.Errorf("%s: %s, without %q", r.name, answer, says)
			}
		}
	}
}
