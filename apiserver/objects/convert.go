package objects

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/apiserver/types/conversion"
	"github.com/quorate/quorate/apiserver/types/crd"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/apiserver/wire/status"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"k8s.io/apimachinery/pkg/runtime"
)

// Custom resources whose versions differ are converted by a webhook of their
// definition: before codec sees a version that is stored in another one, and before an
// object is encoded. It happens in goroutines of the request or the watch, which waits for them, without
// a lock; what has come of it is shared by all that want the same.

// Bounds of conversions, in bytes but for the number of objects.
const (
	// conversionCache is what is kept of converted objects.
	conversionCache = 32 << 20
	// batchObjects and batchBytes are what one review has at most.
	batchObjects = 100
	batchBytes   = 2 << 20
	// convertedList is what one list may have of converted objects: they are all there
	// before the first is sent.
	convertedList = 128 << 20
	// listCalls is how many reviews of one list are under way at a time: half of what one webhook is asked at a time.
	listCalls = 4
)

// conversionKey is a revision of an object, in the form of another version.
type conversionKey struct {
	table, key string
	revision   proto.Revision
	from, to   string // forms
	webhook    string
}

type conversions = conversion.Cache[conversionKey, *mvcc.Version]

// WebhookOf is the webhook that converts a resource's objects; nil for built-in ones
// and for custom ones whose versions have the same fields.
func WebhookOf(res *kinds.Resource) *conversion.Webhook {
	if v := crd.Of(res); v != nil {
		return v.Definition().Webhook()
	}
	return nil
}

// ConvertAll returns versions as codec can show them in the version of res: those that only
// a webhook can convert are replaced. versions is not changed. Errors: the webhook's,
// as Status errors, and the context's.
func (s *Store) ConvertAll(ctx context.Context, res *kinds.Resource, versions []*mvcc.Version) ([]*mvcc.Version, error) {
	if WebhookOf(res) == nil {
		return versions, nil
	}
	to := crd.Of(res)
	var batches []*stored
	for i, v := range versions {
		from, err := to.Definition().StoredIn(codec.FormOf(v))
		if err != nil {
			return nil, conversion.Internal(err)
		}
		if from == to {
			continue
		}
		if len(batches) == 0 || batches[len(batches)-1].full() {
			batches = append(batches, new(stored))
		}
		batches[len(batches)-1].add(i, v, from)
	}
	if len(batches) == 0 {
		return versions, nil
	}
	l := listConversion{store: s, to: to, batches: batches, out: slices.Clone(versions)}
	if err := l.run(ctx); err != nil {
		return nil, err
	}
	return l.out, nil
}

// listConversion converts what a list has of other versions, a few batches at a time: while the
// webhook thinks about one, others are encoded, sent and read.
type listConversion struct {
	store   *Store
	to      *crd.Version
	batches []*stored
	out     []*mvcc.Version // the list. Each batch has its own places in it

	next  atomic.Int64 // of the batches
	total atomic.Int64 // bytes of what was converted
}

// run converts all batches, or returns the first failure.
func (l *listConversion) run(ctx context.Context) error {
	if len(l.batches) == 1 {
		return l.convert(ctx, l.batches[0])
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var panicked atomic.Pointer[string]
	for range min(listCalls, len(l.batches)) {
		wg.Go(func() {
			// What contains a request's panic does not reach this goroutine.
			defer func() {
				if p := recover(); p != nil {
					text := fmt.Sprintf("%v\n%s", p, debug.Stack())
					panicked.Store(&text)
					cancel(nil)
				}
			}()
			for ctx.Err() == nil {
				n := l.next.Add(1) - 1
				if n >= int64(len(l.batches)) {
					return
				}
				if err := l.convert(ctx, l.batches[n]); err != nil {
					cancel(err) // the first one counts: what the others say of it is the end of ctx
				}
			}
		})
	}
	wg.Wait()
	if p := panicked.Load(); p != nil {
		panic(*p)
	}
	return context.Cause(ctx)
}

// convert converts a batch.
func (l *listConversion) convert(ctx context.Context, b *stored) error {
	made, err := l.store.convertStored(ctx, l.to, b)
	if err != nil {
		return err
	}
	total := int64(0)
	for i, at := range b.at {
		l.out[at] = made[i]
		total += int64(made[i].ValueSize())
	}
	if l.total.Add(total) > convertedList {
		return status.BadRequest("the objects have more than %d bytes and need conversion by a webhook: use limit", convertedList)
	}
	return nil
}

// stored are versions that are converted together.
type stored struct {
	at       []int // where they are among all
	versions []*mvcc.Version
	from     []*crd.Version
	bytes    int
}

func (b *stored) add(at int, v *mvcc.Version, from *crd.Version) {
	b.at, b.versions, b.from = append(b.at, at), append(b.versions, v), append(b.from, from)
	b.bytes += v.ValueSize()
}

func (b *stored) full() bool { return len(b.at) >= batchObjects || b.bytes >= batchBytes }

// convertStored converts what nobody has converted yet, and waits for what others are
// converting.
func (s *Store) convertStored(ctx context.Context, to *crd.Version, b *stored) ([]*mvcc.Version, error) {
	res, hook := to.Resource(), to.Definition().Webhook()
	keys := make([]conversionKey, len(b.versions))
	for i, v := range b.versions {
		keys[i] = conversionKey{table: res.Table(), key: v.Key, revision: v.Revision, from: codec.FormOf(v) + b.from[i].Resource().StorageForm, to: res.StorageForm, webhook: hook.ID()}
	}
	out, err := s.conversions.Get(ctx, keys, s.Webhooks.Timeout(), func(ctx context.Context, missing []int) ([]*mvcc.Version, []int64, error) {
		objects := make([]tree.Object, len(missing))
		for n, i := range missing {
			var err error
			if objects[n], err = codec.DecodeStored(b.from[i].Resource(), b.versions[i]); err != nil {
				return nil, nil, err
			}
		}
		objects, err := s.askWebhook(ctx, to, objects)
		if err != nil {
			return nil, nil, err
		}
		if err := prune(to, objects); err != nil {
			return nil, nil, err
		}
		out, sizes := make([]*mvcc.Version, len(missing)), make([]int64, len(missing))
		for n, i := range missing {
			if out[n], err = codec.InForm(res, b.versions[i], objects[n]); err != nil {
				return nil, nil, err
			}
			sizes[n] = int64(out[n].ValueSize()) + 512
		}
		return out, sizes, nil
	})
	return out, s.late(err, b.from[0])
}

// late words that a webhook left no time for a second attempt.
func (s *Store) late(err error, of *crd.Version) error {
	if errors.Is(err, conversion.ErrLate) {
		return conversion.Internal(fmt.Errorf("conversion webhook for %v failed: no answer within %s", of.Resource().GVK(), s.Webhooks.Timeout()))
	}
	return err
}

// askWebhook has the definition's webhook convert objects of its other versions.
func (s *Store) askWebhook(ctx context.Context, to *crd.Version, objects []tree.Object) ([]tree.Object, error) {
	return s.Webhooks.Convert(ctx, to.Definition().Webhook(), objects, to.Resource().GroupVersion())
}

// prune brings objects that were converted into the form of their version.
func prune(to *crd.Version, objects []tree.Object) error {
	for _, obj := range objects {
		if err := to.Prune(obj); err != nil {
			return conversion.Internal(err)
		}
	}
	return nil
}

// ConvertOne is ConvertAll for one version.
func (r *reader) ConvertOne(v *mvcc.Version) (*mvcc.Version, error) {
	if WebhookOf(r.Resource) == nil {
		return v, nil
	}
	out, err := r.Store.ConvertAll(r.Context, r.Resource, []*mvcc.Version{v})
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// Decode is a stored version as a tree of the resource.
func (r *reader) Decode(v *mvcc.Version) (tree.Object, error) {
	v, err := r.ConvertOne(v)
	if err != nil {
		return nil, err
	}
	obj, err := codec.DecodeStored(r.Resource, v)
	if err != nil && r.Resource.Custom {
		// What upstream's conversion says of what it cannot read.
		err = conversion.Internal(err)
	}
	return obj, err
}

// notStored reports whether the operation's version of a custom resource is another one than what is stored.
func (r *reader) notStored() bool {
	v := crd.Of(r.Resource)
	return v != nil && v != v.Definition().StorageVersion()
}

// forStorage is an object of the resource in the version that is stored, complete. obj is
// not changed.
func (o *converter) forStorage(obj tree.Object) (tree.Object, *kinds.Resource, error) {
	of := crd.Of(o.Resource)
	if of == nil {
		return obj, o.Resource, nil
	}
	to := of.Definition().StorageVersion()
	if to == nil || to == of {
		return obj, o.Resource, nil
	}
	kept, err := o.convertPart(obj, to)
	if err != nil {
		return nil, nil, err
	}
	if err := to.Complete(kept); err != nil {
		return nil, nil, conversion.Internal(err)
	}
	return kept, to.Resource(), nil
}

// convertPart is convertTree for a write that may be of a subresource. That changes nothing else, also of what the
// operation's version does not know, or has a default for: upstream converts the whole object, and loses it
// (kubernetes#133704).
func (o *converter) convertPart(obj tree.Object, to *crd.Version) (tree.Object, error) {
	if o.partOf == nil {
		return o.convertTree(obj, to)
	}
	stored, err := o.Store.DecodeAll(o.Context, to.Resource(), []*mvcc.Version{o.partOf})
	if err != nil {
		return nil, err
	}
	out, err := o.convertTrees([]tree.Object{obj, o.partSeen}, to)
	if err != nil {
		return nil, err
	}
	kept, seen := out[0], out[1]
	meta := kept["metadata"]
	delete(kept, "metadata")
	delete(seen, "metadata")
	delete(stored[0], "metadata")
	if kept, err = to.Changed(kept, seen, stored[0]); err != nil {
		return nil, err
	}
	kept["metadata"] = meta
	return kept, nil
}

// renamed is an object that says to be of another version, which is all that conversion None does.
func renamed(obj tree.Object, to *crd.Version) tree.Object {
	out := runtime.DeepCopyJSON(obj)
	out["apiVersion"] = to.Resource().GroupVersion().String()
	return out
}

// Bounds of what an operation keeps of its conversions, in bytes of objects as JSON, and how many bytes
// of memory one of those is taken for.
const (
	convertedTrees = 4 << 20
	treeBytes      = 8
)

// treeKey is an object as a webhook is sent it, and the version that it is wanted in.
type treeKey struct {
	sent [sha256.Size]byte
	to   *crd.Version
}

// convertTrees are objects of one other version of the same definition in a version. The results share nothing with objs,
// nor with each other.
func (o *converter) convertTrees(objs []tree.Object, to *crd.Version) ([]tree.Object, error) {
	out, err := o.convertWhole(objs, to)
	if err != nil {
		return nil, err
	}
	return out, prune(to, out)
}

// convertWhole is convertTrees for admission: what the version does not know stays. An object is seen by plugins in their
// version and comes back, and what it has in its own must not be lost on the way. A webhook is asked once about what the
// operation has more than once: the same bytes, metadata included. A newer object is another one.
func (o *converter) convertWhole(objs []tree.Object, to *crd.Version) ([]tree.Object, error) {
	if to.Definition().Webhook() == nil {
		return each(objs, func(obj tree.Object) (tree.Object, error) { return renamed(obj, to), nil })
	}
	if o.unanswered != nil {
		return nil, o.unanswered
	}
	keys, sizes, total := make([]treeKey, len(objs)), make([]int64, len(objs)), 0
	for i, obj := range objs {
		raw, err := json.Marshal(obj)
		if err != nil {
			return nil, conversion.Internal(err)
		}
		keys[i], sizes[i] = treeKey{sha256.Sum256(raw), to}, treeBytes*int64(len(raw))
		total += len(raw)
	}
	if len(objs) > 1 && total > batchBytes {
		return each(objs, func(obj tree.Object) (tree.Object, error) {
			out, err := o.convertWhole([]tree.Object{obj}, to)
			if err != nil {
				return nil, err
			}
			return out[0], nil
		})
	}
	if o.trees == nil {
		o.trees = conversion.NewCache[treeKey, tree.Object](treeBytes * convertedTrees)
	}
	began := time.Now()
	made, err := o.trees.Get(o.Context, keys, o.Store.Webhooks.Timeout(), func(ctx context.Context, missing []int) ([]tree.Object, []int64, error) {
		wanted, cost := make([]tree.Object, len(missing)), make([]int64, len(missing))
		for n, i := range missing {
			wanted[n], cost[n] = objs[i], sizes[i]
		}
		out, err := o.Store.askWebhook(ctx, to, wanted)
		return out, cost, err
	})
	if err != nil {
		if time.Since(began) >= o.Store.Webhooks.Timeout() {
			o.unanswered = err
		}
		return nil, err
	}
	for i, obj := range made {
		made[i] = runtime.DeepCopyJSON(obj)
	}
	return made, nil
}

// convertTree is convertTrees for one object.
func (o *converter) convertTree(obj tree.Object, to *crd.Version) (tree.Object, error) {
	out, err := o.convertTrees([]tree.Object{obj}, to)
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// convertAmong converts objects for who merges their managed fields.
func (o *converter) convertAmong(objs []tree.Object, _, to *kinds.Resource) ([]tree.Object, error) {
	return o.convertTrees(objs, crd.Of(to))
}

func (s *Store) convertAmong(objs []tree.Object, from, to *kinds.Resource) ([]tree.Object, error) {
	return each(objs, func(obj tree.Object) (tree.Object, error) { return s.Convert(obj, from, to) })
}

func each(objs []tree.Object, convert func(tree.Object) (tree.Object, error)) ([]tree.Object, error) {
	out := make([]tree.Object, len(objs))
	for i, obj := range objs {
		var err error
		if out[i], err = convert(obj); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Convert returns an object in another version of its resource, for those who have no context: they merge managed fields
// without a webhook. obj is not changed, but the result may share with it. Errors: a webhook's, as Status errors.
func (s *Store) Convert(obj tree.Object, from, to *kinds.Resource) (tree.Object, error) {
	out, err := s.ConvertWhole(obj, from, to)
	if v := crd.Of(to); v != nil && err == nil {
		err = prune(v, []tree.Object{out})
	}
	return out, err
}

// ConvertWhole is Convert for those who decide on admission: what the version does not know stays, see Op.convertWhole.
func (s *Store) ConvertWhole(obj tree.Object, from, to *kinds.Resource) (tree.Object, error) {
	v := crd.Of(to)
	switch {
	case v == nil:
		return kinds.Convert(obj, from, to)
	case v.Definition().Webhook() == nil:
		return renamed(obj, v), nil
	}
	ctx, cancel := context.WithTimeout(s.Life, fieldConversion)
	defer cancel()
	out, err := s.askWebhook(ctx, v, []tree.Object{obj})
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// fieldConversion bounds a conversion for those who have no context, waiting for
// others included.
const fieldConversion = 30 * time.Second

// DecodeAll decodes stored versions as objects of a resource. Errors: a webhook's, as Status
// errors, the context's, and a version that cannot be read.
func (s *Store) DecodeAll(ctx context.Context, res *kinds.Resource, versions []*mvcc.Version) ([]tree.Object, error) {
	versions, err := s.ConvertAll(ctx, res, versions)
	if err != nil {
		return nil, err
	}
	out := make([]tree.Object, len(versions))
	for i, v := range versions {
		if out[i], err = codec.DecodeStored(res, v); err != nil {
			return nil, conversion.Internal(err)
		}
	}
	return out, nil
}

// inStoredForm changes an object of a version that is stored in another form in that form, as
// upstream's strategies do: what is a field there may be an annotation here. sent and old, which
// change reads, may be nil. obj has metadata of its own, and is the result.
func (r *reader) inStoredForm(obj, sent, old tree.Object, change func(obj, sent, old tree.Object) error) (tree.Object, error) {
	forms := [...]tree.Object{obj, sent, old}
	for i, x := range forms {
		if x == nil {
			continue
		}
		var err error
		if forms[i], err = r.Resource.ToStored(x); err != nil {
			return nil, err
		}
	}
	if err := change(forms[0], forms[1], forms[2]); err != nil {
		return nil, err
	}
	return r.Resource.FromStored(forms[0])
}

// normalize makes an object, in place, what it will be when it is read back: a
// version that is stored in another form leaves out, or adds, what only that says.
func (r *reader) normalize(obj tree.Object) error {
	if r.Resource.Conversion == "" {
		return nil
	}
	stored, err := r.Resource.ToStored(obj)
	if err != nil {
		return err
	}
	shown, err := r.Resource.FromStored(stored)
	if err != nil {
		return err
	}
	for name, v := range shown {
		if name != "metadata" { // its holder has it, too
			obj[name] = v
		}
	}
	tree.CopyField(tree.As(obj["metadata"]), tree.As(shown["metadata"]), "annotations")
	return nil
}
