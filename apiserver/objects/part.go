package objects

import (
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// Part is what a write of a subresource changes of an object: it takes that from
// sent into obj, which is old with the metadata that were sent, and takes back what clients
// cannot write of these (ResetMeta, KeepMeta). Values of all three may be
// shared and are replaced, not changed.
type Part func(o *Op, obj, sent, old tree.Object) error

// PartOf is the target that shows the whole object and takes a part of it.
func PartOf(take Part) Target { return part{copy: take} }

type part struct {
	itself
	copy Part
}

func (part) inserts() bool { return false }

func (part) match(o *Op, sent tree.Object, cur *mvcc.Version) error {
	return o.checkSent(sent, cur)
}

func (p part) take(o *Op, sent, old tree.Object, _ *mvcc.Version) (tree.Object, error) {
	obj, _, err := tree.WithOwnMeta(old)
	if err != nil {
		return nil, err
	}
	if o.Resource.Conversion != "" || o.Subresource.OwnsSent {
		if sent, err = o.ownSent(sent, old); err != nil {
			return nil, err
		}
	}
	if o.Resource.Conversion == "" {
		return obj, p.takeStored(o, obj, sent, old)
	}
	return o.inStoredForm(obj, sent, old, func(obj, sent, old tree.Object) error { return p.takeStored(o, obj, sent, old) })
}

// takeStored is take of objects in the form in which they are stored.
func (p part) takeStored(o *Op, obj, sent, old tree.Object) error {
	sentMeta, err := tree.Meta(sent)
	if err != nil {
		return err
	}
	meta := tree.Clone(sentMeta)
	obj["metadata"] = meta
	if o.Info.Verb == "patch" { // what the part resets is looked at, too
		o.dedupOwners(meta, sameOwnersAfterMutation)
	} else {
		o.dedupOwners(meta, sameOwners)
	}
	return p.copy(o, obj, sent, old)
}

// CopyStatus is the part of the status subresource.
func CopyStatus(o *Op, obj, sent, old tree.Object) error {
	tree.CopyField(obj, sent, "status")
	o.resetMetadata(obj, old)
	return nil
}

// resetMetadata takes back what the subresource resets of metadata. Writes of the status of
// custom resources take nothing along.
func (r *Request) resetMetadata(obj, old tree.Object) {
	switch resets := r.Subresource.Resets; {
	case r.Resource.Custom || r.Subresource.KeepsMetadata:
		KeepMeta(obj, old)
	case slices.Contains(resets, "metadata"):
		ResetMeta(obj, old)
	default:
		meta, was := tree.As(obj["metadata"]), tree.As(old["metadata"])
		for _, path := range resets {
			if name, ok := strings.CutPrefix(path, "metadata."); ok {
				tree.CopyField(meta, was, name)
			}
		}
	}
}

// ResetMeta takes back what a write of a subresource says of metadata, as upstream's function
// ResetObjectMetaForStatus does: what it leaves is for the checks of every update.
func ResetMeta(obj, old tree.Object) {
	meta, was := tree.As(obj["metadata"]), tree.As(old["metadata"])
	for _, name := range [...]string{"deletionTimestamp", "labels", "annotations", "finalizers", "ownerReferences"} {
		tree.CopyField(meta, was, name)
	}
}

// KeepMeta takes back all that a write of a subresource says of metadata, but for whose the fields
// are.
func KeepMeta(obj, old tree.Object) {
	meta := tree.Clone(old["metadata"])
	tree.CopyField(meta, tree.As(obj["metadata"]), "managedFields")
	obj["metadata"] = meta
}
