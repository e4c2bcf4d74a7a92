package faults

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// honestWithin bounds how long a node without a quorum keeps a caller waiting,
// from the first moment on, however it lost the quorum. A leader that loses its
// followers steps down when its lease of 2 s ends, which Raft looks for up to 10 ms
// later. The rest is for what comes between, also on a quiet machine.
const honestWithin = 2*time.Second + 250*time.Millisecond

// TestQuorumLoss takes the quorum from a leader and from a follower, by kill -9,
// which closes connections, and by SIGSTOP, which does not. From that moment and
// for a while every request is answered in time, and reads of what is there go on:
// also where a non-voter is left, which makes no quorum with the one voter,
// neither for writes nor for the rounds of reads.
func TestQuorumLoss(t *testing.T) {
	cluster.SkipInShort(t, "it measures how long a fault lasts")
	for _, row := range []struct {
		survivor string
		signal   syscall.Signal
	}{
		{"leader", syscall.SIGKILL},
		{"follower", syscall.SIGKILL},
		{"leader", syscall.SIGSTOP},
		{"follower", syscall.SIGSTOP},
		{"leader+nonvoter", syscall.SIGKILL},
		{"leader+nonvoter", syscall.SIGSTOP},
		{"follower+nonvoter", syscall.SIGSTOP},
	} {
		t.Run(fmt.Sprintf("%s/%v", row.survivor, row.signal), func(t *testing.T) {
			t.Parallel()
			settings := []string{}
			if strings.HasSuffix(row.survivor, "+nonvoter") {
				settings = append(settings, cluster.Nonvoters+"1")
			}
			c := cluster.Start(t, 3, settings...)
			voter := c.Leader(t)
			survivors := append([]*cluster.Node{voter}, c.Nodes()[3:]...)
			if strings.HasPrefix(row.survivor, "follower") {
				survivors[0] = c.Others(append(survivors[1:], voter)...)[0]
			}
			survivor := survivors[0]
			survivor.Kubectl(t, "create", "configmap", "before")
			var watches []*cluster.OpenWatch
			for _, n := range survivors {
				n.MustGet(t, cluster.ConfigMaps+"/before") // Most Recent: the node has it now
				watches = append(watches, cluster.StartWatch(t, n, "default", resourceVersion(t, n, "before")))
			}
			lost := c.Others(survivors...)
			for _, n := range lost {
				must.OK(t, syscall.Kill(n.PID, row.signal))
			}
			for _, n := range lost {
				cluster.Await(t, 10*time.Second, n.Name+" does nothing any more", func() string { return still(n) })
			}
			var asked sync.WaitGroup
			for _, n := range survivors {
				asked.Go(func() { t.Logf("%s: the slowest answers: %s", n.Name, askForAWhile(t, n)) })
			}
			asked.Wait()

			// No restart of the survivor: its quorum comes back.
			for _, n := range lost {
				if row.signal == syscall.SIGSTOP {
					must.OK(t, syscall.Kill(n.PID, syscall.SIGCONT))
				} else {
					c.Restart(t, n)
				}
			}
			var after string
			cluster.Await(t, 30*time.Second, "writes go on", func() string {
				status, body := survivor.Send(t, http.MethodPost, cluster.ConfigMaps, `{"metadata":{"name":"after"}}`)
				if status != http.StatusCreated {
					return fmt.Sprintf("%d %s", status, body)
				}
				after = resourceVersion(t, survivor, "after")
				return ""
			})
			for i, w := range watches {
				if events := w.Until(t, after); len(events) == 0 || events[len(events)-1].Name != "after" {
					t.Errorf("the watch that was open on %s all the time saw %+v", survivors[i].Name, events)
				}
			}
			cluster.SameStates(t, c)
		})
	}
}

// still says which thread of a stopped or killed node may still run: a signal
// takes effect some time after it was sent.
func still(n *cluster.Node) string {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", n.PID))
	for _, task := range tasks {
		b, err := os.ReadFile(task)
		if err != nil {
			continue
		}
		// pid (name) state ...
		if state := string(b[strings.LastIndexByte(string(b), ')')+1:]); !strings.HasPrefix(state, " T") && !strings.HasPrefix(state, " Z") {
			return task + ":" + state[:min(3, len(state))]
		}
	}
	return ""
}

// askForAWhile sends each kind of request again and again for longer than an
// election takes, and returns the slowest of each kind.
func askForAWhile(t *testing.T, n *cluster.Node) string {
	t.Helper()
	const cases, each = 7, 12
	slowest := make([]time.Duration, cases)
	names := make([]string, cases)
	var calls sync.WaitGroup
	for round := range each {
		for i, call := range [cases]struct{ what, method, path, body string }{
			{"create", http.MethodPost, cluster.ConfigMaps, fmt.Sprintf(`{"metadata":{"name":"refused-%d"}}`, round)},
			{"update", http.MethodPut, cluster.ConfigMaps + "/before", fmt.Sprintf(`{"metadata":{"name":"before"},"data":{"round":"%d"}}`, round)},
			{"update of the same object", http.MethodPut, cluster.ConfigMaps + "/before", fmt.Sprintf(`{"metadata":{"name":"before"},"data":{"again":"%d"}}`, round)},
			{"get", http.MethodGet, cluster.ConfigMaps + "/before", ""},
			{"list", http.MethodGet, cluster.ConfigMaps, ""},
			{"any get", http.MethodGet, cluster.ConfigMaps + "/before?resourceVersion=0", ""},
			{"any list", http.MethodGet, cluster.ConfigMaps + "?resourceVersion=0", ""},
		} {
			names[i] = call.what
			calls.Go(func() {
				took := answeredSoon(t, n, call.what, call.method, call.path, call.body)
				slowestMu.Lock()
				defer slowestMu.Unlock()
				slowest[i] = max(slowest[i], took)
			})
		}
		<-time.After(500 * time.Millisecond) // the next round, whether or not this one is answered
	}
	calls.Wait()
	var out []string
	for i, name := range names {
		out = append(out, fmt.Sprintf("%s %d ms", name, slowest[i].Milliseconds()))
	}
	return strings.Join(out, ", ")
}

var slowestMu sync.Mutex

// answeredSoon sends a request to a node without a quorum. What needs no quorum
// succeeds; the rest fails in time, as a Status: what certainly did not happen
// says when to try again, what may have happened says so, and does not.
func answeredSoon(t *testing.T, n *cluster.Node, what, method, path, body string) time.Duration {
	began, clock := time.Now(), cluster.StartStopwatch()
	resp, answer, err := n.Do(t, method, path, body)
	took, allowed := time.Since(began), clock.Allowed(honestWithin)
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return took
	}
	//wall: what clients are promised without a quorum
	if took > allowed {
		t.Errorf("%s was answered after %s, allowed are %s: %s", what, took, allowed, answer)
	}
	if strings.Contains(path, "resourceVersion=0") {
		if resp.StatusCode != http.StatusOK || resp.Header.Get("X-Quorate-Staleness") == "" {
			t.Errorf("%s: %s, staleness %q", what, resp.Status, resp.Header.Get("X-Quorate-Staleness"))
		}
		return took
	}
	var status metav1.Status
	if err := json.Unmarshal(answer, &status); err != nil || status.Status != metav1.StatusFailure {
		t.Errorf("%s without a quorum: %s %s", what, resp.Status, answer)
		return took
	}
	retry := resp.Header.Get("Retry-After")
	unknown := method != http.MethodGet && resp.StatusCode == http.StatusGatewayTimeout && strings.Contains(status.Message, "may have happened")
	switch {
	case unknown && retry != "":
		t.Errorf("%s: a client would send again what may have happened: %s", what, answer)
	case !unknown && (retry == "" || isTime(retry) != lacksQuorum(status) || status.Reason != metav1.StatusReasonServerTimeout || status.Details == nil || status.Details.RetryAfterSeconds == 0):
		t.Errorf("%s without a quorum: %s, Retry-After %q: %s", what, resp.Status, retry, answer)
	}
	return took
}

func resourceVersion(t *testing.T, n *cluster.Node, name string) string {
	t.Helper()
	var object metav1.PartialObjectMetadata
	must.OK(t, json.Unmarshal(n.MustGet(t, cluster.ConfigMaps+"/"+name+"?resourceVersion=0"), &object))
	return object.ResourceVersion
}
