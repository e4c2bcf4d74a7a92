package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	ours "github.com/quorate/quorate/apiserver/objects/storage"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
)

// errExists is for a create, which decides nothing but that.
var errExists = errors.New("exists")

// errNotFound is what revise replaces by upstream's error with the revision.
var errNotFound = errors.New("not found")

// revise changes the object at a key with the product's loop. The version is what
// the key is after it; nil if nothing was there and nothing was written.
func (a *adapter) revise(ctx context.Context, key string, p place, decide func(cur *mvcc.Version) (*proto.Write, error)) (_ *mvcc.Version, err error) {
	n := a.writer()
	defer func() {
		// The loop decided on a state that it had confirmed, and wrote nothing.
		if errors.Is(err, errNotFound) {
			err = a.notFound(key, uint64(n.store.State().Applied()))
		}
	}()
	if a.base > 0 {
		// A decision on an older state would be refused in the log, which costs a revision.
		if err := n.store.WaitApplied(ctx, proto.Revision(a.wrote.Load())); err != nil {
			return nil, err
		}
	}
	r := ours.Updater{Store: n.store, Confirm: n.confirm}
	did, err := r.GuaranteedUpdate(ctx, a.res.Table(), a.res.Key(p.namespace, p.name), decide)
	if err != nil {
		return nil, err
	}
	if did.After == nil {
		return did.Before, nil
	}
	a.wrote.Store(uint64(did.After.Revision))
	if a.settled {
		return did.After, a.cluster.settle(ctx, did.After.Revision)
	}
	return did.After, nil
}

// Create implements storage.Interface. Nothing expires yet: a time to live is
// ignored, here and in GuaranteedUpdate.
func (a *adapter) Create(ctx context.Context, key string, obj, out runtime.Object, _ uint64) error {
	p, err := a.object(key)
	if err != nil {
		return err
	}
	if rev, err := a.Versioner().ObjectResourceVersion(obj); err == nil && rev != 0 {
		return storage.ErrResourceVersionSetOnCreate
	}
	v, err := a.revise(ctx, key, p, func(cur *mvcc.Version) (*proto.Write, error) {
		if cur != nil {
			return nil, errExists
		}
		return a.prepare(ctx, obj)
	})
	switch {
	case errors.Is(err, errExists):
		return storage.NewKeyExistsError(key, 0)
	case err != nil:
		return err
	case out == nil:
		return nil
	}
	return a.decode(v, out)
}

// prepare makes the write that stores an object, without what storage adds.
func (a *adapter) prepare(ctx context.Context, obj runtime.Object) (*proto.Write, error) {
	obj = obj.DeepCopyObject()
	if err := a.Versioner().PrepareObjectForStorage(obj); err != nil {
		return nil, fmt.Errorf("prepare object: %w", err)
	}
	return a.encode(ctx, obj)
}

// GuaranteedUpdate implements storage.Interface. The suggestion is not needed: the
// local state is one.
func (a *adapter) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, _ runtime.Object) error {
	p, err := a.object(key)
	if err != nil {
		return err
	}
	v, err := a.revise(ctx, key, p, func(cur *mvcc.Version) (*proto.Write, error) {
		obj, stale, err := a.existing(ctx, cur, ignoreNotFound)
		if err != nil {
			return nil, err
		}
		if err := preconditions.Check(key, obj); err != nil {
			return nil, err
		}
		var response storage.ResponseMeta
		if cur != nil {
			response.ResourceVersion = uint64(cur.Revision) - a.base
		}
		changed, _, err := update(obj, response)
		if err != nil {
			return nil, err
		}
		w, err := a.prepare(ctx, changed)
		if err != nil {
			return nil, err
		}
		if cur != nil && !stale && same(w, cur) {
			return nil, nil
		}
		return w, nil
	})
	if err != nil {
		return err
	}
	return a.decode(v, out)
}

// existing is the object that an update or a delete starts from.
func (a *adapter) existing(ctx context.Context, cur *mvcc.Version, ignoreNotFound bool) (obj *example.Pod, stale bool, err error) {
	obj = &example.Pod{}
	if cur == nil {
		if !ignoreNotFound {
			err = errNotFound
		}
		return obj, false, err
	}
	if stale, err = a.look(ctx, cur.Value()); err != nil {
		return nil, stale, err
	}
	return obj, stale, a.decode(cur, obj)
}

// same reports whether a write would store what is there, but for the revision.
func same(w *proto.Write, cur *mvcc.Version) bool {
	end := int(w.RevisionOffset) + len(cur.Revision.String())
	return w.RevisionOffset == cur.RevisionOffset && end <= len(cur.Value()) &&
		bytes.Equal(w.Value[:w.RevisionOffset], cur.Value()[:w.RevisionOffset]) &&
		bytes.Equal(w.Value[w.RevisionOffset:], cur.Value()[end:])
}

// Delete implements storage.Interface.
func (a *adapter) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, _ runtime.Object, _ storage.DeleteOptions) error {
	p, err := a.object(key)
	if err != nil {
		return err
	}
	v, err := a.revise(ctx, key, p, func(cur *mvcc.Version) (*proto.Write, error) {
		obj, _, err := a.existing(ctx, cur, false)
		if err != nil {
			return nil, err
		}
		if err := preconditions.Check(key, obj); err != nil {
			return nil, err
		}
		if err := validate(ctx, obj); err != nil {
			return nil, err
		}
		return &proto.Write{Op: proto.Op_OP_DELETE}, nil
	})
	if err != nil {
		return err
	}
	return a.decode(v, out)
}
