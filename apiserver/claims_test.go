package apiserver_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// Of many requests for one port or address, and for more ports than there are,
// each thing is given to one Service.
func TestClaimsAreExclusive(t *testing.T) {
	e := newEnv(t, nil)
	const writers = 64
	var mu sync.Mutex
	owners := map[string][]string{}
	codes := map[int]int{}
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			body := fmt.Sprintf(`{"metadata":{"name":"s%d"},"spec":{"type":"NodePort","ports":[{"port":80}]}}`, i)
			if i%2 == 0 {
				body = fmt.Sprintf(`{"metadata":{"name":"s%d"},"spec":{"type":"NodePort","clusterIP":"10.0.0.40","ports":[{"port":80,"nodePort":31000}]}}`, i)
			}
			w, answer := e.do(http.MethodPost, "/api/v1/namespaces/default/services", nil, body)
			mu.Lock()
			defer mu.Unlock()
			codes[w.StatusCode]++
			if w.StatusCode != http.StatusCreated {
				return
			}
			spec, _ := field(t, answer, "spec").(map[string]any)
			ip, _ := spec["clusterIP"].(string)
			port := fmt.Sprint(spec["ports"].([]any)[0].(map[string]any)["nodePort"])
			owners[ip] = append(owners[ip], fmt.Sprint("s", i))
			owners[port] = append(owners[port], fmt.Sprint("s", i))
		})
	}
	wg.Wait()
	for what, who := range owners {
		if len(who) > 1 {
			t.Errorf("%s belongs to %v", what, who)
		}
	}
	// Half of them want the same address: at most one can have it, and at least
	// one does unless another was given it by chance.
	if codes[http.StatusCreated] < writers/2 || codes[http.StatusCreated]+codes[http.StatusUnprocessableEntity] != writers {
		t.Errorf("answers: %v", codes)
	}
	e.sameClaims()
}

// TestClaimsOfThoseWhoHangUp: a client that goes while its Service is made leaves no rows without one.
func TestClaimsOfThoseWhoHangUp(t *testing.T) {
	e := newEnv(t, nil)
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*100*time.Microsecond)
			defer cancel()
			body := fmt.Sprintf(`{"metadata":{"name":"s%d"},"spec":{"type":"NodePort","ports":[{"port":80}]}}`, i)
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url+"/api/v1/namespaces/default/services", strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			if w, err := e.client.Do(r); err == nil {
				w.Body.Close()
			}
		})
	}
	wg.Wait()
	must.Await(t, patience, "rows of Services that are there, and of no others", e.claimsDiffer)
}

// sameClaims compares the rows with the Services.
func (e *env) sameClaims() {
	e.t.Helper()
	if d := e.claimsDiffer(); d != "" {
		e.t.Error(d)
	}
}

// claimsDiffer says which rows and Services do not belong together.
func (e *env) claimsDiffer() (differ string) {
	e.t.Helper()
	_, services := e.do(http.MethodGet, "/api/v1/services", nil, "")
	items, _ := field(e.t, services, "items").([]any)
	want := map[string]bool{}
	for _, i := range items {
		spec, _ := i.(map[string]any)["spec"].(map[string]any)
		if ip, ok := spec["clusterIP"].(string); ok && ip != "None" {
			want["ip "+ip] = true
		}
		list, _ := spec["ports"].([]any)
		for _, p := range list {
			if n := p.(map[string]any)["nodePort"]; n != nil {
				want["port "+fmt.Sprint(n)] = true
			}
		}
	}
	got := map[string]bool{}
	for prefix, table := range map[string]string{"ip ": "ipaddresses.networking.k8s.io", "port ": "quorate/nodeports"} {
		for _, key := range e.keys(table) {
			got[prefix+key] = true
		}
	}
	for k := range want {
		if !got[k] {
			differ += k + " is not claimed\n"
		}
	}
	for k := range got {
		if !want[k] {
			differ += k + " is claimed for nothing\n"
		}
	}
	return differ
}

// keys are the live keys of a table.
func (e *env) keys(table string) (keys []string) {
	e.t.Helper()
	state := e.store.State()
	t := state.Table(table)
	if t == nil {
		return nil
	}
	page, err := t.Range(mvcc.Query{At: state.Applied()})
	must.OK(e.t, err)
	for _, v := range page.Versions {
		keys = append(keys, v.Key)
	}
	return keys
}
