package cluster

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Readers is a cluster for tests of reads: three voters and a non-voter that the
// leader reaches through a link, so that it can be put behind. Its history floor
// has passed its first revisions.
type Readers struct {
	Cluster                    *Cluster
	Leader, Follower, Nonvoter *Node
	Link                       *Link
	Below                      uint64 // a revision that was one, below the floor
	Expired                    string // a continue token of that revision
	ExpiredPath                string // of the list that the token is of
}

// theReaders lives until the end of the run: the reaper ends its processes.
var theReaders struct {
	sync.Mutex
	r *Readers
}

// HistoryRetention of the cluster for reads: what a test wants to read exactly must
// be younger, also where other tests have the processors. What is to be below the floor
// goes there by its bytes, so that nobody waits for this time.
const HistoryRetention = 4 * time.Minute

// SharedReaders returns the shared cluster for tests of reads. Its leader may
// change between tests, not its members.
func SharedReaders(t *testing.T) *Readers {
	t.Helper()
	theReaders.Lock()
	defer theReaders.Unlock()
	if theReaders.r == nil {
		// These tests are not about elections: a machine that stands still for a few
		// seconds must not cause one.
		theReaders.r = newReaders(t, "heartbeat-timeout=15s", "election-timeout=15s", "leader-lease-timeout=15s")
	}
	r := theReaders.r
	r.begin(t)
	return r
}

// StartReaders returns a cluster for one test that does harm to its nodes.
func StartReaders(t *testing.T) *Readers {
	t.Helper()
	r := newReaders(t)
	t.Cleanup(func() {
		if err := r.Cluster.Destroy(); err != nil {
			t.Error(err)
		}
	})
	r.begin(t)
	return r
}

// begin prepares the cluster for a test.
func (r *Readers) begin(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			r.Cluster.ShowLogs(t)
		}
	})
	r.Leader = r.Cluster.Leader(t)
	r.Follower = r.Cluster.Others(r.Leader, r.Nonvoter)[0]
	for _, n := range r.Cluster.Nodes() {
		n.HTTP(t) // made before the test's goroutines share it
	}
}

func newReaders(t *testing.T, settings ...string) *Readers {
	t.Helper()
	// The floor moves soon past what is more than the bytes, and leaves six MiB. That
	// is enough for what the tests write within the retention.
	settings = append(settings, "history-retention="+HistoryRetention.String(), "history-max-bytes=8388608")
	c, err := launch("", 3, settings)
	if err != nil {
		t.Fatal(err)
	}
	r := &Readers{Cluster: c}
	r.Leader = c.Leader(t)
	AwaitFurnished(t, r.Leader, "default")
	client := r.Leader.Typed(t).CoreV1().ConfigMaps("default")
	configMap := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	for i := range 3 {
		if _, err := client.Create(t.Context(), configMap(fmt.Sprintf("expired-%d", i)), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	r.ExpiredPath = "/api/v1/namespaces/default/configmaps"
	var page struct {
		Metadata struct{ ResourceVersion, Continue string }
	}
	if err := json.Unmarshal(r.Leader.MustGet(t, r.ExpiredPath+"?limit=1"), &page); err != nil {
		t.Fatalf("%s: GET %s: %v", r.Leader.Name, r.ExpiredPath, err)
	}
	r.Below, r.Expired = Revision(t, page.Metadata.ResourceVersion), page.Metadata.Continue
	for i := range 12 {
		junk := configMap(fmt.Sprintf("junk-%d", i))
		junk.Data = map[string]string{"junk": strings.Repeat("x", 900<<10)}
		if _, err := client.Create(t.Context(), junk, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := client.Delete(t.Context(), junk.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.Create(t.Context(), configMap("last"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.Nonvoter, r.Link = c.JoinNonvoter(t, "n4")
	Await(t, 60*time.Second, "the history floor passes the first writes on all nodes", func() string {
		for _, n := range c.Nodes() {
			if floor := uint64(n.Metric(t, "quorate_history_floor")); floor <= r.Below {
				return fmt.Sprintf("%s: %d, not above %d", n.Name, floor, r.Below)
			}
		}
		return ""
	})
	return r
}
