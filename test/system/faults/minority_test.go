package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// TestMinority kills two of three nodes. The survivor says so, serves what needs
// no quorum, refuses the rest soon and clearly, and needs no restart to recover.
func TestMinority(t *testing.T) {
	cluster.SkipInShort(t, "it measures how long a fault lasts")
	c := cluster.Start(t, 3)
	leader := c.Leader(t)
	survivor := c.Others(leader)[0]
	gone := c.Others(survivor)
	const path = "/api/v1/namespaces/default/configmaps"
	cluster.AwaitFurnished(t, survivor, "default")
	survivor.Kubectl(t, "create", "configmap", "before")
	before, err := survivor.Typed(t).CoreV1().ConfigMaps("default").Get(t.Context(), "before", metav1.GetOptions{})
	must.OK(t, err)
	watch := cluster.StartWatch(t, survivor, "default", before.ResourceVersion)
	pid := survivor.PID
	c.Kill(t, gone...)

	cluster.Await(t, 10*time.Second, "quorate status says that there is no quorum", func() string {
		out, err := c.TryQuorate(t, "status", "--context", "quorate-"+survivor.Name, "--kubeconfig", c.Kubeconfig)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 3 {
			return fmt.Sprintf("exit code of %v, want 3: %s", err, out)
		}
		if !strings.Contains(out, "NO QUORUM") || strings.Count(out, "unreachable") != 2 {
			return out
		}
		return ""
	})
	if body := string(survivor.MustGet(t, path+"/before?resourceVersion=0")); !strings.Contains(body, before.ResourceVersion) {
		t.Errorf("an Any read says %s", body)
	}
	if list := string(survivor.MustGet(t, path+"?resourceVersion=0")); !strings.Contains(list, `"before"`) {
		t.Errorf("an Any list says %s", list)
	}
	cluster.Await(t, 10*time.Second, "an Any read says that it may be stale", func() string {
		_, resp, err := survivor.Get(t, path+"?resourceVersion=0")
		if err != nil {
			return err.Error()
		}
		if stale := resp.Header.Get("X-Quorate-Staleness"); cluster.Revision(t, stale) < 100 {
			return "X-Quorate-Staleness is " + stale
		}
		return ""
	})
	var calls sync.WaitGroup
	for _, call := range []struct{ what, method, path, body string }{
		{"a create", http.MethodPost, path, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"refused"}}`},
		{"a dry run of a create", http.MethodPost, path + "?dryRun=All", `{"metadata":{"name":"refused"}}`},
		{"a patch", http.MethodPatch, path + "/before", `{"data":{"k":"v"}}`},
		{"a delete", http.MethodDelete, path + "/before", ""},
		{"a Most Recent get", http.MethodGet, path + "/before", ""},
		{"a Most Recent list", http.MethodGet, path, ""},
	} {
		calls.Go(func() { refusedSoon(t, survivor, call.what, call.method, call.path, call.body) })
	}
	calls.Wait()
	for _, args := range [][]string{{"get", "configmap", "before"}, {"create", "configmap", "refused"}, {"get", "configmaps", "--watch"}} {
		began := time.Now()
		out := survivor.TryKubectl(t, nil, "", args...)
		//wall: what people are promised without a quorum
		if took := time.Since(began); out.Code == 0 || took > saidWithin || !strings.Contains(out.Stderr, "no quorum: of 3 voters "+survivor.Name+" answers, and 2 are needed") {
			t.Errorf("kubectl %v after %s: %+v", args, took, out)
		}
	}
	survivor.Kubectl(t, "version")
	if body, resp, err := survivor.Get(t, "/livez"); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("livez without a quorum: %v %s", err, body)
	}
	if _, resp, err := survivor.Get(t, "/readyz"); err != nil || resp.StatusCode == http.StatusOK {
		t.Errorf("readyz says that a node without a quorum is ready (%v)", err)
	}

	// One comes back: that is a quorum. The survivor goes on as it is.
	c.Restart(t, gone[0])
	created := strings.TrimSpace(survivor.Kubectl(t, "create", "configmap", "after", "-o", "jsonpath={.metadata.resourceVersion}"))
	if events := watch.Until(t, created); len(events) != 1 {
		t.Errorf("the watch that hung on the survivor saw %+v, want the new object alone", events)
	}
	c.Restart(t, gone[1])
	cluster.SameStates(t, c)
	if survivor.PID != pid || !survivor.Running() {
		t.Errorf("the survivor's process was %d and is %d", pid, survivor.PID)
	}
	if list := survivor.Kubectl(t, "get", "configmaps", "-o", "name"); list != "configmap/after\nconfigmap/before\nconfigmap/"+cluster.RootsName+"\n" {
		t.Errorf("in the end there are:\n%s", list)
	}
}

// refusedSoon expects a 5xx Status that says who is missing for a quorum, in time. Its Retry-After has no seconds,
// for which client-go would try again ten times before it says so.
func refusedSoon(t *testing.T, n *cluster.Node, what, method, path, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, n.API+path, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return
	}
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	began, clock := time.Now(), cluster.StartStopwatch()
	resp, err := n.HTTP(t).Do(req)
	if err != nil {
		t.Errorf("%s without a quorum: %v", what, err)
		return
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("%s without a quorum: %v", what, err)
		return
	}
	//wall: what clients are promised without a quorum
	if took, allowed := time.Since(began), clock.Allowed(honestWithin); took > allowed {
		t.Errorf("%s without a quorum was answered after %s, allowed are %s", what, took, allowed)
	}
	var status metav1.Status
	if err := json.Unmarshal(answer, &status); err != nil {
		t.Errorf("%s without a quorum: %s: %s", what, resp.Status, answer)
		return
	}
	if status.Kind != "Status" || status.Status != "Failure" || resp.StatusCode < 500 ||
		status.Details == nil || !isTime(resp.Header.Get("Retry-After")) || !lacksQuorum(status) {
		t.Errorf("%s without a quorum: %s, Retry-After %q, %s", what, resp.Status, resp.Header.Get("Retry-After"), answer)
	}
}

// isTime reports whether a Retry-After has a time, and not seconds.
func isTime(header string) bool {
	_, err := http.ParseTime(header)
	return err == nil
}

// lacksQuorum reports whether a Status says that a quorum is missing, and what of it.
func lacksQuorum(s metav1.Status) bool {
	return s.Details != nil && slices.ContainsFunc(s.Details.Causes, func(c metav1.StatusCause) bool { return c.Type == "NoQuorum" }) &&
		strings.Contains(s.Message, ": the cluster has no quorum: of 3 voters n") && strings.Contains(s.Message, " does not answer")
}
