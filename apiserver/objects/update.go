package objects

import (
	"github.com/quorate/quorate/apiserver/status"
	"github.com/quorate/quorate/apiserver/storage"
	"github.com/quorate/quorate/apiserver/tree"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// MatchPath checks that a body is the object that the path names.
func (o *Op) MatchPath(obj tree.Object) error {
	meta, err := tree.Meta(obj)
	if err != nil {
		return err
	}
	if err := tree.MatchNamespace(meta, o.Resource.Namespaced, o.Info.ObjectNamespace); err != nil {
		return err
	}
	return tree.MatchName(meta, o.Info.Name)
}

func (o *Op) DecideUpdate(sent tree.Object, cur *mvcc.Version) (Change, error) {
	obj, meta, err := tree.WithOwnMeta(sent)
	if err != nil {
		return Change{}, err
	}
	rev, err := parseObjectRevision(meta)
	switch {
	case err != nil:
		return Change{}, err
	case cur == nil && o.Resource.CreateOnUpdate && rev == 0:
		return o.decideInsert(obj, meta)
	case cur == nil:
		return Change{}, o.NotFound()
	case rev == 0 && !o.Resource.UnconditionalUpdate:
		return Change{}, storage.Permanent{Err: status.MustSpecifyVersion(o.Resource.GroupResource(), o.Info.Name)}
	}
	if err := o.CheckIdentity(meta, cur); err != nil {
		return Change{}, err
	}
	old, err := o.Decode(cur)
	if err != nil {
		return Change{}, err
	}
	if o.Resource.Subresource("status") != nil {
		tree.CopyField(obj, old, "status")
	}
	return o.Replace(cur, obj, old)
}

// decideInsert is create-on-update.
func (o *Op) decideInsert(obj, meta tree.Object) (Change, error) {
	if err := o.authorizeAlso("create"); err != nil {
		return Change{}, err
	}
	delete(meta, "resourceVersion") // "0" is no version
	if err := tree.PrepareCreate(meta, o.Resource.HasGeneration, o.Store.Now()); err != nil {
		return Change{}, err
	}
	if o.Resource.Subresource("status") != nil {
		delete(obj, "status")
	}
	if err := o.complete(obj, nil, meta, nil); err != nil {
		return Change{}, err
	}
	return o.EncodeChange(proto.Op_OP_PUT, obj)
}

// Replace decides on a new content for the current version. obj fits the model
// and has metadata of its own; old is cur decoded. Identical bytes are no write;
// the update that removes the last finalizer of a deleting object deletes it.
func (o *Op) Replace(cur *mvcc.Version, obj, old tree.Object) (Change, error) {
	meta, err := tree.Meta(obj)
	if err != nil {
		return Change{}, err
	}
	oldMeta, err := tree.Meta(old)
	if err != nil {
		return Change{}, err
	}
	tree.PrepareUpdate(meta, oldMeta)
	if err := o.complete(obj, old, meta, oldMeta); err != nil {
		return Change{}, err
	}
	return o.FinishUpdate(cur, obj, old, meta, oldMeta)
}

// FinishUpdate is the second half of Replace, for an object that is complete.
func (o *Op) FinishUpdate(cur *mvcc.Version, obj, old, meta, oldMeta tree.Object) (Change, error) {
	if o.Resource.HasGeneration {
		countGeneration(o.Resource, obj, old, meta)
	}
	op := proto.Op_OP_PUT
	if o.Released(obj, meta, oldMeta) {
		op = proto.Op_OP_DELETE
	}
	if o.Applying && onlyTimesDiffer(obj, old, meta, oldMeta) {
		tree.CopyField(meta, oldMeta, "managedFields")
	}
	ch, err := o.EncodeChange(op, obj)
	if err != nil {
		return Change{}, err
	}
	ch.None = op == proto.Op_OP_PUT && unchanged(&ch, cur)
	return ch, nil
}

// Released reports whether nothing holds a deleting object any more.
func (o *Op) Released(obj, meta, oldMeta tree.Object) bool {
	if tree.Text(oldMeta, "deletionTimestamp") == "" || tree.HasFinalizers(meta) {
		return false
	}
	if grace, _ := tree.Int(oldMeta["deletionGracePeriodSeconds"]); grace > 0 {
		return false
	}
	h := o.Strategy()
	return h.Holds == nil || !h.Holds(obj)
}
