package writes

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// tried are requests that change something, each of another verb or form.
var tried = []struct{ method, path, contentType, body string }{
	{"POST", "/api/v1/namespaces/dry/configmaps", "", `{"metadata":{"generateName":"new-"}}`},
	{"POST", "/api/v1/namespaces/dry/services", "", `{"metadata":{"name":"s"},"spec":{"type":"NodePort","ports":[{"port":80}]}}`},
	{"POST", "/api/v1/namespaces", "", `{"metadata":{"name":"dry-2"}}`},
	{"POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "", `{"metadata":{"name":"xs.dry.example.com"},"spec":{"group":"dry.example.com","scope":"Namespaced","names":{"kind":"X","plural":"xs"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`},
	{"PUT", "/api/v1/namespaces/dry/configmaps/a", "", `{"metadata":{"name":"a"},"data":{"k":"other"}}`},
	{"PUT", "/apis/coordination.k8s.io/v1/namespaces/dry/leases/made-by-put", "", `{"metadata":{"name":"made-by-put"}}`},
	{"PATCH", "/api/v1/namespaces/dry/configmaps/a", "application/json-patch+json", `[{"op":"add","path":"/data","value":{"k":"other"}}]`},
	{"PATCH", "/api/v1/namespaces/dry/configmaps/a", "application/merge-patch+json", `{"data":{"k":"other"}}`},
	{"PATCH", "/api/v1/namespaces/dry/configmaps/a", "application/strategic-merge-patch+json", `{"data":{"k":"other"}}`},
	{"PATCH", "/api/v1/namespaces/dry/configmaps/a?fieldManager=m", "application/apply-patch+yaml", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"other"}}`},
	{"PATCH", "/api/v1/namespaces/dry/configmaps/applied?fieldManager=m", "application/apply-patch+yaml", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"applied"}}`},
	{"PATCH", "/api/v1/namespaces/dry/pods/p/status", "application/merge-patch+json", `{"status":{"phase":"Running"}}`},
	{"PATCH", "/apis/apps/v1/namespaces/dry/deployments/d/scale", "application/merge-patch+json", `{"spec":{"replicas":7}}`},
	{"POST", "/api/v1/namespaces/dry/pods/p/binding", "", `{"metadata":{"name":"p"},"target":{"kind":"Node","name":"n"}}`},
	{"POST", "/api/v1/namespaces/dry/pods/p/eviction", "", `{"metadata":{"name":"p"}}`},
	{"DELETE", "/api/v1/namespaces/dry/configmaps/a", "", ""},
	{"DELETE", "/api/v1/namespaces/dry/configmaps/held", "", ""},
	{"DELETE", "/apis/apps/v1/namespaces/dry/deployments/d?propagationPolicy=Foreground", "", ""},
	{"DELETE", "/api/v1/namespaces/dry", "", ""},
	{"DELETE", "/api/v1/namespaces/dry/configmaps", "", ""},
}

// TestDryRun tries a request of each kind on the leader and on a follower: each is
// answered as if it were done, and no node's state has changed, not by an entry of the
// log. The first event of watches from before is of what was done after it.
func TestDryRun(t *testing.T) {
	c := cluster.Start(t, 3)
	leader := c.Leader(t)
	follower := c.Others(leader)[0]
	const (
		spec     = `"spec":{"containers":[{"name":"c","image":"i"}]}}`
		template = `{"metadata":{"labels":{"a":"b"}},` + spec
	)
	cluster.Namespace(t, leader, "dry")
	for _, made := range [][2]string{
		{"/api/v1/namespaces/dry/serviceaccounts", `{"metadata":{"name":"robot"}}`},
		{"/api/v1/namespaces/dry/configmaps", `{"metadata":{"name":"a"}}`},
		{"/api/v1/namespaces/dry/configmaps", `{"metadata":{"name":"held","finalizers":["example.com/held"]}}`},
		{"/api/v1/namespaces/dry/pods", `{"metadata":{"name":"p"},` + spec},
		{"/apis/apps/v1/namespaces/dry/deployments", `{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":` + template + `}}`},
	} {
		if code, answer := leader.Send(t, http.MethodPost, made[0], made[1]); code != http.StatusCreated {
			t.Fatalf("%s: %d %s", made[0], code, answer)
		}
	}
	// What the leader's controllers make of a new cluster comes first.
	cluster.AwaitEndpoints(t, c, leader)
	cluster.AwaitFurnished(t, leader, "default")
	// What nodes write by themselves after they are ready: the keys that they sign with.
	for _, n := range c.Nodes() {
		cluster.Await(t, 20*time.Second, n.Name+" signs tokens", func() string {
			status, body := n.Send(t, http.MethodPost, "/api/v1/namespaces/dry/serviceaccounts/robot/token", `{"spec":{}}`)
			if status != http.StatusCreated {
				return fmt.Sprint(status, " ", string(body))
			}
			return ""
		})
	}
	before := quietStates(t, c)
	var events []func() string
	for _, resource := range []string{"/api/v1/configmaps", "/api/v1/pods", "/api/v1/namespaces", "/apis/apps/v1/deployments"} {
		events = append(events, firstEvent(t, follower, resource, before.revision))
	}

	for _, n := range []*cluster.Node{leader, follower} {
		for _, x := range tried {
			sep := "?"
			if strings.Contains(x.path, "?") {
				sep = "&"
			}
			r, err := http.NewRequest(x.method, n.API+x.path+sep+"dryRun=All", strings.NewReader(x.body))
			must.OK(t, err)
			r.Header.Set("Content-Type", "application/json")
			if x.contentType != "" {
				r.Header.Set("Content-Type", x.contentType)
			}
			w, err := n.HTTP(t).Do(r)
			must.OK(t, err)
			answer, err := io.ReadAll(w.Body)
			_ = w.Body.Close()
			if err != nil || w.StatusCode < 200 || w.StatusCode > 299 {
				t.Errorf("%s: %s %s (%s): %d %s (%v)", n.Name, x.method, x.path, x.contentType, w.StatusCode, answer, err)
			}
		}
	}
	if after := quietStates(t, c); after != before {
		t.Errorf("the states were %+v, and are %+v", before, after)
	}
	for _, done := range [][2]string{
		{"/api/v1/namespaces/dry/configmaps", `{"metadata":{"name":"done"}}`},
		{"/api/v1/namespaces/dry/pods", `{"metadata":{"name":"done"},` + spec},
		{"/api/v1/namespaces", `{"metadata":{"name":"done"}}`},
		{"/apis/apps/v1/namespaces/dry/deployments", `{"metadata":{"name":"done"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":` + template + `}}`},
	} {
		if code, answer := leader.Send(t, http.MethodPost, done[0], done[1]); code != http.StatusCreated {
			t.Fatalf("%s: %d %s", done[0], code, answer)
		}
	}
	for _, next := range events {
		if e := next(); !strings.Contains(e, `"name":"done"`) {
			t.Errorf("an event of nothing that was done: %s", e)
		}
	}
}

// states are what all nodes have.
type states struct{ revision, hash string }

// quietStates waits until all nodes have the same state, and have it still some time
// later.
func quietStates(t *testing.T, c *cluster.Cluster) (same states) {
	t.Helper()
	var last states
	cluster.Await(t, 30*time.Second, "nothing is written", func() string {
		all := map[states]bool{}
		for _, n := range c.Nodes() {
			revision, hash := n.StateHash(t)
			same = states{revision, hash}
			all[same] = true
		}
		if len(all) > 1 || same != last {
			last = same
			return fmt.Sprint(all)
		}
		return ""
	})
	return same
}

// firstEvent opens a watch and returns a function that waits for its first event.
func firstEvent(t *testing.T, n *cluster.Node, path, revision string) func() string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, n.API+path+"?watch=1&resourceVersion="+revision, nil)
	must.OK(t, err)
	w, err := n.HTTP(t).Do(r)
	must.OK(t, err)
	t.Cleanup(func() { _ = w.Body.Close() })
	return func() string {
		line, err := bufio.NewReader(w.Body).ReadString('\n')
		if err != nil {
			t.Errorf("watch %s: %v", path, err)
		}
		return line
	}
}
