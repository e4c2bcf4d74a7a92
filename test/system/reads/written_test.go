package reads

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// ledger knows what a namespace's ConfigMaps were at every revision, from a
// watch of all that happened to them, and what was acknowledged when.
type ledger struct {
	t         *testing.T
	namespace string
	clients   []kubernetes.Interface // writes go through them in turn
	watch     *cluster.OpenWatch

	mu     sync.Mutex
	acks   []ack
	events []cluster.Event // set by close
	marks  int
}

type ack struct {
	name     string
	revision uint64
	at       time.Time
}

// newLedger makes a namespace and watches it on one node. The namespace is left there. Its first object
// is the one that a controller writes.
func newLedger(t *testing.T, r *cluster.Readers, namespace string, watch *cluster.Node, through ...*cluster.Node) *ledger {
	t.Helper()
	cluster.Namespace(t, r.Leader, namespace)
	l := &ledger{t: t, namespace: namespace}
	for _, n := range through {
		l.clients = append(l.clients, n.Typed(t))
	}
	ns, err := r.Leader.Typed(t).CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
	must.OK(t, err)
	l.watch = cluster.StartWatch(t, watch, namespace, ns.ResourceVersion)
	return l
}

// put creates or updates an object, through the next client, and returns the
// acknowledged revision.
func (l *ledger) put(ctx context.Context, name string) (uint64, error) {
	l.mu.Lock()
	l.marks++
	mark := l.marks
	l.mu.Unlock()
	client := l.clients[mark%len(l.clients)].CoreV1().ConfigMaps(l.namespace)
	object := configMap(name)
	object.Labels = map[string]string{"parity": parity(name)}
	object.Data = map[string]string{"mark": fmt.Sprint(mark)}
	written, err := client.Update(ctx, object, metav1.UpdateOptions{})
	if err != nil {
		if written, err = client.Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return 0, err
		}
	}
	a := ack{name, cluster.Revision(l.t, written.ResourceVersion), time.Now()}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acks = append(l.acks, a)
	return a.revision, nil
}

// parity is a label that follows from the name: the last character's. Only what put writes has it.
func parity(name string) string {
	if name[len(name)-1]%2 == 0 {
		return "even"
	}
	return "odd"
}

func (l *ledger) mustPut(name string) uint64 {
	l.t.Helper()
	rv, err := l.put(l.t.Context(), name)
	must.OK(l.t, err)
	return rv
}

func (l *ledger) mustDelete(name string) {
	l.t.Helper()
	must.OK(l.t, l.clients[0].CoreV1().ConfigMaps(l.namespace).Delete(l.t.Context(), name, metav1.DeleteOptions{}))
}

// acked is the newest revision that was acknowledged by now.
func (l *ledger) acked() uint64 { return l.ackedBy(time.Now()) }

// ackedBy is the newest revision that was acknowledged by a time.
func (l *ledger) ackedBy(at time.Time) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var newest uint64
	for _, a := range l.acks {
		if !a.at.After(at) {
			newest = max(newest, a.revision)
		}
	}
	return newest
}

// churn writes at most every few milliseconds until stop is called: updates of
// the objects that stay, and objects that come and go.
func (l *ledger) churn(stay []string, every time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(l.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		come := func(i int) string { return fmt.Sprintf("come-%d", i%5) }
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			name := stay[rand.N(len(stay))]
			if i%3 == 0 {
				name = come(i)
				if l.clients[i%len(l.clients)].CoreV1().ConfigMaps(l.namespace).Delete(ctx, come(i+1), metav1.DeleteOptions{}) != nil && ctx.Err() != nil {
					return
				}
			}
			if _, err := l.put(ctx, name); err != nil && ctx.Err() == nil {
				l.t.Errorf("write %s: %v", name, err)
				return
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// close writes a last object and waits until the watch has seen it. From then on
// at and after answer for everything up to its revision.
func (l *ledger) close() (last uint64) {
	l.t.Helper()
	last = l.mustPut("zz-last")
	events := l.watch.Until(l.t, fmt.Sprint(last))
	cluster.InOrder(l.t, l.watch.Node.Name, events)
	l.events = slices.Clone(events)
	seen := map[string]bool{}
	for _, e := range events {
		seen[e.Name+"@"+e.ResourceVersion] = true
	}
	for _, a := range l.acks {
		if !seen[fmt.Sprintf("%s@%d", a.name, a.revision)] {
			l.t.Errorf("the write of %s at %d was acknowledged and is not among the %d events", a.name, a.revision, len(events))
		}
	}
	return last
}

// at returns the objects as they were at a revision, as name@resourceVersion in
// the order of names.
func (l *ledger) at(rv uint64) []string {
	objects := map[string]string{}
	for _, e := range l.events {
		if cluster.Revision(l.t, e.ResourceVersion) > rv {
			break
		}
		if e.Type == "DELETED" {
			delete(objects, e.Name)
		} else {
			objects[e.Name] = e.ResourceVersion
		}
	}
	out := []string{}
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		out = append(out, name+"@"+objects[name])
	}
	return out
}

// after returns the events above a revision.
func (l *ledger) after(rv uint64) []cluster.Event {
	for i, e := range l.events {
		if cluster.Revision(l.t, e.ResourceVersion) > rv {
			return l.events[i:]
		}
	}
	return nil
}
