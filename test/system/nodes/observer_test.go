//go:build linux

package nodes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// observer watches, from its start on, what may not happen while Quorate nodes fail: containers
// that are restarted, Pods that go, nodes that are not ready, and leases that are late. It has
// informers, which go on at the revision that they have seen: no version of an object is missed.
type observer struct {
	stop func()

	mu       sync.Mutex
	problems []string
	kept     map[string]bool // names of Pods that stay, NAMESPACE/NAME
	leases   map[string]time.Time
	gaps     map[string]time.Duration // longest since resetGaps
	ready    map[string]time.Time     // when a Pod was first seen ready
}

// leaseLimit is how long a node's lease may not be renewed: kubelet does it every 10 s, and what
// it has is over after 40 s.
const leaseLimit = 40 * time.Second

// observe begins, and keeps an eye on the Pods of a selector that are there.
func (s *Site) observe(t *testing.T, namespace, selector string) *observer {
	t.Helper()
	o := &observer{kept: map[string]bool{}, leases: map[string]time.Time{}, gaps: map[string]time.Duration{}, ready: map[string]time.Time{}}
	for _, p := range s.pods(t, namespace, selector) {
		o.kept[p.Namespace+"/"+p.Name] = true
	}
	if len(o.kept) == 0 {
		t.Fatal("no pods to watch")
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := informers.NewSharedInformerFactory(s.client, 0)
	for informer, handle := range map[cache.SharedIndexInformer]func(any, bool){
		f.Core().V1().Pods().Informer():           o.pod,
		f.Core().V1().Nodes().Informer():          o.node,
		f.Coordination().V1().Leases().Informer(): o.lease,
	} {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { handle(obj, false) },
			UpdateFunc: func(_, obj any) { handle(obj, false) },
			DeleteFunc: func(obj any) {
				if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
					obj = last.Obj
				}
				handle(obj, true)
			},
		})
		must.OK(t, err)
	}
	f.Start(ctx.Done())
	f.WaitForCacheSync(ctx.Done())
	o.stop = sync.OnceFunc(func() { cancel(); f.Shutdown() })
	t.Cleanup(o.stop)
	return o
}

func (o *observer) problem(format string, args ...any) {
	p := time.Now().Format("15:04:05.000 ") + fmt.Sprintf(format, args...)
	if len(o.problems) < 100 {
		o.problems = append(o.problems, p)
	}
}

func (o *observer) pod(obj any, deleted bool) {
	p := obj.(*corev1.Pod)
	key := p.Namespace + "/" + p.Name
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, known := o.ready[key]; !known && podReady(p) {
		o.ready[key] = time.Now()
	}
	if !o.kept[key] {
		return
	}
	if deleted || p.DeletionTimestamp != nil {
		o.problem("pod %s goes", key)
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.RestartCount != 0 {
			o.problem("%s of pod %s was restarted: %+v", c.Name, key, c.LastTerminationState)
		}
	}
}

func (o *observer) node(obj any, deleted bool) {
	n := obj.(*corev1.Node)
	o.mu.Lock()
	defer o.mu.Unlock()
	if c := readyOf(n); deleted || c.Status != corev1.ConditionTrue {
		o.problem("node %s is not ready: %s %s (heartbeat %s)", n.Name, c.Reason, c.Message, c.LastHeartbeatTime)
	}
}

func (o *observer) lease(obj any, _ bool) {
	l := obj.(*coordinationv1.Lease)
	if l.Namespace != corev1.NamespaceNodeLease || l.Spec.RenewTime == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if before, ok := o.leases[l.Name]; ok {
		gap := l.Spec.RenewTime.Sub(before)
		o.gaps[l.Name] = max(o.gaps[l.Name], gap)
		if gap >= leaseLimit {
			o.problem("the lease of %s was not renewed for %s", l.Name, gap)
		}
	}
	o.leases[l.Name] = l.Spec.RenewTime.Time
}

// longestGap is the longest time between renewals since it was last asked. A lease that is late
// at the moment is counted as it is.
func (o *observer) longestGap() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	var longest time.Duration
	for name, renewed := range o.leases {
		longest = max(longest, o.gaps[name], time.Since(renewed))
		o.gaps[name] = 0
	}
	return longest
}

// readyAt is when a Pod was first seen ready, or zero.
func (o *observer) readyAt(namespace, name string) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ready[namespace+"/"+name]
}

// check fails the test for what has happened.
func (o *observer) check(t *testing.T) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.problems) > 0 {
		t.Errorf("under %s:\n%s", t.Name(), strings.Join(slices.Compact(o.problems), "\n"))
		o.problems = nil
	}
}

// renewedWithin says of which node the lease was not renewed within a time, or nothing.
func (s *Site) renewedWithin(t *testing.T, within time.Duration) string {
	leases, err := s.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	for _, l := range leases.Items {
		//wall: Kubernetes promises that leases are renewed
		if since := time.Since(l.Spec.RenewTime.Time); since > within {
			return fmt.Sprintf("the lease of %s was renewed %s ago", l.Name, since)
		}
	}
	return ""
}
