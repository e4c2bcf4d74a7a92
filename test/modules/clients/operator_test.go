package clients

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const mills = 200

// operated is a cluster with the operator on it.
type operated struct {
	c      *cluster.Cluster
	client client.Client
	counts *millCounts
	born   *births
}

// TestOperator runs an operator of two instances behind a balancer: 200 custom
// resources with a status, a finalizer and children, while the cluster's leader is
// killed, the operator's leader ends, and the cluster's leader is killed again.
func TestOperator(t *testing.T) {
	o := startOperated(t)
	b := startBalancer(t, o.c)
	config := configFor(o.c, b.url())
	one, two := startInstance(t, config, "one", o.counts), startInstance(t, config, "two", o.counts)

	// Created; the leader is killed when a part of them is reconciled.
	began := time.Now()
	creating := make(chan error, 1)
	go func() { creating <- o.create(t.Context()) }()
	o.await(t, "a part is reconciled", func(done, _ int) bool { return done >= mills/4 })
	dead := o.killLeader(t)
	noError(t, <-creating)
	o.awaitCurrent(t)
	t.Logf("%d mills were made and reconciled in %.1f s, the cluster's leader killed after a part", mills, time.Since(began).Seconds())
	o.check(t, func(int) int { return 2 })
	o.c.Restart(t, dead)

	// Changed; the operator's leader ends, and the other instance goes on.
	leads, other := one, two
	if o.counts.by("two") > o.counts.by("one") {
		leads, other = two, one
	}
	before := o.counts.by(other.name)
	began = time.Now()
	resized := func(i int) int { return 1 + i%3 }
	for i := range mills {
		patch := client.RawPatch("application/merge-patch+json", []byte(fmt.Sprintf(`{"spec":{"stones":%d,"flour":"rye"}}`, resized(i))))
		noError(t, o.client.Patch(t.Context(), &Mill{ObjectMeta: millMeta(i)}, patch))
		if i == mills/2 {
			leads.stop()
		}
	}
	o.awaitCurrent(t)
	t.Logf("all were changed and reconciled in %.1f s, the operator's leader ended in the middle", time.Since(began).Seconds())
	if o.counts.by(other.name) == before {
		t.Errorf("instance %s has done nothing", other.name)
	}
	o.check(t, resized)
	o.mends(t)
	// From here on one may be made again: a client may see that a stone was deleted
	// before it sees that its mill is being deleted.
	o.born.verdict(t)

	// Deleted, foreground and background; the cluster's leader is killed again.
	began = time.Now()
	for i := range mills {
		policy := []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground}[i%2]
		noError(t, persist(t.Context(), func() error {
			return client.IgnoreNotFound(o.client.Delete(t.Context(), &Mill{ObjectMeta: millMeta(i)}, client.PropagationPolicy(policy)))
		}))
		if i == mills/2 {
			dead = o.killLeader(t)
		}
	}
	o.gone(t)
	t.Logf("all were deleted with what belongs to them in %.1f s, the cluster's leader killed in the middle", time.Since(began).Seconds())
	o.c.Restart(t, dead)
	o.verdict(t)
}

// startOperated starts a cluster with the definition and the namespaces.
func startOperated(t *testing.T, settings ...string) *operated {
	t.Helper()
	o := &operated{c: cluster.Start(t, 3, settings...), counts: &millCounts{active: map[string]int{}, reconcile: map[string]int{}, finalized: map[string]int{}, errors: map[string]int{}}}
	all := runtime.NewScheme()
	noError(t, clientscheme.AddToScheme(all))
	noError(t, millScheme.AddToScheme(all))
	definition := &unstructured.Unstructured{}
	noError(t, definition.UnmarshalJSON([]byte(millDefinition)))
	definitions := o.c.Nodes()[0].Dynamic(t).Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	_, err := definitions.Create(t.Context(), definition, metav1.CreateOptions{})
	noError(t, err)
	cluster.Await(t, within, "the definition is established", func() string {
		u, err := definitions.Get(t.Context(), definition.GetName(), metav1.GetOptions{})
		if err != nil || !strings.Contains(fmt.Sprint(u.Object["status"]), "Established") {
			return fmt.Sprint(err)
		}
		return ""
	})
	// The test has a client of its own, of all nodes.
	config := configFor(o.c, startBalancer(t, o.c).url())
	cluster.Await(t, within, "the resource is in discovery", func() string {
		if o.client, err = client.New(config, client.Options{Scheme: all}); err != nil {
			return err.Error()
		}
		if _, err := o.client.RESTMapper().RESTMapping(millVersion.WithKind("Mill").GroupKind()); err != nil {
			return err.Error()
		}
		return ""
	})
	for _, ns := range []string{millNamespace, registerNamespace} {
		noError(t, o.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}))
	}
	o.born = watchBirths(t, o.c)
	return o
}

func millMeta(i int) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: millNamespace, Name: fmt.Sprintf("m%03d", i)}
}

// create makes all mills, some at a time. A create whose answer is lost may have
// happened.
func (o *operated) create(ctx context.Context) error {
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for w := range errs {
		wg.Go(func() {
			for i := w; i < mills && errs[w] == nil; i += len(errs) {
				errs[w] = persist(ctx, func() error {
					return client.IgnoreAlreadyExists(o.client.Create(ctx, &Mill{ObjectMeta: millMeta(i), Spec: MillSpec{Stones: 2}}))
				})
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// persist makes a call again that has failed because the node was killed that it
// went to.
func persist(ctx context.Context, call func() error) error {
	for {
		err := call()
		var answer apierrors.APIStatus
		if err == nil || errors.As(err, &answer) || ctx.Err() != nil {
			return err
		}
	}
}

// list reads a collection.
func (o *operated) list(t *testing.T, into client.ObjectList, opts ...client.ListOption) {
	t.Helper()
	noError(t, persist(t.Context(), func() error { return o.client.List(t.Context(), into, opts...) }))
}

func (o *operated) killLeader(t *testing.T) *cluster.Node {
	t.Helper()
	leader := o.c.Leader(t)
	o.c.Kill(t, leader)
	return leader
}

// await awaits that so many mills are reconciled, of all that there are.
func (o *operated) await(t *testing.T, what string, enough func(done, all int) bool) {
	t.Helper()
	cluster.Await(t, 90*time.Second, what, func() string {
		var list MillList
		o.list(t, &list, client.InNamespace(millNamespace))
		done := 0
		for i := range list.Items {
			m := &list.Items[i]
			ready := meta.FindStatusCondition(m.Status.Conditions, "Ready")
			if m.Status.ObservedGeneration == m.Generation && m.Status.Stones == m.Spec.Stones && ready != nil && ready.Message == m.Spec.Flour {
				done++
			}
		}
		if !enough(done, len(list.Items)) {
			return fmt.Sprintf("%d of %d are reconciled", done, len(list.Items))
		}
		return ""
	})
}

func (o *operated) awaitCurrent(t *testing.T) {
	t.Helper()
	o.await(t, "all are reconciled", func(done, all int) bool { return done == mills && all == mills })
}

// children are the stones by name, on one node.
func (o *operated) children(t *testing.T) map[string]corev1.ConfigMap {
	t.Helper()
	var list corev1.ConfigMapList
	o.list(t, &list, client.InNamespace(millNamespace), client.HasLabels{"mill"})
	out := map[string]corev1.ConfigMap{}
	for _, c := range list.Items {
		out[c.Name] = c
	}
	return out
}

// check awaits that every mill has its stones and no others, and its entry.
func (o *operated) check(t *testing.T, stones func(i int) int) {
	t.Helper()
	var list MillList
	o.list(t, &list, client.InNamespace(millNamespace))
	cluster.Await(t, within, "the stones", func() string {
		have, want := o.children(t), 0
		for i := range list.Items {
			m := &list.Items[i]
			for s := range stones(i) {
				want++
				c, ok := have[fmt.Sprintf("%s-%d", m.Name, s)]
				owner := metav1.GetControllerOf(&c)
				if !ok || owner == nil || owner.UID != m.UID || c.Data["flour"] != m.Spec.Flour {
					return fmt.Sprintf("stone %d of %s is %+v", s, m.Name, c)
				}
			}
		}
		if len(have) != want {
			return fmt.Sprintf("%d stones, want %d", len(have), want)
		}
		return ""
	})
	var register corev1.ConfigMapList
	o.list(t, &register, client.InNamespace(registerNamespace), client.HasLabels{"mill"})
	entries := map[string]string{}
	for _, e := range register.Items {
		entries[e.Name] = e.Data["mill"]
	}
	for _, m := range list.Items {
		if entries[m.Name] != string(m.UID) {
			t.Errorf("the register has %q for %s", entries[m.Name], m.Name)
		}
	}
}

// mends changes one stone and deletes another: the operator sees both.
func (o *operated) mends(t *testing.T) {
	t.Helper()
	changed := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: millNamespace, Name: "m000-0"}}
	noError(t, o.client.Patch(t.Context(), changed, client.RawPatch("application/merge-patch+json", []byte(`{"data":{"flour":"sand","more":"kept"}}`))))
	deleted := o.children(t)["m001-0"]
	noError(t, o.client.Delete(t.Context(), &deleted))
	cluster.Await(t, within, "the operator mends", func() string {
		have := o.children(t)
		// What somebody else has added is not the operator's.
		if c := have["m000-0"]; c.Data["flour"] != "rye" || c.Data["more"] != "kept" {
			return fmt.Sprintf("the changed stone has %v", c.Data)
		}
		if c, ok := have["m001-0"]; !ok || c.UID == deleted.UID {
			return "the deleted stone is not there"
		}
		return ""
	})
	o.born.expect("m001-0")
}

// gone awaits that nothing is left.
func (o *operated) gone(t *testing.T) {
	t.Helper()
	cluster.Await(t, 90*time.Second, "all are gone", func() string {
		var list MillList
		var register corev1.ConfigMapList
		o.list(t, &list, client.InNamespace(millNamespace))
		o.list(t, &register, client.InNamespace(registerNamespace), client.HasLabels{"mill"})
		entries := len(register.Items)
		if children := len(o.children(t)); len(list.Items)+entries+children > 0 {
			return fmt.Sprintf("%d mills, %d entries and %d stones are left", len(list.Items), entries, children)
		}
		return ""
	})
}

// verdict checks what only the whole run shows.
func (o *operated) verdict(t *testing.T) {
	t.Helper()
	o.counts.mu.Lock()
	defer o.counts.mu.Unlock()
	for i := range mills {
		if name := millMeta(i).Name; o.counts.finalized[name] == 0 {
			t.Errorf("the finalizer of %s has not run", name)
		}
	}
	if o.counts.together > 0 {
		t.Errorf("both instances were at work at the same time, %d times", o.counts.together)
	}
	lease, err := o.c.Nodes()[0].Typed(t).CoordinationV1().Leases(millNamespace).Get(t.Context(), "mill-operator", metav1.GetOptions{})
	noError(t, err)
	t.Logf("reconciliations: %v, errors: %v; the lease has changed hands %d times", o.counts.reconcile, o.counts.errors, *lease.Spec.LeaseTransitions)
}

// births counts the ADDED events of every stone, as a watch has them that goes on
// from node to node.
type births struct {
	mu    sync.Mutex
	added map[string]int
	more  map[string]int // what is allowed beyond one
}

func watchBirths(t *testing.T, c *cluster.Cluster) *births {
	t.Helper()
	b := &births{added: map[string]int{}, more: map[string]int{}}
	ctx, cancel := context.WithCancel(context.Background())
	list, err := c.Nodes()[0].Typed(t).CoreV1().ConfigMaps(millNamespace).List(ctx, metav1.ListOptions{LabelSelector: "mill"})
	noError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() { b.follow(ctx, t, c, list.ResourceVersion) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return b
}

// follow watches from a version on, at one node after the other.
func (b *births) follow(ctx context.Context, t *testing.T, c *cluster.Cluster, version string) {
	for i := 0; ctx.Err() == nil; i++ {
		n := c.Nodes()[i%len(c.Nodes())]
		w, err := n.Typed(t).CoreV1().ConfigMaps(millNamespace).Watch(ctx, metav1.ListOptions{LabelSelector: "mill", ResourceVersion: version, AllowWatchBookmarks: true})
		if err != nil {
			select { // the node is dead
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
			continue
		}
		for e := range w.ResultChan() {
			o, ok := e.Object.(*corev1.ConfigMap)
			if !ok {
				break
			}
			version = o.ResourceVersion
			if e.Type == apiwatch.Added {
				b.mu.Lock()
				b.added[o.Name]++
				b.mu.Unlock()
			}
		}
		w.Stop()
	}
}

// expect allows a stone to be made once more.
func (b *births) expect(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.more[name]++
}

// verdict checks that no stone was made twice.
func (b *births) verdict(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.added) < 2*mills {
		t.Errorf("%d stones were made, want at least %d", len(b.added), 2*mills)
	}
	for name, n := range b.added {
		if n != 1+b.more[name] {
			t.Errorf("stone %s was made %d times", name, n)
		}
	}
}
