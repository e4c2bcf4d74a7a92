package objects

import (
	"slices"

	"github.com/quorate/quorate/apiserver/tree"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// Part is what a write of a subresource changes of an object: it takes that from
// sent into obj, which is old with metadata of its own. Values of all three may be
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
	obj, meta, err := tree.WithOwnMeta(old)
	if err != nil {
		return nil, err
	}
	if o.Resource.Conversion != "" || o.Subresource.OwnsSent {
		if sent, err = o.ownSent(sent, old); err != nil {
			return nil, err
		}
	}
	// Whose the fields are counts as in a write of the whole object.
	tree.CopyField(meta, tree.As(sent["metadata"]), "managedFields")
	if o.Resource.Conversion == "" {
		return obj, p.copy(o, obj, sent, old)
	}
	return o.inStoredForm(obj, sent, old, func(obj, sent, old tree.Object) error { return p.copy(o, obj, sent, old) })
}

// CopyStatus is the part of the status subresource. Built-in kinds take metadata along, as
// upstream's do; custom resources do not.
func CopyStatus(o *Op, obj, sent, _ tree.Object) error {
	tree.CopyField(obj, sent, "status")
	if o.Resource.Custom {
		return nil
	}
	return CopyMeta(o, obj, sent)
}

// CopyMeta takes the metadata along that clients write, but for what the subresource resets.
func CopyMeta(o *Op, obj, sent tree.Object) error {
	sentMeta, err := tree.Meta(sent)
	if err != nil {
		return err
	}
	resets := o.Subresource.Resets
	if slices.Contains(resets, "metadata") {
		return nil
	}
	for _, name := range [...]string{"labels", "annotations", "finalizers", "ownerReferences"} {
		if !slices.Contains(resets, "metadata."+name) {
			tree.CopyField(tree.As(obj["metadata"]), sentMeta, name)
		}
	}
	return nil
}
