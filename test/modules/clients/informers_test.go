package clients

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// informed is a client that follows all kinds.
type informed struct {
	name   string
	pinned bool // to one node, which restarts
	wire   *wire
	kinds  map[string]*recorder
	// reconciled is what a reconciler saw last of each object of the kinds that are
	// written, by kind and name; nil if there is none.
	reconciled func() map[string]map[string]string
}

// recorder notes what the handlers of one informer are called with.
type recorder struct {
	// store says what the client has stored: resourceVersions by name.
	store func() map[string]string

	mu      sync.Mutex
	initial int
	events  []seen
	unknown int // deletions that were found out by a relist
}

type seen struct {
	event
	at time.Time
}

// OnAdd implements cache.ResourceEventHandler.
func (r *recorder) OnAdd(o any, initial bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if initial {
		r.initial++
		return
	}
	r.events = append(r.events, seen{eventOf("ADDED", o.(client.Object)), time.Now()})
}

// OnUpdate implements cache.ResourceEventHandler.
func (r *recorder) OnUpdate(_, o any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, seen{eventOf("MODIFIED", o.(client.Object)), time.Now()})
}

// OnDelete implements cache.ResourceEventHandler.
func (r *recorder) OnDelete(o any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := o.(cache.DeletedFinalStateUnknown); ok {
		r.unknown++
		return
	}
	r.events = append(r.events, seen{eventOf("DELETED", o.(client.Object)), time.Now()})
}

// last is the newest revision that the handlers know; "" if none.
func (r *recorder) last() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.events) == 0 {
		return ""
	}
	return r.events[len(r.events)-1].revision
}

func (r *recorder) all() []seen {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]seen(nil), r.events...)
}

// configFor is the administrator's configuration with an endpoint. Each has
// connections of its own, like a program of its own.
func configFor(c *cluster.Cluster, url string) *rest.Config {
	config := c.Nodes()[0].Config()
	config.Host = url
	config.Dial = (&net.Dialer{Timeout: 5 * time.Second}).DialContext
	return config
}

// startInformers runs client-go's shared informers on an endpoint until the end
// of the test and waits for their first sync.
func startInformers(t *testing.T, c *cluster.Cluster, name, url string, useWatchList bool) *informed {
	t.Helper()
	// The reflectors of this factory are made before the sync.
	featurestesting.SetFeatureDuringTest(t, features.WatchListClient, useWatchList)
	i := &informed{name: name, wire: &wire{}, kinds: map[string]*recorder{}}
	config := configFor(c, url)
	if useWatchList {
		config.ContentType = "application/vnd.kubernetes.protobuf"
		config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	}
	config.Wrap(i.wire.wrap)
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(clientset, 0, informers.WithNamespace(namespace))
	for _, k := range watched {
		informer, err := factory.ForResource(k.gvr())
		if err != nil {
			t.Fatal(err)
		}
		i.record(t, k, informer.Informer())
		i.kinds[k.resource].store = func() map[string]string { return revisions(informer.Informer().GetStore().List()) }
	}
	ctx, cancel := context.WithCancel(context.Background())
	factory.StartWithContext(ctx)
	t.Cleanup(func() {
		cancel()
		factory.Shutdown()
	})
	i.awaitSync(t)
	return i
}

// informer is what client-go and controller-runtime have in common.
type informer interface {
	AddEventHandler(cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error)
}

func (i *informed) record(t *testing.T, k kind, informer informer) {
	t.Helper()
	r := &recorder{}
	i.kinds[k.resource] = r
	if _, err := informer.AddEventHandler(r); err != nil {
		t.Fatal(err)
	}
}

// initialObjects is how many objects of a kind there are when clients start.
func initialObjects(k kind) int {
	switch k.resource {
	case secrets.resource:
		return 0
	case configMaps.resource:
		return writersPerKind*objectsPerWriter/2 + 1 // a controller has written one
	}
	return writersPerKind * objectsPerWriter / 2
}

func (i *informed) awaitSync(t *testing.T) {
	t.Helper()
	for _, k := range watched {
		cluster.Await(t, 20*time.Second, i.name+" has synced "+k.resource, func() string {
			r := i.kinds[k.resource]
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.initial != initialObjects(k) {
				return "it is not complete"
			}
			return ""
		})
		// Idle kinds have no objects to wait for, but a read.
		cluster.Await(t, 20*time.Second, i.name+" watches "+k.resource, func() string {
			for _, r := range i.wire.all() {
				if r.resource == k.resource && r.verb != list && r.code == 200 {
					return ""
				}
			}
			return "it does not"
		})
	}
}

// revisions are the resourceVersions of objects by name.
func revisions[T any](objects []T) map[string]string {
	out := map[string]string{}
	for _, o := range objects {
		m := any(o).(metav1.Object)
		out[m.GetName()] = m.GetResourceVersion()
	}
	return out
}
