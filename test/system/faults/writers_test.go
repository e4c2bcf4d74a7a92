package faults

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/quorate/quorate/test/harness/cluster"
)

// callWithin is the deadline of every call under load.
const callWithin = 5 * time.Second

// object is what one writer knows of one ConfigMap, which nobody else writes.
type object struct {
	acked   string // resourceVersion of the last acknowledged write; "" if none
	counter int    // content of that write
	tried   int    // content of a later write whose outcome is unknown; 0: none
}

// load is a number of writers that create ConfigMaps and update each a few
// times, through given nodes in turn, and remember what was acknowledged.
type load struct {
	t         *testing.T
	namespace string
	stop      context.CancelFunc
	wg        sync.WaitGroup

	mu      sync.Mutex
	objects map[string]*object
	done    []time.Time // when writes were acknowledged, by surviving nodes
	acks    atomic.Int64
	unknown atomic.Int64
	slowest time.Duration
}

const updatesPerObject = 3

// startLoad starts writers. Each begins at another node and moves on when a
// call fails. Only acknowledgements by the nodes in timed are kept in done.
func startLoad(t *testing.T, namespace string, writers int, nodes []*cluster.Node, timed ...*cluster.Node) *load {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	l := &load{t: t, namespace: namespace, stop: stop, objects: map[string]*object{}}
	for w := range writers {
		var clients []kubernetes.Interface
		var counts []bool
		for i := range nodes {
			n := nodes[(w+i)%len(nodes)]
			clients = append(clients, n.Typed(t))
			survivor := false
			for _, s := range timed {
				survivor = survivor || s == n
			}
			counts = append(counts, survivor)
		}
		l.wg.Go(func() { l.write(ctx, w, clients, counts) })
	}
	t.Cleanup(l.Stop)
	return l
}

// Stop ends the writers and waits for their last calls.
func (l *load) Stop() {
	l.stop()
	l.wg.Wait()
}

func (l *load) write(ctx context.Context, writer int, clients []kubernetes.Interface, counts []bool) {
	at := 0
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("w%d-%d", writer, i)
		o := &object{}
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for n := 1; n <= 1+updatesPerObject && ctx.Err() == nil; n++ {
			cm.Data = map[string]string{"counter": strconv.Itoa(n)}
			got, err := l.call(clients[at], cm, n == 1)
			l.mu.Lock()
			l.objects[name] = o
			if err == nil {
				o.acked, o.counter = got.ResourceVersion, n
				l.acks.Add(1)
				if counts[at] {
					l.done = append(l.done, time.Now())
				}
			} else {
				o.tried = n
			}
			l.mu.Unlock()
			if err != nil {
				// Whether it was written is unknown: this object is left alone.
				l.unknown.Add(1)
				at = (at + 1) % len(clients)
				break
			}
			cm = got
		}
	}
}

// call writes once and checks that the answer came by the deadline.
func (l *load) call(client kubernetes.Interface, cm *corev1.ConfigMap, create bool) (*corev1.ConfigMap, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callWithin)
	defer cancel()
	began := time.Now()
	var got *corev1.ConfigMap
	var err error
	if create {
		got, err = client.CoreV1().ConfigMaps(l.namespace).Create(ctx, cm, metav1.CreateOptions{})
	} else {
		got, err = client.CoreV1().ConfigMaps(l.namespace).Update(ctx, cm, metav1.UpdateOptions{})
	}
	took := time.Since(began)
	l.mu.Lock()
	l.slowest = max(l.slowest, took)
	l.mu.Unlock()
	//wall: the deadline that the client gave, with the lateness that the harness allows
	if took > callWithin+cluster.Lateness {
		l.t.Errorf("a write took %s, its deadline was %s: %v", took, callWithin, err)
	}
	if err != nil && (apierrors.IsConflict(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) || apierrors.IsBadRequest(err)) {
		l.t.Errorf("a write that nobody competes with was refused: %v", err)
	}
	return got, err
}

// awaitAcks waits until n more writes were acknowledged.
func (l *load) awaitAcks(n int64) {
	l.t.Helper()
	goal := l.acks.Load() + n
	cluster.Await(l.t, 30*time.Second, "writes go on", func() string {
		if got := l.acks.Load(); got < goal {
			return fmt.Sprintf("%d acknowledged, want %d", got, goal)
		}
		return ""
	})
}

// verify checks every acknowledged write against what a node lists now.
func (l *load) verify(t *testing.T, n *cluster.Node) {
	t.Helper()
	list, err := n.Typed(t).CoreV1().ConfigMaps(l.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatalf("%s: list: %v", n.Name, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	found := map[string]bool{}
	for _, cm := range list.Items {
		o := l.objects[cm.Name]
		if o == nil {
			continue // not ours
		}
		found[cm.Name] = true
		counter, _ := strconv.Atoi(cm.Data["counter"])
		acked := cm.ResourceVersion == o.acked && counter == o.counter
		// A write without an answer may have happened, but only after the others.
		unknown := o.tried != 0 && counter == o.tried && cluster.Revision(t, cm.ResourceVersion) > cluster.Revision(t, o.acked)
		if !acked && !unknown {
			t.Errorf("%s: %s has resourceVersion %s and counter %d; acknowledged %s and %d, then tried %d",
				n.Name, cm.Name, cm.ResourceVersion, counter, o.acked, o.counter, o.tried)
		}
	}
	for name, o := range l.objects {
		if o.acked != "" && !found[name] {
			t.Errorf("%s: %s is lost; it was acknowledged at %s", n.Name, name, o.acked)
		}
	}
}

// gap is the longest time between two of the given moments around one.
func gap(moments []time.Time, around time.Time) time.Duration {
	var longest time.Duration
	from, to := around.Add(-time.Second), around.Add(10*time.Second)
	var last time.Time
	for _, m := range moments {
		if m.Before(from) || m.After(to) {
			continue
		}
		if !last.IsZero() {
			longest = max(longest, m.Sub(last))
		}
		last = m
	}
	return longest
}

// reader reads Most Recent from one node without pause and notes its successes.
type reader struct {
	node *cluster.Node
	stop context.CancelFunc
	wg   sync.WaitGroup

	done    []time.Time // read after Stop
	failed  []error
	slowest time.Duration
}

func startReader(t *testing.T, n *cluster.Node, namespace, name string) *reader {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	r := &reader{node: n, stop: stop}
	client := n.Typed(t)
	r.wg.Go(func() {
		for ctx.Err() == nil {
			call, cancel := context.WithTimeout(context.Background(), callWithin)
			began := time.Now()
			_, err := client.CoreV1().ConfigMaps(namespace).Get(call, name, metav1.GetOptions{})
			cancel()
			took := time.Since(began)
			r.slowest = max(r.slowest, took)
			//wall: the deadline that the client gave, with the lateness that the harness allows
			if took > callWithin+cluster.Lateness {
				t.Errorf("%s: a read took %s, its deadline was %s: %v", n.Name, took, callWithin, err)
			}
			if err != nil {
				r.failed = append(r.failed, err)
			} else {
				r.done = append(r.done, time.Now())
			}
			// Leave some of the two cores to the servers.
			select {
			case <-ctx.Done():
			case <-time.After(2 * time.Millisecond):
			}
		}
	})
	t.Cleanup(r.Stop)
	return r
}

// Stop ends the reader; its fields may be read afterwards.
func (r *reader) Stop() {
	r.stop()
	r.wg.Wait()
}
