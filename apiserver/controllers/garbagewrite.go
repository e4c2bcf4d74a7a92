package controllers

import (
	"context"
	"maps"
	"slices"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// objectHere returns an object as this node sees it, or nil.
func objectHere(s *objects.Store, key objectKey) (*object, error) {
	v, err := s.Current(key.Table, key.Key)
	if err != nil || v == nil {
		return nil, err
	}
	return objectOf(key.Table, v)
}

// ownerStateHere says what an object's reference leads to, as this node sees it. An owner is
// looked for in the dependent's own namespace, or among those without one.
func ownerStateHere(s *objects.Store, key objectKey, o ownerReference) (ownerState, error) {
	tables := s.Tables()
	res := servedKind(tables.Registry, o)
	if res == nil {
		return ownerUnknown, nil
	}
	namespace, _ := objects.SplitKey(tables.ByName[key.Table], key.Key)
	if res.Namespaced && namespace == "" {
		return ownerImpossible, nil
	}
	v, err := s.Current(res.Table(), res.Key(namespace, o.Name))
	switch {
	case err != nil:
		return 0, err
	case v == nil || v.UID != o.UID:
		return ownerAbsent, nil
	case v.Flags&proto.FlagTerminating == 0:
		return ownerThere, nil
	}
	owner, err := objectOf(res.Table(), v)
	switch {
	case err != nil:
		return 0, err
	case owner.Deleting && owner.Foreground:
		return ownerWaiting, nil
	}
	return ownerThere, nil
}

// servedKind returns the resource of an owner's kind, in another version if that one is not served any more: the uid says which
// object it is. Upstream waits for the version for ever (kubernetes#102641). Nil: no version is served.
func servedKind(served *kinds.Registry, o ownerReference) *kinds.Resource {
	gv, err := schema.ParseGroupVersion(o.APIVersion)
	if err != nil {
		return nil
	}
	if res := served.LookupKind(gv.WithKind(o.Kind)); res != nil && !res.Virtual {
		return res
	}
	for _, res := range served.All() {
		if res.Group == gv.Group && res.Kind == o.Kind && !res.Virtual {
			return res
		}
	}
	return nil
}

// deleteObject deletes an object that has the uid and resourceVersion of o.
func (c *collector) deleteObject(ctx context.Context, o *object, policy metav1.DeletionPropagation, slow bool) error {
	if _, ok := o.isOutside(); ok {
		return c.outside.delete(ctx, o, policy)
	}
	op, err := c.objects.SystemAt(ctx, o.Table, o.Key, "delete")
	if err != nil {
		return err
	}
	uid := types.UID(o.UID)
	return c.deletes.delete(op, &metav1.DeleteOptions{
		PropagationPolicy: &policy,
		Preconditions:     &metav1.Preconditions{UID: &uid, ResourceVersion: &o.Revision},
	}, slow)
}

// dropOwners removes the references to owners with these uids.
func (c *collector) dropOwners(ctx context.Context, key objectKey, uid string, owners []string) error {
	if _, ok := key.isOutside(); ok {
		return c.outside.amend(ctx, key, uid, func(meta *metav1.ObjectMeta) {
			meta.OwnerReferences = slices.DeleteFunc(meta.OwnerReferences, func(r metav1.OwnerReference) bool { return slices.Contains(owners, string(r.UID)) })
		})
	}
	return c.amend(ctx, key, uid, func(meta tree.Object) {
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

// unblockOwners makes all references of an object non-blocking.
func (c *collector) unblockOwners(ctx context.Context, key objectKey, uid string) error {
	if _, ok := key.isOutside(); ok {
		return c.outside.amend(ctx, key, uid, func(meta *metav1.ObjectMeta) {
			for i := range meta.OwnerReferences {
				meta.OwnerReferences[i].BlockOwnerDeletion = nil
			}
		})
	}
	return c.amend(ctx, key, uid, func(meta tree.Object) {
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

// dropFinalizer removes a finalizer; the last one takes a deleting object along.
func (c *collector) dropFinalizer(ctx context.Context, key objectKey, uid, finalizer string) error {
	without := func(list []string) []string {
		return slices.DeleteFunc(list, func(f string) bool { return f == finalizer })
	}
	if _, ok := key.isOutside(); ok {
		return c.outside.amend(ctx, key, uid, func(meta *metav1.ObjectMeta) { meta.Finalizers = without(meta.Finalizers) })
	}
	return c.amend(ctx, key, uid, func(meta tree.Object) {
		list, _ := tree.Strings(meta["finalizers"])
		tree.SetFinalizers(meta, without(list))
	})
}

// collectorsManager is the manager of the fields that the collector changes: as
// upstream, where it is a part of that program.
const collectorsManager = "kube-controller-manager"

// amend changes metadata of the object with a uid, and only that: what was valid
// when it was stored need not be so by the rules of today. change replaces what it
// changes below the first level.
func (c *collector) amend(ctx context.Context, key objectKey, uid string, alter func(meta tree.Object)) error {
	o, err := c.objects.SystemAt(ctx, key.Table, key.Key, "patch")
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
