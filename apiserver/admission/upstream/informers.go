package upstream

import (
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/admissionregistration"
	"k8s.io/client-go/informers/core"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/informers/networking"
	"k8s.io/client-go/informers/node"
	"k8s.io/client-go/informers/storage"
	"k8s.io/client-go/tools/cache"
)

// Informers are the informers that upstream's plugins ask for. Each shows what is visible at the
// moment of the question: nothing is cached, nothing runs, and it is always in sync. The methods of
// the interface that it does not have panic: no plugin calls them.
type Informers struct {
	informers.SharedInformerFactory
	made map[reflect.Type]cache.SharedIndexInformer
}

// Show makes the objects of a cluster-scoped kind visible. get returns nil for what is not there.
// handle takes the handlers that a plugin adds; nil: none does.
func Show[T any](i *Informers, get func(name string) (*T, error), list func() []*T,
	handle func(cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error)) {
	if i.made == nil {
		i.made = map[reflect.Type]cache.SharedIndexInformer{}
	}
	i.made[reflect.TypeFor[*T]()] = informer{indexer: reader[T]{get: get, list: list}, handle: handle}
}

// InformerFor implements informers.SharedInformerFactory.
func (i *Informers) InformerFor(obj runtime.Object, _ internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	return i.made[reflect.TypeOf(obj)]
}

// InformerName implements informers.SharedInformerFactory.
func (*Informers) InformerName() *cache.InformerName { return nil }

// Admissionregistration and the methods below give client-go's own groups, whose listers read the indexers.
func (i *Informers) Admissionregistration() admissionregistration.Interface {
	return admissionregistration.New(i, "", nil)
}
func (i *Informers) Core() core.Interface             { return core.New(i, "", nil) }
func (i *Informers) Networking() networking.Interface { return networking.New(i, "", nil) }
func (i *Informers) Node() node.Interface             { return node.New(i, "", nil) }
func (i *Informers) Storage() storage.Interface       { return storage.New(i, "", nil) }

type informer struct {
	cache.SharedIndexInformer
	indexer cache.Indexer
	handle  func(cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error)
}

func (informer) HasSynced() bool             { return true }
func (i informer) GetIndexer() cache.Indexer { return i.indexer }

func (i informer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.handle(h)
}

// reader is the part of an indexer that listers of cluster-scoped kinds read.
type reader[T any] struct {
	cache.Indexer
	get  func(name string) (*T, error)
	list func() []*T
}

func (r reader[T]) GetByKey(key string) (any, bool, error) {
	obj, err := r.get(key)
	return obj, obj != nil, err
}

func (r reader[T]) List() []any {
	objs := r.list()
	out := make([]any, len(objs))
	for i, obj := range objs {
		out[i] = obj
	}
	return out
}
