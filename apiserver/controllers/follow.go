package controllers

import (
	"bytes"
	"slices"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// follower is a position in the histories of all tables that have owners or
// dependents in them.
type follower struct {
	objects *objects.Store
	// read are the tables of which everything up to after was told. Others are told
	// as a whole: they were not served before.
	read  map[string]bool
	after proto.Revision
	buf   [256]*mvcc.Version
}

// next calls see for each change since the last call, in the order of the log for each
// resource; the first call tells everything that is there. The tables are read one after
// the other, all up to the same revision. It does not wait. An error ends it: the history
// has moved on.
func (f *follower) next(see func(change)) error {
	state := f.objects.Storage.State()
	// The mark before the tables: one that does not exist after it was read has
	// nothing at or below it.
	upTo := state.Applied()
	tables := f.objects.Tables()
	for _, name := range tables.Names {
		if tables.ByName[name].Dependents == kinds.DependentsUnsupported {
			continue
		}
		t := state.Table(name)
		switch {
		case f.read[name] && state.Latest(name) <= f.after, t == nil && !f.read[name]:
		case t == nil: // its last object was deleted since, and the floor has passed that
			return mvcc.ErrCompacted
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
func (f *follower) all(t *mvcc.Table, at proto.Revision, see func(change)) error {
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

func (f *follower) changes(t *mvcc.Table, upTo proto.Revision, see func(change)) error {
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

func (f *follower) emit(table string, v *mvcc.Version, see func(change)) {
	ch := change{uid: v.UID, gone: v.Deleted}
	if !v.Deleted && mayHaveOwners(v) {
		o, err := objectOf(table, v)
		switch {
		case err != nil:
			// One value that cannot be read must not keep all others from the collector.
			f.objects.Log.Warn("the garbage collector leaves an object alone that it cannot read", "table", table, "key", v.Key, "revision", v.Revision, "err", err)
		case len(o.Owners) > 0 || o.Deleting && (o.Foreground || o.Orphan):
			ch.object = o
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
func objectOf(table string, v *mvcc.Version) (*object, error) {
	raw, err := codec.RawMetadata(v)
	if err != nil {
		return nil, err
	}
	meta, err := codec.ParseMetadata(raw)
	if err != nil {
		return nil, err
	}
	o := &object{
		objectKey: objectKey{Table: table, Key: v.Key},
		UID:       v.UID, Revision: v.Revision.String(), Deleting: tree.Text(meta, "deletionTimestamp") != "",
	}
	finalizers, _ := tree.Strings(meta["finalizers"])
	o.Foreground = slices.Contains(finalizers, metav1.FinalizerDeleteDependents)
	o.Orphan = slices.Contains(finalizers, metav1.FinalizerOrphanDependents)
	refs, _ := meta["ownerReferences"].([]any)
	for _, r := range refs {
		m, _ := r.(tree.Object)
		blocks, _ := m["blockOwnerDeletion"].(bool)
		o.Owners = append(o.Owners, ownerReference{
			APIVersion: tree.Text(m, "apiVersion"), Kind: tree.Text(m, "kind"), Name: tree.Text(m, "name"), UID: tree.Text(m, "uid"), Blocks: blocks,
		})
	}
	return o, nil
}
