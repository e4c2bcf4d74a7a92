package clients

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const namespace = "clients"

// TestRollingRestart restarts all nodes while writers write and clients of all
// kinds follow. No client may have to read a collection again, and none may
// miss, repeat or reorder an event.
func TestRollingRestart(t *testing.T) {
	t.Run("SIGTERM", func(t *testing.T) {
		r := begin(t)
		r.oneByOne(t, (*cluster.Cluster).Stop)
		r.noDetour(t)
		r.agree(t)
		r.finish(t)
	})
	t.Run("SIGKILL", func(t *testing.T) {
		r := begin(t)
		r.oneByOne(t, (*cluster.Cluster).Kill)
		r.agree(t)
		r.finish(t)
	})
	// Nobody waits for the clients: a node is ready, and the next is killed.
	t.Run("hasty SIGKILL", func(t *testing.T) {
		r := begin(t)
		// client-go reads again when a watch breaks that has said nothing behind its
		// initial events: the server says something after 250 ms.
		<-time.After(time.Second)
		for range 2 {
			for _, n := range r.c.Nodes() {
				r.c.Kill(t, n)
				r.c.Restart(t, n)
				r.restarts++
			}
		}
		r.settle(t)
		r.finish(t)
	})
	// The end of all nodes at once, as when a machine room loses its power.
	t.Run("all at once", func(t *testing.T) {
		r := begin(t)
		for range 2 {
			r.settle(t)
			r.c.Kill(t, r.c.Nodes()...)
			r.c.RestartAll(t)
			r.restarts += len(r.c.Nodes())
		}
		r.settle(t)
		r.finish(t)
	})
	// A node stands still for longer than the log of the others is long: it gets a
	// snapshot while its clients' watches are open.
	t.Run("a pause", func(t *testing.T) {
		r := begin(t, "snapshot-entries=200", "trailing-logs=200", "snapshot-interval=200ms")
		n := r.c.Nodes()[0]
		r.settle(t)
		r.c.Signal(t, syscall.SIGSTOP, n)
		others := r.c.Others(n)
		newest := others[0].Metric(t, "quorate_history_newest")
		r.writers.await(t, 2*settleChanges)
		cluster.AwaitCompacted(t, newest, others...)
		r.c.Signal(t, syscall.SIGCONT, n)
		r.settle(t)
		if n.Metric(t, "quorate_snapshots_installed_total") == 0 {
			t.Errorf("%s needed no snapshot", n.Name)
		}
		r.agree(t)
		r.finish(t)
	})
	// Two nodes stay away: the one that is there cannot know how much it has missed.
	t.Run("no quorum for a while", func(t *testing.T) {
		r := begin(t)
		r.settle(t)
		nodes := r.c.Nodes()
		// A node may have all on disk that its clients have seen: then they have nothing to wait for.
		for behind, tries := false, 0; !behind; tries++ {
			if tries == 5 {
				t.Fatalf("%s has never been behind its clients", nodes[0].Name)
			}
			r.c.Kill(t, nodes...)
			r.c.StartAgain(t, nodes[0])
			<-time.After(2 * quorumless)
			behind = r.behind(t, nodes[0])
			r.c.StartAgain(t, nodes[1])
			r.c.StartAgain(t, nodes[2])
			r.restarts += len(nodes)
			for _, n := range nodes {
				n.AwaitReady(t)
			}
			r.settle(t)
		}
		r.toldToWait(t, "on "+nodes[0].Name)
		r.finish(t)
	})
}

// behind reports whether a node has less than its own client has seen of some kind.
func (r *rolling) behind(t *testing.T, n *cluster.Node) bool {
	t.Helper()
	newest := uint64(n.Metric(t, "quorate_history_newest"))
	for _, x := range r.clients {
		for _, k := range written {
			if strings.HasSuffix(x.name, "on "+n.Name) && cluster.Revision(t, x.kinds[k.resource].last()) > newest {
				return true
			}
		}
	}
	return false
}

// quorumless is longer than a node without a quorum waits before it answers.
const quorumless = 5 * time.Second

// oneByOne restarts every node. Before the next one, all clients follow again, so
// that what is counted at its end is complete.
func (r *rolling) oneByOne(t *testing.T, stop func(*cluster.Cluster, testing.TB, ...*cluster.Node)) {
	t.Helper()
	for _, n := range r.c.Nodes() {
		r.settle(t)
		r.agree(t)
		r.servers.end(t, n)
		stop(r.c, t, n)
		r.c.Restart(t, n)
		r.restarts++
	}
	r.settle(t)
}

// rolling is one run of the test.
type rolling struct {
	c        *cluster.Cluster
	servers  *servers
	writers  *writers
	clients  []*informed
	first    string // the resourceVersion before the first change
	marks    int
	restarts int
	began    time.Time
	took     time.Duration
	initial  map[verb]int
}

// begin starts a cluster, the clients and then the writers.
func begin(t *testing.T, settings ...string) *rolling {
	t.Helper()
	c := cluster.Start(t, 3, settings...)
	nodes := c.Nodes()
	cluster.Namespace(t, nodes[0], namespace)
	r := &rolling{c: c, servers: &servers{c: c}}
	balanced := startBalancer(t, c).url()
	r.writers = newWriters(t, c, balanced)
	r.writers.fill(t)
	r.clients = []*informed{
		startInformers(t, c, "informers with WatchList", balanced, true),
		startInformers(t, c, "informers with lists", balanced, false),
		startManager(t, c, "manager", balanced),
		startInformers(t, c, "informers with WatchList on n1", nodes[0].API, true),
		startInformers(t, c, "informers with lists on n2", nodes[1].API, false),
		startManager(t, c, "manager on n3", nodes[2].API),
	}
	for i, x := range r.clients {
		x.pinned = i >= 3
	}
	r.first = r.mark(t, configMaps)
	r.initial = r.verbs()
	if want := (map[verb]int{list: 2 * len(watched), watch: 2 * len(watched), watchList: 4 * len(watched)}); fmt.Sprint(r.initial) != fmt.Sprint(want) {
		t.Fatalf("to begin with the clients have read %v, want %v", r.initial, want)
	}
	r.agree(t)
	r.writers.start()
	r.began = time.Now()
	return r
}

// mark creates an object that nobody else changes and returns its
// resourceVersion: it is later than everything that was acknowledged before.
func (r *rolling) mark(t *testing.T, k kind) string {
	t.Helper()
	r.marks++
	o, err := r.c.Nodes()[0].Dynamic(t).Resource(k.gvr()).Namespace(namespace).Create(t.Context(),
		k.object(fmt.Sprintf("mark-%d", r.marks), 0), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o.GetResourceVersion()
}

// verbs counts the answered reads of all clients.
func (r *rolling) verbs() map[verb]int {
	sum := map[verb]int{}
	for _, x := range r.clients {
		for _, q := range x.wire.all() {
			if q.code == 200 {
				sum[q.verb]++
			}
		}
	}
	return sum
}

// agree waits until what the clients and the servers have counted is the same: a
// watch of a kind that nobody writes may just be beginning on a server, and has then
// not been answered yet.
func (r *rolling) agree(t *testing.T) {
	t.Helper()
	cluster.Await(t, 20*time.Second, "clients and servers have counted the same", func() string {
		v, s := r.verbs(), r.servers.total(t)
		if s.lists != v[list] || s.watches != v[watch]+v[watchList] {
			return fmt.Sprintf("the servers have counted %v; the clients %v", s, v)
		}
		return ""
	})
}

// settleChanges is how much happens between two restarts, at least.
const settleChanges = 250

// settle waits for some more changes, and then until every client has seen an
// event that is newer than that moment.
func (r *rolling) settle(t *testing.T) {
	t.Helper()
	r.writers.await(t, settleChanges)
	mark := cluster.Revision(t, r.mark(t, configMaps))
	for _, x := range r.clients {
		for _, k := range written {
			cluster.Await(t, 60*time.Second, x.name+" follows "+k.resource, func() string {
				if last := x.kinds[k.resource].last(); cluster.Revision(t, last) <= mark {
					return fmt.Sprintf("it is at %s, the cluster at %d\n%s", last, mark, x.story())
				}
				return ""
			})
		}
	}
}

// story is what a client read since its beginning.
func (x *informed) story() string {
	var b strings.Builder
	for _, q := range x.wire.all() {
		fmt.Fprintf(&b, "  %v\n", &q)
	}
	return b.String()
}

// finish ends the writing and judges.
func (r *rolling) finish(t *testing.T) {
	t.Helper()
	r.writers.finish(t)
	r.took = time.Since(r.began)
	r.noRelist(t)
	for _, k := range written {
		history := r.history(t, k, r.mark(t, k))
		r.asWritten(t, k, history)
		for _, x := range r.clients {
			r.asSeen(t, k, x, history)
			r.asStored(t, k, x)
		}
	}
	r.report(t)
}
