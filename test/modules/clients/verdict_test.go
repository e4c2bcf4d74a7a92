package clients

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

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
	cluster.Await(t, 30*time.Second, x.name+" has seen all "+k.resource, func() string {
		if rec.last() != want.revision {
			return fmt.Sprintf("it is at %s, want %s", rec.last(), want.revision)
		}
		return ""
	})
	var got []event
	for _, s := range rec.all() {
		if cluster.Revision(t, s.revision) > cluster.Revision(t, r.first) {
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
	cluster.Await(t, 10*time.Second, x.name+" has reconciled all "+k.resource, func() string {
		if got := x.reconciled()[k.resource]; fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Sprintf("\n%v\n%v", got, want)
		}
		return ""
	})
}

// watchUntil reads the events of a kind on a node, after one revision and up to
// the event with another.
func watchUntil(t *testing.T, n *cluster.Node, k kind, after, until string) []event {
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
