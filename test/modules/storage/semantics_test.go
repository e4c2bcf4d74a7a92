package storage

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
)

// TestSemantics holds what clients see of upstream's stores beyond the suite: its
// etcd3 and cacher packages test it for themselves only. Each names the upstream
// test.
func TestSemantics(t *testing.T) {
	c := start(t, resources(16, 0))
	for _, s := range []struct {
		name string
		run  func(t *testing.T, a *adapter)
	}{
		{"TestGetCurrentResourceVersion", currentRevision},
		{"TestStartingResourceVersion", startsBehindItsRevision},
		{"TestTooLargeResourceVersionErrorForWatchList", futureWatchList},
		{"TestBookmarksOnResourceVersionUpdates", idleKindsGetBookmarks},
		{"TestCacherNoLeakWithMultipleWatchers", stoppedWatchesAreGone},
		// It moves the floor: last.
		{"TestEmptyWatchEventCache", floorOfAnEmptyKind},
	} {
		t.Run(s.name, func(t *testing.T) { s.run(t, newAdapter(t, c, c.followers(t), c.nodes, true)) })
	}
}

func (a *adapter) add(t *testing.T, name string) uint64 {
	t.Helper()
	out := &example.Pod{}
	pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	if err := a.Create(t.Context(), prefix+"ns/"+name, pod, out, 0); err != nil {
		t.Fatal(err)
	}
	return a.revisionOf(t, out)
}

func (a *adapter) revisionOf(t *testing.T, obj any) uint64 {
	t.Helper()
	rev, err := strconv.ParseUint(obj.(metav1.Object).GetResourceVersion(), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

func (a *adapter) open(t *testing.T, revision string, bookmarks bool, initial *bool) watch.Interface {
	t.Helper()
	all := storage.Everything
	all.AllowWatchBookmarks = bookmarks
	w, err := a.Watch(t.Context(), prefix, storage.ListOptions{ResourceVersion: revision, Predicate: all, Recursive: true, SendInitialEvents: initial})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

func event(t *testing.T, w watch.Interface) watch.Event {
	t.Helper()
	select {
	case e, ok := <-w.ResultChan():
		if !ok {
			t.Fatal("the watch has ended")
		}
		return e
	case <-time.After(patience):
		t.Fatal("no event came")
	}
	return watch.Event{}
}

// currentRevision: what a list without a revision says, and no other kind's write
// is missed.
func currentRevision(t *testing.T, a *adapter) {
	for _, move := range []func() uint64{
		func() uint64 { return a.add(t, "one") },
		func() uint64 { return uint64(a.increase(t.Context(), t)) },
	} {
		want := move()
		if got, err := a.GetCurrentResourceVersion(t.Context()); err != nil || got != want {
			t.Errorf("current revision %d, %v; want %d", got, err, want)
		}
	}
}

// startsBehindItsRevision: from each revision, exactly what came after it.
func startsBehindItsRevision(t *testing.T, a *adapter) {
	var revisions []uint64
	for i := range 20 {
		revisions = append(revisions, a.add(t, fmt.Sprintf("pod-%02d", i)))
	}
	for i, from := range revisions[:len(revisions)-1] {
		w := a.open(t, strconv.FormatUint(from, 10), false, nil)
		for _, want := range revisions[i+1:] {
			if e := event(t, w); e.Type != watch.Added || a.revisionOf(t, e.Object) != want {
				t.Fatalf("from %d: %v at %d, want %d", from, e.Type, a.revisionOf(t, e.Object), want)
			}
		}
		w.Stop()
	}
}

// futureWatchList: initial events at a revision that does not exist are refused
// as every such read is, with a time to come back.
func futureWatchList(t *testing.T, a *adapter) {
	yes := true
	all := storage.Everything
	all.AllowWatchBookmarks = true
	w, err := a.Watch(t.Context(), prefix, storage.ListOptions{
		ResourceVersion: "99999", Predicate: all, Recursive: true, SendInitialEvents: &yes,
	})
	if err == nil {
		t.Cleanup(w.Stop)
		e := event(t, w)
		if e.Type != watch.Error {
			t.Fatalf("%v", e)
		}
		err = apierrors.FromObject(e.Object)
	}
	var status *apierrors.StatusError
	if !storage.IsTooLargeResourceVersion(err) || !errors.As(err, &status) || status.ErrStatus.Details.RetryAfterSeconds <= 0 {
		t.Errorf("%v", err)
	}
}

// idleKindsGetBookmarks: the writes of other kinds move a watch on.
func idleKindsGetBookmarks(t *testing.T, a *adapter) {
	w := a.open(t, strconv.FormatUint(a.add(t, "only"), 10), true, nil)
	want := uint64(a.increase(t.Context(), t))
	for {
		e := event(t, w)
		if e.Type != watch.Bookmark {
			t.Fatalf("%v of a kind that nobody writes to", e.Type)
		}
		if a.revisionOf(t, e.Object) >= want {
			return
		}
	}
}

// stoppedWatchesAreGone: nothing of them is left on the nodes.
func stoppedWatchesAreGone(t *testing.T, a *adapter) {
	from := strconv.FormatUint(a.add(t, "pod"), 10)
	before := a.watchers()
	var open []watch.Interface
	for range 50 {
		open = append(open, a.open(t, from, false, nil))
	}
	await(t, func() error { return want(a.watchers(), before+50) })
	for _, w := range open {
		w.Stop()
	}
	await(t, func() error {
		if got := a.watchers(); got > before {
			return fmt.Errorf("%d watchers, before there were %d", got, before)
		}
		return nil
	})
}

func want(got, want int64) error {
	if got < want {
		return fmt.Errorf("%d, want %d", got, want)
	}
	return nil
}

func (a *adapter) watchers() (n int64) {
	for _, node := range a.cluster.nodes {
		n += int64(node.store.Counters().Watchers)
	}
	return n
}

func await(t *testing.T, f func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

// floorOfAnEmptyKind: a kind that has nothing has a history all the same. Below
// the floor a watch is refused, from it on it stands.
func floorOfAnEmptyKind(t *testing.T, a *adapter) {
	floor := uint64(a.increase(t.Context(), t))
	a.compact(context.Background(), t, strconv.FormatUint(floor, 10))
	w := a.open(t, strconv.FormatUint(floor-1, 10), false, nil)
	if e := event(t, w); e.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
		t.Errorf("below the floor: %v %v", e.Type, e.Object)
	}
	w = a.open(t, strconv.FormatUint(floor, 10), true, nil)
	if e := event(t, w); e.Type != watch.Bookmark {
		t.Errorf("at the floor: %v %v", e.Type, e.Object)
	}
}
