package objects

import (
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
	obj, err := o.withFieldsOf(sent, old)
	if err != nil {
		return nil, err
	}
	return obj, p.copy(o, obj, sent, old)
}

// withFieldsOf is old with metadata of its own; if what was sent is the outcome of an apply,
// that says who owns the fields.
func (o *Op) withFieldsOf(sent, old tree.Object) (tree.Object, error) {
	obj, meta, err := tree.WithOwnMeta(old)
	if err == nil && o.applying {
		tree.CopyField(meta, tree.As(sent["metadata"]), "managedFields")
	}
	return obj, err
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
