package controllers

import (
	"bytes"
	"context"
	"maps"
	"slices"

	"github.com/quorate/quorate/apiserver/codec"
	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/tree"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var _ API = (*Loops)(nil)

// Published implements Garbage.
func (l *Loops) Published() (<-chan struct{}, func()) { return l.cfg.Published() }

// FollowObjects implements Garbage.
func (l *Loops) FollowObjects() ObjectFollower {
	return &objectFollower{l: l, read: map[string]bool{}}
}

// objectFollower is a position in the histories of all tables that have owners or
// dependents in them.
type objectFollower struct {
	l *Loops
	// read are the tables of which everything up to after was told. Others are told
	// as a whole: nobody served them before.
	read  map[string]bool
	after proto.Revision
	buf   [256]*mvcc.Version
}

// Next implements ObjectFollower. The tables are read one after the
// other, all up to the same revision.
func (f *objectFollower) Next(see func(Change)) error {
	state := f.l.objects.Storage.State()
	// The mark before the tables: one that does not exist after it was read has
	// nothing at or below it.
	upTo := state.Applied()
	tables := f.l.objects.Tables()
	for _, name := range tables.Names {
		if tables.ByName[name].Dependents == kinds.DependentsUnsupported {
			continue
		}
		t := state.Table(name)
		switch {
		case t == nil || f.read[name] && t.Latest() <= f.after:
		case f.read[name]:
			if err := f.changes(t, upTo, see); err != nil {
				return err
			}
		default:
			if err := f.all(t, upTo, see); err != nil {
				return err
			}
		}
		f.read[name] = true
	}
	f.after = max(f.after, upTo)
	return nil
}

// all tells what a table holds, in pages.
func (f *objectFollower) all(t *mvcc.Table, at proto.Revision, see func(Change)) error {
	q := mvcc.Query{At: at, Limit: 4096, Match: mayHaveOwners}
	for {
		page, err := t.Range(q)
		if err != nil {
			return err
		}
		for _, v := range page.Versions {
			f.emit(t.Name(), v, see)
		}
		if !page.More {
			return nil
		}
		q.From = page.Next
	}
}

func (f *objectFollower) changes(t *mvcc.Table, upTo proto.Revision, see func(Change)) error {
	cursor, err := t.Watch(f.after)
	if err != nil {
		return err
	}
	for {
		n, err := cursor.Next(f.buf[:], upTo)
		if err != nil {
			return err
		}
		for _, v := range f.buf[:n] {
			f.emit(t.Name(), v, see)
		}
		if n < len(f.buf) {
			clear(f.buf[:])
			return nil
		}
	}
}

func (f *objectFollower) emit(table string, v *mvcc.Version, see func(Change)) {
	ch := Change{UID: v.UID, Gone: v.Deleted}
	if !v.Deleted && mayHaveOwners(v) {
		o, err := objectOf(table, v)
		switch {
		case err != nil:
			// One value that cannot be read must not keep all others from the collector.
			f.l.objects.Log.Warn("the garbage collector leaves an object alone that it cannot read", "table", table, "key", v.Key, "revision", v.Revision, "err", err)
		case len(o.Owners) > 0 || o.Deleting && (o.Foreground || o.Orphan):
			ch.Object = o
		}
	}
	see(ch)
}

var ownerReferencesKey = []byte(`"ownerReferences":`)

// mayHaveOwners reports whether an object may have owners, or be deleted and wait
// for something. It may be wrong about the first, not about none.
func mayHaveOwners(v *mvcc.Version) bool {
	if v.Flags&proto.FlagTerminating != 0 {
		return true
	}
	raw, err := codec.RawMetadata(v)
	return err != nil || bytes.Contains(raw, ownerReferencesKey)
}

// objectOf reads what the garbage collector wants to know from a version.
func objectOf(table string, v *mvcc.Version) (*Object, error) {
	raw, err := codec.RawMetadata(v)
	if err != nil {
		return nil, err
	}
	meta, err := codec.ParseMetadata(raw)
	if err != nil {
		return nil, err
	}
	o := &Object{
		ObjectKey: ObjectKey{Table: table, Key: v.Key},
		UID:       v.UID, Revision: v.Revision.String(), Deleting: tree.Text(meta, "deletionTimestamp") != "",
	}
	finalizers, _ := tree.Strings(meta["finalizers"])
	o.Foreground = slices.Contains(finalizers, metav1.FinalizerDeleteDependents)
	o.Orphan = slices.Contains(finalizers, metav1.FinalizerOrphanDependents)
	refs, _ := meta["ownerReferences"].([]any)
	for _, r := range refs {
		m, _ := r.(tree.Object)
		blocks, _ := m["blockOwnerDeletion"].(bool)
		o.Owners = append(o.Owners, Owner{
			APIVersion: tree.Text(m, "apiVersion"), Kind: tree.Text(m, "kind"), Name: tree.Text(m, "name"), UID: tree.Text(m, "uid"), Blocks: blocks,
		})
	}
	return o, nil
}

// GetObject implements Garbage.
func (l *Loops) GetObject(key ObjectKey) (*Object, error) {
	v, err := l.objects.Current(key.Table, key.Key)
	if err != nil || v == nil {
		return nil, err
	}
	return objectOf(key.Table, v)
}

// OwnerState implements Garbage. An owner is looked for in the
// dependent's own namespace, or among those without one.
func (l *Loops) OwnerState(key ObjectKey, o Owner) (OwnerState, error) {
	gv, err := schema.ParseGroupVersion(o.APIVersion)
	if err != nil {
		return OwnerUnknown, nil
	}
	tables := l.objects.Tables()
	res := tables.Registry.LookupKind(gv.WithKind(o.Kind))
	if res == nil || res.Virtual {
		return OwnerUnknown, nil
	}
	namespace, _ := objects.SplitKey(tables.ByName[key.Table], key.Key)
	if res.Namespaced && namespace == "" {
		return OwnerImpossible, nil
	}
	v, err := l.objects.Current(res.Table(), res.Key(namespace, o.Name))
	switch {
	case err != nil:
		return 0, err
	case v == nil || v.UID != o.UID:
		return OwnerAbsent, nil
	case v.Flags&proto.FlagTerminating == 0:
		return OwnerThere, nil
	}
	owner, err := objectOf(res.Table(), v)
	switch {
	case err != nil:
		return 0, err
	case owner.Deleting && owner.Foreground:
		return OwnerWaiting, nil
	}
	return OwnerThere, nil
}

// DeleteObject implements Garbage.
func (l *Loops) DeleteObject(ctx context.Context, o *Object, policy Propagation) error {
	c, err := l.objects.SystemAt(ctx, o.Table, o.Key, "delete")
	if err != nil {
		return err
	}
	uid, propagation := types.UID(o.UID), metav1.DeletionPropagation(policy)
	_, err = c.DeleteAs(asGarbageCollector, &metav1.DeleteOptions{
		PropagationPolicy: &propagation,
		Preconditions:     &metav1.Preconditions{UID: &uid, ResourceVersion: &o.Revision},
	})
	return err
}

// DropOwners implements Garbage.
func (l *Loops) DropOwners(ctx context.Context, key ObjectKey, uid string, owners []string) error {
	return l.amend(ctx, key, uid, func(meta tree.Object) {
		refs, _ := meta["ownerReferences"].([]any)
		kept := slices.DeleteFunc(slices.Clone(refs), func(r any) bool {
			m, _ := r.(tree.Object)
			return slices.Contains(owners, tree.Text(m, "uid"))
		})
		if meta["ownerReferences"] = kept; len(kept) == 0 {
			delete(meta, "ownerReferences")
		}
	})
}

// UnblockOwners implements Garbage.
func (l *Loops) UnblockOwners(ctx context.Context, key ObjectKey, uid string) error {
	return l.amend(ctx, key, uid, func(meta tree.Object) {
		refs, _ := meta["ownerReferences"].([]any)
		free := make([]any, len(refs))
		for i, r := range refs {
			m, _ := r.(tree.Object)
			if m["blockOwnerDeletion"] == true {
				m = maps.Clone(m)
				m["blockOwnerDeletion"] = false
			}
			free[i] = m
		}
		meta["ownerReferences"] = free
	})
}

// DropFinalizer implements Garbage.
func (l *Loops) DropFinalizer(ctx context.Context, key ObjectKey, uid, finalizer string) error {
	return l.amend(ctx, key, uid, func(meta tree.Object) {
		list, _ := tree.Strings(meta["finalizers"])
		tree.SetFinalizers(meta, slices.DeleteFunc(list, func(f string) bool { return f == finalizer }))
	})
}

// collectorsManager is the manager of the fields that the collector changes: as
// upstream, where it is a part of that program.
const collectorsManager = "kube-controller-manager"

// amend changes metadata of the object with a uid, and only that: what was valid
// when it was stored need not be so by the rules of today. change replaces what it
// changes below the first level.
func (l *Loops) amend(ctx context.Context, key ObjectKey, uid string, alter func(meta tree.Object)) error {
	o, err := l.objects.SystemAt(ctx, key.Table, key.Key, "patch")
	if err != nil {
		return err
	}
	o.Manager = collectorsManager
	_, err = o.GuaranteedUpdate(key.Key, func(cur *mvcc.Version) (objects.Change, error) {
		if cur == nil || cur.UID != uid {
			return objects.Change{}, o.NotFound()
		}
		old, obj, meta, err := o.Editable(cur)
		if err != nil {
			return objects.Change{}, err
		}
		alter(meta)
		if err := o.Track(obj, old); err != nil {
			return objects.Change{}, err
		}
		if o.Released(obj, meta, tree.As(old["metadata"])) {
			return o.EncodeChange(proto.Op_OP_DELETE, obj)
		}
		return o.PutUnlessSame(obj, cur)
	})
	return err
}

// Gone implements Garbage.
func (l *Loops) Gone(err error) bool { return apierrors.IsNotFound(err) }

// Conflict implements Garbage.
func (l *Loops) Conflict(err error) bool { return apierrors.IsConflict(err) }
