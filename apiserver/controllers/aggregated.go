package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quorate/quorate/apiserver/backends/aggregator"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Bounds of what is followed at aggregated API servers.
const (
	// aggregatedLook is the time between two looks at what servers serve.
	aggregatedLook = time.Second
	// aggregatedCall bounds a request that is no watch.
	aggregatedCall = 30 * time.Second
	aggregatedPage = 500
	// mostAggregated is the number of objects of a resource that are followed. A server can say
	// that it has any number, and each costs memory.
	mostAggregated = 100_000
)

// aggregated follows the metadata of objects at aggregated API servers, each resource with a
// reflector of its own, so that a server that hangs keeps no other waiting.
type aggregated struct {
	api metadata.Interface
	// serves returns the resources that there are, and the versions whose servers do not say.
	serves func() ([]aggregator.Resource, []schema.GroupVersion)
	// wants says which resources are followed.
	wants func(aggregator.Resource) bool
	// see is told of each object what it was and what it is: was is nil of a new one, is of one that
	// is gone. It is called for those of a resource one after the other.
	see func(of aggregator.Resource, was, is *metav1.PartialObjectMetadata)
	// forget is told that a resource is followed no more. see is not called for it again, unless
	// it is followed anew.
	forget func(of aggregator.Resource)
	failed func(of aggregator.Resource, err error)

	running map[schema.GroupVersionResource]*following
}

// following is a reflector that runs.
type following struct {
	of   aggregator.Resource
	stop context.CancelFunc
	done chan struct{}
}

// start follows until ctx ends. The function that it returns waits for that.
func (a *aggregated) start(ctx context.Context) (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.run(ctx)
	}()
	return func() { <-done }
}

// run follows until ctx ends.
func (a *aggregated) run(ctx context.Context) {
	a.running = map[schema.GroupVersionResource]*following{}
	defer func() {
		for _, f := range a.running {
			f.stop()
			<-f.done
		}
	}()
	for {
		a.adjust(ctx)
		if !pause(ctx, aggregatedLook) {
			return
		}
	}
}

// adjust starts and stops reflectors. One whose server does not say what it serves goes on: it
// would have to read everything again.
func (a *aggregated) adjust(ctx context.Context) {
	all, unknown := a.serves()
	wanted := map[schema.GroupVersionResource]aggregator.Resource{}
	for _, r := range all {
		if r.Collectable && a.wants(r) {
			wanted[r.GroupVersionResource] = r
		}
	}
	for gvr, f := range a.running {
		if _, ok := wanted[gvr]; ok || slices.Contains(unknown, gvr.GroupVersion()) && a.wants(f.of) {
			continue
		}
		f.stop()
		<-f.done
		delete(a.running, gvr)
		a.forget(f.of)
	}
	for gvr, r := range wanted {
		if a.running[gvr] != nil {
			continue
		}
		ctx, stop := context.WithCancel(ctx)
		f := &following{of: r, stop: stop, done: make(chan struct{})}
		a.running[gvr] = f
		go func() {
			defer close(f.done)
			a.follow(ctx, r)
		}()
	}
}

// follow lists and watches a resource until ctx ends. A failure is told once, until a list succeeds.
func (a *aggregated) follow(ctx context.Context, of aggregator.Resource) {
	told := ""
	tell := func(err error) {
		if ctx.Err() == nil && !apierrors.IsResourceExpired(err) && err.Error() != told {
			told = err.Error()
			a.failed(of, err)
		}
	}
	lw := listWatch{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := a.list(ctx, of, o)
			if err != nil {
				tell(err)
				return nil, err
			}
			told = ""
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := a.api.Resource(of.GroupVersionResource).Watch(ctx, o)
			if err != nil {
				tell(err)
			}
			return w, err
		},
	}}
	store := &metadataStore{a: a, of: of, known: map[types.UID]*metav1.PartialObjectMetadata{}}
	r := cache.NewReflectorWithOptions(lw, &metav1.PartialObjectMetadata{}, store, cache.ReflectorOptions{Name: of.GroupResource().String(), Logger: &klog.Logger{}})
	r.RunWithContext(klog.NewContext(ctx, klog.Logger{})) // what fails is told above
}

// list returns all objects of a resource, up to mostAggregated.
func (a *aggregated) list(ctx context.Context, of aggregator.Resource, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	all := &metav1.PartialObjectMetadataList{}
	o.Limit = aggregatedPage
	o.ResourceVersion, o.ResourceVersionMatch = "", "" // a server that has a cache answers from it without pages
	for {
		ctx, cancel := context.WithTimeout(ctx, aggregatedCall)
		page, err := a.api.Resource(of.GroupVersionResource).List(ctx, o)
		cancel()
		if err != nil {
			return nil, err
		}
		all.ListMeta = page.ListMeta
		for i := range page.Items {
			keepReferences(&page.Items[i])
		}
		if all.Items = append(all.Items, page.Items...); len(all.Items) > mostAggregated {
			return nil, fmt.Errorf("there are more than %d of %s", mostAggregated, of.GroupResource())
		}
		if page.Continue == "" {
			return all, nil
		}
		if page.Continue == o.Continue {
			return nil, errors.New("the server answers with the same page again")
		}
		o.Continue = page.Continue
	}
}

// keepReferences drops the metadata that nobody here needs.
func keepReferences(o *metav1.PartialObjectMetadata) {
	o.Labels, o.Annotations, o.ManagedFields = nil, nil, nil
}

// listWatch tells the reflector to list: a stream of initial events has no pages.
type listWatch struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is what the reflector asks.
func (listWatch) IsWatchListSemanticsUnSupported() bool { return true }

// metadataStore is what a reflector fills. It remembers what is there, because a list says
// nothing of what has gone. The reflector calls it from one goroutine.
type metadataStore struct {
	a     *aggregated
	of    aggregator.Resource
	known map[types.UID]*metav1.PartialObjectMetadata
}

// Add implements cache.ReflectorStore.
func (s *metadataStore) Add(obj any) error { return s.Update(obj) }

// Update implements cache.ReflectorStore.
func (s *metadataStore) Update(obj any) error {
	o, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok || o.UID == "" {
		return fmt.Errorf("%T without a uid", obj)
	}
	if _, known := s.known[o.UID]; !known && len(s.known) >= mostAggregated {
		return fmt.Errorf("there are more than %d of %s", mostAggregated, s.of.GroupResource())
	}
	keepReferences(o)
	was := s.known[o.UID]
	s.known[o.UID] = o
	s.a.see(s.of, was, o)
	return nil
}

// Delete implements cache.ReflectorStore.
func (s *metadataStore) Delete(obj any) error {
	o, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return fmt.Errorf("%T", obj)
	}
	if was := s.known[o.UID]; was != nil {
		delete(s.known, o.UID)
		s.a.see(s.of, was, nil)
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *metadataStore) Replace(list []any, _ string) error {
	was := s.known
	s.known = make(map[types.UID]*metav1.PartialObjectMetadata, len(list))
	for _, obj := range list {
		if o, ok := obj.(*metav1.PartialObjectMetadata); ok && o.UID != "" {
			s.known[o.UID] = o
			s.a.see(s.of, was[o.UID], o)
		}
	}
	for uid, o := range was {
		if s.known[uid] == nil {
			s.a.see(s.of, o, nil)
		}
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *metadataStore) Resync() error { return nil }
