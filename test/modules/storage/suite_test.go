package storage

import (
	"context"
	"strconv"
	"testing"

	ours "github.com/quorate/quorate/apiserver/objects/storage"
	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/proto"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
)

// function is one function of upstream's suite.
type function struct {
	name string
	run  func(ctx context.Context, t *testing.T, a *adapter)
	// clusterScoped: its objects have no namespace.
	clusterScoped bool
	// settled: it watches from what a node happens to have now and expects that to
	// include what it wrote. For its cache, upstream waits in the same way.
	settled bool
	// compacts: it moves the history floor of the whole cluster.
	compacts bool
}

// plain is a function that needs nothing but the store.
func plain(f func(context.Context, *testing.T, storage.Interface)) func(context.Context, *testing.T, *adapter) {
	return func(ctx context.Context, t *testing.T, a *adapter) { f(ctx, t, a) }
}

// transformed is a function that changes how values are stored.
func transformed(f func(context.Context, *testing.T, storagetesting.InterfaceWithPrefixTransformer)) func(context.Context, *testing.T, *adapter) {
	return func(ctx context.Context, t *testing.T, a *adapter) { f(ctx, t, a) }
}

// suite is what must pass. README.md says the same.
var suite = []function{
	{name: "RunTestCreate", run: func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestCreate(ctx, t, a, a.checkStored)
	}},
	{name: "RunTestCreateWithKeyExist", run: plain(storagetesting.RunTestCreateWithKeyExist)},
	{name: "RunTestGet", run: plain(storagetesting.RunTestGet)},
	{name: "RunTestUnconditionalDelete", run: plain(storagetesting.RunTestUnconditionalDelete)},
	{name: "RunTestConditionalDelete", run: plain(storagetesting.RunTestConditionalDelete)},
	{name: "RunTestDeleteWithSuggestion", run: plain(storagetesting.RunTestDeleteWithSuggestion)},
	{name: "RunTestDeleteWithSuggestionAndConflict", run: plain(storagetesting.RunTestDeleteWithSuggestionAndConflict)},
	{name: "RunTestDeleteWithConflict", run: plain(storagetesting.RunTestDeleteWithConflict)},
	{name: "RunTestDeleteWithSuggestionOfDeletedObject", run: plain(storagetesting.RunTestDeleteWithSuggestionOfDeletedObject)},
	{name: "RunTestValidateDeletionWithSuggestion", run: plain(storagetesting.RunTestValidateDeletionWithSuggestion)},
	{name: "RunTestValidateDeletionWithOnlySuggestionValid", run: plain(storagetesting.RunTestValidateDeletionWithOnlySuggestionValid)},
	{name: "RunTestPreconditionalDeleteWithSuggestion", run: plain(storagetesting.RunTestPreconditionalDeleteWithSuggestion)},
	{name: "RunTestPreconditionalDeleteWithOnlySuggestionPass", run: plain(storagetesting.RunTestPreconditionalDeleteWithOnlySuggestionPass)},
	{name: "RunTestList", compacts: true, run: func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestList(ctx, t, a, a.compact, true, storagetesting.NewKubernetesRecorder(nil))
	}},
	{name: "RunTestConsistentList", run: func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestConsistentList(ctx, t, a, a.increase, false, true, true)
	}},
	{name: "RunTestGetListNonRecursive", run: func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestGetListNonRecursive(ctx, t, a.increase, a)
	}},
	{name: "RunTestGetListRecursivePrefix", run: plain(storagetesting.RunTestGetListRecursivePrefix)},
	{name: "RunTestListContinuation", run: func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestListContinuation(ctx, t, a, nil)
	}},
	{name: "RunTestListPaginationRareObject", run: func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestListPaginationRareObject(ctx, t, a, nil)
	}},
	{name: "RunTestListContinuationWithFilter", run: func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestListContinuationWithFilter(ctx, t, a, nil)
	}},
	{name: "RunTestListInconsistentContinuation", compacts: true, run: func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestListInconsistentContinuation(ctx, t, withoutAny{a}, a.compact)
	}},
	{name: "RunTestListResourceVersionMatch", run: transformed(storagetesting.RunTestListResourceVersionMatch)},
	{name: "RunTestGuaranteedUpdate", run: func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestGuaranteedUpdate(ctx, t, a, a.checkStored)
	}},
	{name: "RunTestGuaranteedUpdateChecksStoredData", run: transformed(storagetesting.RunTestGuaranteedUpdateChecksStoredData)},
	{name: "RunTestGuaranteedUpdateWithConflict", run: plain(storagetesting.RunTestGuaranteedUpdateWithConflict)},
	{name: "RunTestGuaranteedUpdateWithSuggestionAndConflict", run: plain(storagetesting.RunTestGuaranteedUpdateWithSuggestionAndConflict)},
	{name: "RunTestStats", run: func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestStats(ctx, t, a, objects, identity.NewEncryptCheckTransformer(), false)
	}},
	{name: "RunTestListPaging", run: plain(storagetesting.RunTestListPaging)},
	{name: "RunTestNamespaceScopedList", run: plain(storagetesting.RunTestNamespaceScopedList)},
	{name: "RunTestCompactRevision", compacts: true, run: func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestCompactRevision(ctx, t, a, a.increase, a.compact)
	}},

	{name: "RunTestWatch", run: plain(storagetesting.RunTestWatch)},
	{name: "RunTestWatchFromZero", compacts: true, settled: true, run: func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestWatchFromZero(ctx, t, a, a.compact)
	}},
	{name: "RunTestDeleteTriggerWatch", run: plain(storagetesting.RunTestDeleteTriggerWatch)},
	{name: "RunTestWatchFromNonZero", run: plain(storagetesting.RunTestWatchFromNonZero)},
	{name: "RunTestDelayedWatchDelivery", run: plain(storagetesting.RunTestDelayedWatchDelivery)},
	{name: "RunTestWatchContextCancel", run: plain(storagetesting.RunTestWatchContextCancel)},
	{name: "RunTestWatcherTimeout", run: plain(storagetesting.RunTestWatcherTimeout)},
	{name: "RunTestWatchDeleteEventObjectHaveLatestRV", run: plain(storagetesting.RunTestWatchDeleteEventObjectHaveLatestRV)},
	{name: "RunTestWatchInitializationSignal", run: plain(storagetesting.RunTestWatchInitializationSignal)},
	{name: "RunOptionalTestProgressNotify", run: func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunOptionalTestProgressNotify(ctx, t, a, a.increase)
	}},
	{name: "RunTestClusterScopedWatch", clusterScoped: true, run: plain(storagetesting.RunTestClusterScopedWatch)},
	{name: "RunTestNamespaceScopedWatch", run: plain(storagetesting.RunTestNamespaceScopedWatch)},
	{name: "RunTestWatchDispatchBookmarkEvents", run: func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestWatchDispatchBookmarkEvents(ctx, t, a, true)
	}},
	{name: "RunTestOptionalWatchBookmarksWithCorrectResourceVersion", run: plain(storagetesting.RunTestOptionalWatchBookmarksWithCorrectResourceVersion)},
	{name: "RunSendInitialEventsBackwardCompatibility", run: plain(storagetesting.RunSendInitialEventsBackwardCompatibility)},
	{name: "RunWatchSemantics", settled: true, run: plain(storagetesting.RunWatchSemantics)},
	{name: "RunWatchSemanticInitialEventsExtended", run: plain(storagetesting.RunWatchSemanticInitialEventsExtended)},
	{name: "RunWatchListMatchSingle", run: plain(storagetesting.RunWatchListMatchSingle)},
}

// TestSuite runs every function twice: all calls at the leader; and reads and
// watches at the followers in turn while writes go to all nodes in turn.
func TestSuite(t *testing.T) {
	kinds := resources(2*len(suite), 2)
	calm, moving := start(t, kinds), start(t, kinds)
	for _, f := range suite {
		t.Run(f.name, func(t *testing.T) {
			c := calm
			if f.compacts {
				c = moving
			}
			leader := []*node{c.leader(t)}
			for _, v := range []struct {
				name             string
				readers, writers []*node
			}{
				{"leader", leader, leader},
				{"followers", c.followers(t), c.nodes},
			} {
				t.Run(v.name, func(t *testing.T) {
					a := newAdapter(t, c, v.readers, v.writers, !f.clusterScoped)
					a.settled = f.settled
					defer func() {
						if t.Skipped() {
							t.Error("skipped: that is not passed")
						}
					}()
					f.run(t.Context(), t, a)
				})
			}
		})
	}
}

// withoutAny reads at the most recent revision where a list says "0". Upstream
// runs the function that needs it on etcd alone, which does the same; where its
// cache answers a list at "0", as here, it ignores the limit.
type withoutAny struct{ storage.Interface }

func (s withoutAny) GetList(ctx context.Context, key string, opts storage.ListOptions, out runtime.Object) error {
	if opts.ResourceVersion == "0" {
		opts.ResourceVersion = ""
	}
	return s.Interface.GetList(ctx, key, opts, out)
}

// compact moves the history floor, by an entry like any other.
func (a *adapter) compact(ctx context.Context, t *testing.T, resourceVersion string) {
	t.Helper()
	floor, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	n := a.writer()
	if err := n.store.Compact(ctx, proto.Revision(floor)); err != nil {
		t.Fatal(err)
	}
	if err := a.cluster.settle(ctx, n.store.Applied()); err != nil {
		t.Fatal(err)
	}
}

// increase writes something that has nothing to do with the suite's objects.
func (a *adapter) increase(ctx context.Context, t *testing.T) int64 {
	t.Helper()
	v, _, err := ours.Propose(ctx, a.writer().store, &proto.Write{Table: "other", Key: "key", Op: proto.Op_OP_PUT})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.cluster.settle(ctx, v.Revision); err != nil {
		t.Fatal(err)
	}
	return int64(v.Revision)
}

// checkStored checks what the store holds for a key: an object with its own
// revision and without a selfLink.
func (a *adapter) checkStored(ctx context.Context, t *testing.T, key string) {
	t.Helper()
	if err := a.writers[0].confirm(ctx); err != nil {
		t.Fatal(err)
	}
	p, err := a.object(key)
	if err != nil {
		t.Fatal(err)
	}
	v, err := ours.Current(a.writers[0].store, a.res.Table(), a.res.Key(p.namespace, p.name))
	if err != nil || v == nil {
		t.Fatalf("nothing is stored at %s: %v", key, err)
	}
	obj, err := codec.DecodeStored(a.res, v)
	if err != nil {
		t.Fatal(err)
	}
	m := obj["metadata"].(map[string]any)
	if m["resourceVersion"] != v.Revision.String() || m["selfLink"] != nil {
		t.Errorf("stored metadata at revision %v: %v", v.Revision, m)
	}
}
