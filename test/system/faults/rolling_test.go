package faults

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// TestRollingRestart restarts all nodes in turn under writers and watches, as an upgrade does, and
// then all at once. No acknowledged write is lost, every watch sees every event once, and none has to
// list again.
func TestRollingRestart(t *testing.T) {
	const ns = "load"
	c := cluster.Start(t, 3)
	first := c.Nodes()[0]
	cluster.Namespace(t, first, ns)
	marker, err := first.Typed(t).CoreV1().ConfigMaps(ns).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "marker"}}, metav1.CreateOptions{})
	must.OK(t, err)
	watches := map[*cluster.Node]*resumed{}
	for _, n := range c.Nodes() {
		watches[n] = watchOn(t, n, ns, marker.ResourceVersion)
	}
	load := startLoad(t, ns, 8, c.Nodes())
	load.awaitAcks(300)
	leader := c.Leader(t)
	for _, n := range append(c.Others(leader), leader) {
		before := watches[n].ended()
		c.Stop(t, n)
		c.Restart(t, n)
		load.awaitAcks(300)
		if watches[n].ended() == before {
			t.Errorf("%s was not restarted under its watch: no stream has ended", n.Name)
		}
	}
	load.Stop()
	last, err := first.Typed(t).CoreV1().ConfigMaps(ns).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "last"}}, metav1.CreateOptions{})
	must.OK(t, err)
	history := first.Watch(t, ns, marker.ResourceVersion, last.ResourceVersion)
	cluster.InOrder(t, first.Name, history)
	seesAll(t, load, history)
	resumptions := 0
	for _, n := range c.Nodes() {
		load.verify(t, n)
		cluster.SameEvents(t, "the watch on "+n.Name, watches[n].until(t, last.ResourceVersion), "the history", history)
		resumptions += watches[n].ended()
	}
	cluster.SameStates(t, c)
	c.Kill(t, c.Nodes()...)
	c.RestartAll(t)
	for _, n := range c.Nodes() {
		load.verify(t, n)
	}
	cluster.SameStates(t, c)
	t.Logf("%d writes acknowledged, %d unknown, the slowest call took %d ms; %d events, watches resumed %d times",
		load.acks.Load(), load.unknown.Load(), load.slowest.Milliseconds(), len(history), resumptions)
}

// resumed is a watch that goes on from its last event whenever it ends. It never lists.
type resumed struct {
	node *cluster.Node

	mu     sync.Mutex
	events []cluster.Event
	ends   int // streams that were open and have ended
	failed error
}

func watchOn(t *testing.T, n *cluster.Node, namespace, after string) *resumed {
	t.Helper()
	r := &resumed{node: n}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	client := n.Typed(t)
	running.Go(func() {
		for ctx.Err() == nil {
			opened, err := r.read(ctx, client, namespace, &after)
			r.mu.Lock()
			if opened {
				r.ends++
			}
			if err != nil {
				r.failed = err
			}
			r.mu.Unlock()
			if err != nil {
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return r
}

// read watches until the stream ends, and reports whether there was one. after is where the
// next one begins. Its error is one that a client must list again for.
func (r *resumed) read(ctx context.Context, client kubernetes.Interface, namespace string, after *string) (opened bool, err error) {
	w, err := client.CoreV1().ConfigMaps(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: *after, AllowWatchBookmarks: true})
	if err != nil {
		return false, expired(err)
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		event, err := cluster.ToEvent(e)
		if err != nil {
			return true, expired(err)
		}
		*after = event.ResourceVersion
		if event.Type == "BOOKMARK" {
			continue
		}
		r.mu.Lock()
		r.events = append(r.events, event)
		r.mu.Unlock()
	}
	return true, nil
}

// expired returns an error that says that a position is gone, and nil for those that a
// client tries again behind.
func expired(err error) error {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return err
	}
	return nil
}

// ended is how many streams have ended that were open. One that is open does not count.
func (r *resumed) ended() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ends
}

// until waits for an event, and returns all up to it.
func (r *resumed) until(t *testing.T, rv string) (events []cluster.Event) {
	t.Helper()
	cluster.Await(t, 20*time.Second, "the watch on "+r.node.Name+" reaches "+rv, func() string {
		r.mu.Lock()
		defer r.mu.Unlock()
		events = r.events
		switch {
		case r.failed != nil:
			return r.failed.Error()
		case len(events) == 0 || events[len(events)-1].ResourceVersion != rv:
			return fmt.Sprintf("%d events", len(events))
		}
		return ""
	})
	return events
}
