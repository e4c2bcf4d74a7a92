package storage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"k8s.io/apimachinery/pkg/api/apitesting"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/storage"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/apiserver/pkg/storage/value"
)

// objects is how the suite's example objects are written and read.
var objects = func() runtime.Codec {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	utilruntime.Must(example.AddToScheme(scheme))
	utilruntime.Must(examplev1.AddToScheme(scheme))
	return apitesting.TestCodec(serializer.NewCodecFactory(scheme), examplev1.SchemeGroupVersion)
}()

// adapter is Quorate as a storage.Interface. Safe for concurrent use.
type adapter struct {
	cluster *cluster
	res     *kinds.Resource
	// readers and writers are the nodes that calls go to, in turn.
	readers, writers []*node
	reads, writes    atomic.Int64
	// settled makes writes return when every node has applied them.
	settled bool
	// base is taken from every revision of the store, so that a suite that counts from 1
	// can be told of a store that has written before. See revisions_test.go.
	base uint64
	// wrote is the newest revision that was written here.
	wrote       atomic.Uint64
	transformer atomic.Pointer[value.Transformer]
}

var (
	_ storage.Interface                             = (*adapter)(nil)
	_ storagetesting.InterfaceWithPrefixTransformer = (*adapter)(nil)
)

func newAdapter(t *testing.T, c *cluster, readers, writers []*node, namespaced bool) *adapter {
	a := &adapter{cluster: c, res: c.kind(t, namespaced), readers: readers, writers: writers}
	a.transform(storagetesting.NewPrefixTransformer(nil, false))
	return a
}

func (a *adapter) reader() *node { return a.readers[int(a.reads.Add(1))%len(a.readers)] }
func (a *adapter) writer() *node { return a.writers[int(a.writes.Add(1))%len(a.writers)] }

// Versioner implements storage.Interface.
func (a *adapter) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }

// ReadinessCheck implements storage.Interface: start has waited.
func (a *adapter) ReadinessCheck() error { return nil }

// RequestWatchProgress implements storage.Interface. A watch of ours needs no
// request: every node knows how far its history goes.
func (a *adapter) RequestWatchProgress(context.Context) error { return nil }

// EnableResourceSizeEstimation implements storage.Interface.
func (a *adapter) EnableResourceSizeEstimation(storage.KeysFunc) error {
	return errors.New("sizes are not estimated from keys")
}

// Stats implements storage.Interface.
func (a *adapter) Stats(ctx context.Context) (storage.Stats, error) {
	n := a.reader()
	if err := n.confirm(ctx); err != nil {
		return storage.Stats{}, err
	}
	t := n.store.State().Table(a.res.Table())
	if t == nil {
		return storage.Stats{}, nil
	}
	keys, _ := t.Live()
	return storage.Stats{ObjectCount: keys}, nil
}

// GetCurrentResourceVersion implements storage.Interface: a list says it.
func (a *adapter) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	list := &example.PodList{}
	one := storage.Everything
	one.Limit = 1
	if err := a.GetList(ctx, prefix, storage.ListOptions{Recursive: true, Predicate: one}, list); err != nil {
		return 0, err
	}
	return a.Versioner().ParseResourceVersion(list.ResourceVersion)
}

// CompactRevision implements storage.Interface.
func (a *adapter) CompactRevision() int64 { return int64(a.reader().store.State().Floor()) }

// confirm returns when the node's state includes everything that was
// acknowledged before.
func (n *node) confirm(ctx context.Context) error {
	_, err := n.reader.Await(ctx, consistency.Plan{Mode: consistency.MostRecent})
	return err
}

// encode makes the write that stores an object.
func (a *adapter) encode(ctx context.Context, obj runtime.Object) (*proto.Write, error) {
	text, err := runtime.Encode(objects, obj)
	if err != nil {
		return nil, err
	}
	body, err := codec.Decode("application/json", text, a.res)
	if err != nil {
		return nil, err
	}
	w := &proto.Write{Op: proto.Op_OP_PUT}
	if w.Value, w.RevisionOffset, err = codec.EncodeFor(a.res, body.Object); err != nil {
		return nil, err
	}
	w.Labels, w.Fields = a.res.Attributes(body.Object)
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	w.Uid = string(m.GetUID())
	stored, err := (*a.transformer.Load()).TransformToStorage(ctx, w.Value, value.DefaultContext(nil))
	if err != nil {
		return nil, storage.NewInternalError(err)
	}
	w.RevisionOffset += uint32(len(stored) - len(w.Value))
	w.Value = stored
	return w, nil
}

// decode reads a version into an object.
func (a *adapter) decode(v *mvcc.Version, out runtime.Object) error {
	tree, err := codec.DecodeStored(a.res, v)
	if err != nil {
		return storage.NewInternalError(err)
	}
	text, err := json.Marshal(tree)
	if err != nil {
		return err
	}
	return a.into(text, out)
}

// look shows a value that was read to the transformer, which may act on it.
func (a *adapter) look(ctx context.Context, stored []byte) (stale bool, err error) {
	if _, stale, err = (*a.transformer.Load()).TransformFromStorage(ctx, stored, value.DefaultContext(nil)); err != nil {
		err = storage.NewInternalError(err)
	}
	return stale, err
}

// into decodes an object of the suite.
func (a *adapter) into(text []byte, out runtime.Object) error {
	if err := zero(out); err != nil {
		return err
	}
	if err := runtime.DecodeInto(objects, text, out); err != nil {
		return fmt.Errorf("decode %s: %w", bytes.TrimSpace(text), err)
	}
	return a.tell(out)
}

// zero empties an object.
func zero(out runtime.Object) error {
	v, err := conversion.EnforcePtr(out)
	if err != nil {
		return err
	}
	v.SetZero()
	return nil
}

// transform sets the transformer of values. It stands at the adapter's end, where
// it can make stored bytes unusual or call a value stale; the nodes know nothing
// of it.
func (a *adapter) transform(t value.Transformer) { a.transformer.Store(&t) }

// UpdatePrefixTransformer implements storagetesting.InterfaceWithPrefixTransformer.
func (a *adapter) UpdatePrefixTransformer(modify storagetesting.PrefixTransformerModifier) func() {
	old := *a.transformer.Load()
	prefix := *old.(*storagetesting.PrefixTransformer)
	a.transform(modify(&prefix))
	return func() { a.transform(old) }
}
