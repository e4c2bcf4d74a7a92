package clients

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

// How much is written.
const (
	writersPerKind   = 8
	objectsPerWriter = 10
	writeEvery       = 40 * time.Millisecond
	writeWithin      = 5 * time.Second // one attempt
)

// writer changes objects that are its own: what happens to each is known,
// because an outcome that is unknown is found out before the next change.
type writer struct {
	kind   kind
	prefix string
	client dynamic.ResourceInterface

	states []int // of each object; the number that was written last
	exists []bool
	notes  []note
	errs   int // attempts that failed
	broken error
}

// note is a change that was acknowledged, and when.
type note struct {
	change
	acked time.Time
}

// writers are all writers of a run.
type writers struct {
	all  []*writer
	done atomic.Int64 // changes that were acknowledged
	stop context.CancelFunc
	wg   sync.WaitGroup
}

// newWriters makes writers that write through the balancer, like everybody.
func newWriters(t *testing.T, c *cluster.Cluster, url string) *writers {
	t.Helper()
	w := &writers{}
	for _, k := range written {
		for i := range writersPerKind {
			config := configFor(c, url)
			config.Timeout = writeWithin
			client, err := dynamic.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			w.all = append(w.all, &writer{
				kind: k, prefix: fmt.Sprintf("%s-%d", k.resource, i), client: client.Resource(k.gvr()).Namespace(namespace),
				states: make([]int, objectsPerWriter), exists: make([]bool, objectsPerWriter),
			})
		}
	}
	return w
}

// fill creates every second object, before anybody watches.
func (w *writers) fill(t *testing.T) {
	t.Helper()
	for _, x := range w.all {
		for i := 0; i < objectsPerWriter; i += 2 {
			if err := x.write(t.Context(), i); err != nil {
				t.Fatal(err)
			}
		}
		x.notes = nil
	}
}

// start lets all write until finish.
func (w *writers) start() {
	ctx, cancel := context.WithCancel(context.Background())
	w.stop = cancel
	for _, x := range w.all {
		w.wg.Go(func() { x.run(ctx, &w.done) })
	}
}

// await waits for more changes.
func (w *writers) await(t *testing.T, more int64) {
	t.Helper()
	want := w.done.Load() + more
	cluster.Await(t, time.Minute, "changes are made", func() string {
		if n := w.done.Load(); n < want {
			return fmt.Sprintf("there are %d, %d are to be awaited", n, want)
		}
		return ""
	})
}

// finish ends the writing after the write that is under way.
func (w *writers) finish(t *testing.T) {
	t.Helper()
	w.stop()
	w.wg.Wait()
	for _, x := range w.all {
		if x.broken != nil {
			t.Fatal(x.broken)
		}
	}
}

// of returns the notes about one kind, by object.
func (w *writers) of(k kind) map[string][]note {
	notes := map[string][]note{}
	for _, x := range w.all {
		if x.kind.resource != k.resource {
			continue
		}
		for _, n := range x.notes {
			notes[n.name] = append(notes[n.name], n)
		}
	}
	return notes
}

func (x *writer) run(ctx context.Context, done *atomic.Int64) {
	tick := time.NewTicker(writeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// The write itself is not cut short: its outcome is to be known.
		if x.broken = x.write(context.Background(), rand.IntN(objectsPerWriter)); x.broken != nil {
			return
		}
		done.Add(1)
	}
}

// write changes one object: what is not there is created, of what is there one
// in eight is deleted and the rest is changed.
func (x *writer) write(ctx context.Context, i int) error {
	c := change{name: fmt.Sprintf("%s-%d", x.prefix, i)}
	var attempt func() error
	switch {
	case !x.exists[i]:
		x.states[i]++
		c.event, attempt = "ADDED", func() error { return x.create(ctx, c.name, x.states[i]) }
	case rand.IntN(8) == 0:
		c.event, attempt = "DELETED", func() error { return x.delete(ctx, c.name) }
	default:
		x.states[i]++
		c.event, attempt = "MODIFIED", func() error { return x.update(ctx, c.name, x.states[i]) }
	}
	c.state = fmt.Sprint(x.states[i])
	if err := x.insist(ctx, c, attempt); err != nil {
		return err
	}
	x.exists[i] = c.event != "DELETED"
	x.notes = append(x.notes, note{c, time.Now()})
	return nil
}

// insistFor bounds the time without any successful write. A rolling restart
// leaves a majority at all times.
const insistFor = 30 * time.Second

// insist repeats an attempt until it has had its effect.
func (x *writer) insist(ctx context.Context, c change, attempt func() error) error {
	ctx, cancel := context.WithTimeout(ctx, insistFor)
	defer cancel()
	for {
		err := attempt()
		if err == nil {
			return nil
		}
		x.errs++
		select {
		case <-ctx.Done():
			return fmt.Errorf("%v: not within %s: %w", c, insistFor, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (x *writer) create(ctx context.Context, name string, n int) error {
	_, err := x.client.Create(ctx, x.kind.object(name, n), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) { // an attempt before this one did it
		_, err = x.is(ctx, name, n)
	}
	return err
}

func (x *writer) update(ctx context.Context, name string, n int) error {
	o, err := x.client.Get(ctx, name, metav1.GetOptions{})
	if err != nil || stateOf(o) == n {
		return err
	}
	o.SetAnnotations(map[string]string{number: fmt.Sprint(n)})
	_, err = x.client.Update(ctx, o, metav1.UpdateOptions{})
	return err
}

func (x *writer) delete(ctx context.Context, name string) error {
	now := int64(0)
	err := x.client.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// is reads an object that must be in a state.
func (x *writer) is(ctx context.Context, name string, n int) (*unstructured.Unstructured, error) {
	o, err := x.client.Get(ctx, name, metav1.GetOptions{})
	if err == nil && stateOf(o) != n {
		return nil, fmt.Errorf("%s is in state %d; its only writer wanted %d", name, stateOf(o), n)
	}
	return o, err
}

func stateOf(o *unstructured.Unstructured) (n int) {
	_, _ = fmt.Sscan(o.GetAnnotations()[number], &n)
	return n
}
