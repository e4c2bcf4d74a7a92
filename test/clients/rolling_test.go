package clients

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/test"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const namespace = "clients"

// TestRollingRestart restarts all nodes while writers write and clients of all
// kinds follow. No client may have to read a collection again, and none may
// miss, repeat or reorder an event.
func TestRollingRestart(t *testing.T) {
	t.Run("SIGTERM", func(t *testing.T) {
		r := begin(t)
		r.oneByOne(t, (*test.Cluster).Stop)
		r.noDetour(t)
		r.agree(t)
		r.finish(t)
	})
	t.Run("SIGKILL", func(t *testing.T) {
		r := begin(t)
		r.oneByOne(t, (*test.Cluster).Kill)
		r.agree(t)
		r.finish(t)
	})
	// Nobody waits for the clients: a node is ready, and the next is killed.
	t.Run("hasty SIGKILL", func(t *testing.T) {
		r := begin(t)
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
	// Two nodes stay away: the one that is there cannot know how much it has missed.
	t.Run("no quorum for a while", func(t *testing.T) {
		r := begin(t)
		r.settle(t)
		nodes := r.c.Nodes()
		r.c.Kill(t, nodes...)
		r.c.StartAgain(t, nodes[0])
		<-time.After(2 * quorumless)
		r.c.StartAgain(t, nodes[1])
		r.c.StartAgain(t, nodes[2])
		r.restarts += len(nodes)
		for _, n := range nodes {
			n.AwaitReady(t)
		}
		r.settle(t)
		r.toldToWait(t, "on "+nodes[0].Name)
		r.finish(t)
	})
}

// quorumless is longer than a node without a quorum waits before it answers.
const quorumless = 5 * time.Second

// oneByOne restarts every node. Before the next one, all clients follow again, so
// that what is counted at its end is complete.
func (r *rolling) oneByOne(t *testing.T, stop func(*test.Cluster, testing.TB, ...*test.Node)) {
	t.Helper()
	for _, n := range r.c.Nodes() {
		r.settle(t)
		r.servers.end(t, n)
		stop(r.c, t, n)
		r.c.Restart(t, n)
		r.restarts++
	}
	r.settle(t)
}

// rolling is one run of the test.
type rolling struct {
	c        *test.Cluster
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
func begin(t *testing.T) *rolling {
	t.Helper()
	c := test.Start(t, 3)
	nodes := c.Nodes()
	nodes[0].Kubectl(t, "create", "namespace", namespace)
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

// agree compares what the clients and the servers have counted, at a moment in
// which no watch begins or ends.
func (r *rolling) agree(t *testing.T) {
	t.Helper()
	v, s := r.verbs(), r.servers.total(t)
	if s.lists != v[list] || s.watches != v[watch]+v[watchList] {
		t.Errorf("the servers have counted %v; the clients %v", s, v)
	}
}

// settleChanges is how much happens between two restarts, at least.
const settleChanges = 250

// settle waits for some more changes, and then until every client has seen an
// event that is newer than that moment.
func (r *rolling) settle(t *testing.T) {
	t.Helper()
	r.writers.await(t, settleChanges)
	mark := test.Revision(t, r.mark(t, configMaps))
	for _, x := range r.clients {
		for _, k := range written {
			test.Await(t, 60*time.Second, x.name+" follows "+k.resource, func() string {
				if last := x.kinds[k.resource].last(); test.Revision(t, last) <= mark {
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

// noRelist fails unless every client did with its first read of each kind, and
// nothing that it tried afterwards was more than a watch to go on.
func (r *rolling) noRelist(t *testing.T) {
	t.Helper()
	for _, x := range r.clients {
		var again int
		first := map[string]bool{}
		for _, q := range x.wire.all() {
			if q.verb != watch {
				if first[q.resource] {
					again++
				}
				first[q.resource] = true
			}
			for _, f := range q.failures {
				t.Errorf("%s: a watch of %s said ERROR: %d %s %s", x.name, q.resource, f.Code, f.Reason, f.Message)
			}
		}
		if gone := x.gone(); again > 0 || gone > 0 {
			t.Errorf("%s has read %d collections again and was told 410 %d times:\n%s", x.name, again, gone, x.story())
		}
		for _, k := range watched {
			if n := x.kinds[k.resource].unknown; n > 0 {
				t.Errorf("%s: %d deletions of %s were found out by comparing", x.name, n, k.resource)
			}
		}
	}
}

// gone is how often a client was told 410, by an answer or in a stream.
func (x *informed) gone() (n int) {
	for _, q := range x.wire.all() {
		if q.code == http.StatusGone {
			n++
		}
		for _, f := range q.failures {
			if f.Code == http.StatusGone {
				n++
			}
		}
	}
	return n
}

func (r *rolling) gone() (n int) {
	for _, x := range r.clients {
		n += x.gone()
	}
	return n
}

// noDetour fails unless every client behind the balancer went on at its first
// attempt: a node that is told to end sends its clients away before it refuses
// them.
func (r *rolling) noDetour(t *testing.T) {
	t.Helper()
	for _, x := range r.clients {
		for _, q := range x.wire.all() {
			if !x.pinned && q.code != 200 {
				t.Errorf("%s has tried in vain:\n%s", x.name, x.story())
				break
			}
		}
	}
}

// toldToWait fails unless a client was answered 429: else it has not asked for a
// revision that its node could not know of.
func (r *rolling) toldToWait(t *testing.T, client string) {
	t.Helper()
	for _, x := range r.clients {
		if !strings.HasSuffix(x.name, client) {
			continue
		}
		for _, q := range x.wire.all() {
			if q.code == http.StatusTooManyRequests {
				return
			}
		}
		t.Errorf("%s was never told to wait:\n%s", x.name, x.story())
	}
}

// history is what the nodes say has happened after the first marker and up to
// the last one: the same on all.
func (r *rolling) history(t *testing.T, k kind, last string) []event {
	t.Helper()
	var history []event
	for i, n := range r.c.Nodes() {
		got := watchUntil(t, n, k, r.first, last)
		if i == 0 {
			history = got
		} else if !slices.Equal(got, history) {
			t.Errorf("%s and %s tell different histories of %s: %s", r.c.Nodes()[0].Name, n.Name, k.resource, difference(history, got))
		}
	}
	return history
}

// asWritten compares the history with the writers' notes, object by object.
func (r *rolling) asWritten(t *testing.T, k kind, history []event) {
	t.Helper()
	happened := map[string][]change{}
	for _, e := range history {
		happened[e.name] = append(happened[e.name], e.change)
	}
	for name, notes := range r.writers.of(k) {
		var want []change
		for _, n := range notes {
			want = append(want, n.change)
		}
		if !slices.Equal(happened[name], want) {
			t.Errorf("%s: the history is not what was written: %s", name, difference(want, happened[name]))
		}
	}
}

// asSeen compares what the handlers of a client saw with the history.
func (r *rolling) asSeen(t *testing.T, k kind, x *informed, history []event) {
	t.Helper()
	rec := x.kinds[k.resource]
	want := history[len(history)-1]
	test.Await(t, 30*time.Second, x.name+" has seen all "+k.resource, func() string {
		if rec.last() != want.revision {
			return fmt.Sprintf("it is at %s, want %s", rec.last(), want.revision)
		}
		return ""
	})
	var got []event
	for _, s := range rec.all() {
		if test.Revision(t, s.revision) > test.Revision(t, r.first) {
			got = append(got, s.event)
		}
	}
	if !slices.Equal(got, history) {
		t.Errorf("%s saw other %s than there were: %s", x.name, k.resource, difference(history, got))
	}
}

// asStored compares a client's store, and what its reconciler saw last, with the
// state of the cluster.
func (r *rolling) asStored(t *testing.T, k kind, x *informed) {
	t.Helper()
	objects, err := r.c.Nodes()[0].Dynamic(t).Resource(k.gvr()).Namespace(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var items []metav1.Object
	for _, o := range objects.Items {
		items = append(items, &o)
	}
	want := revisions(items)
	if got := x.kinds[k.resource].store(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s stores other %s than there are:\n%v\n%v", x.name, k.resource, got, want)
	}
	if x.reconciled == nil {
		return
	}
	test.Await(t, 10*time.Second, x.name+" has reconciled all "+k.resource, func() string {
		if got := x.reconciled()[k.resource]; fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Sprintf("\n%v\n%v", got, want)
		}
		return ""
	})
}

// watchUntil reads the events of a kind on a node, after one revision and up to
// the event with another.
func watchUntil(t *testing.T, n *test.Node, k kind, after, until string) []event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	w, err := n.Dynamic(t).Resource(k.gvr()).Namespace(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: after})
	if err != nil {
		t.Fatalf("%s: watch %s: %v", n.Name, k.resource, err)
	}
	defer w.Stop()
	var events []event
	for e := range w.ResultChan() {
		o, ok := e.Object.(*unstructured.Unstructured)
		if !ok || e.Type == "ERROR" {
			t.Fatalf("%s: a watch of %s from %s said %s %v", n.Name, k.resource, after, e.Type, e.Object)
		}
		events = append(events, eventOf(string(e.Type), o))
		if o.GetResourceVersion() == until {
			return events
		}
	}
	t.Fatalf("%s: a watch of %s from %s ended before %s, after %d events", n.Name, k.resource, after, until, len(events))
	return nil
}

// difference shows where two sequences part.
func difference[T comparable](want, got []T) string {
	i := 0
	for i < min(len(want), len(got)) && want[i] == got[i] {
		i++
	}
	show := func(s []T) string {
		if i < len(s) {
			return fmt.Sprint(s[i:min(i+3, len(s))])
		}
		return "nothing"
	}
	return fmt.Sprintf("%d, want %d; from the %dth on there is %s, want %s", len(got), len(want), i, show(got), show(want))
}
