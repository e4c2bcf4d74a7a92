package objects

import (
	"github.com/quorate/quorate/apiserver/tree"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// Part is what a write of a subresource changes of an object: it takes that from
// sent into obj, which is old with metadata of its own. Values of all three may be
// shared and are replaced, not changed.
type Part func(o *Op, obj, sent, old tree.Object) error

func (o *Op) ReplacePart(cur *mvcc.Version, sent, old tree.Object, take Part) (Change, error) {
	obj, meta, err := tree.WithOwnMeta(old)
	if err != nil {
		return Change{}, err
	}
	if o.Applying {
		tree.CopyField(meta, tree.As(sent["metadata"]), "managedFields")
	}
	if err := take(o, obj, sent, old); err != nil {
		return Change{}, err
	}
	return o.Replace(cur, obj, old)
}

// CopyStatus is the part of the status subresource. Built-in kinds take labels and
// annotations along, as upstream's do; custom resources do not.
func CopyStatus(o *Op, obj, sent, _ tree.Object) error {
	tree.CopyField(obj, sent, "status")
	if o.Resource.Custom {
		return nil
	}
	return CopyLabels(obj, sent)
}

func CopyLabels(obj, sent tree.Object) error {
	sentMeta, err := tree.Meta(sent)
	if err != nil {
		return err
	}
	tree.CopyField(tree.As(obj["metadata"]), sentMeta, "labels")
	tree.CopyField(tree.As(obj["metadata"]), sentMeta, "annotations")
	return nil
}
