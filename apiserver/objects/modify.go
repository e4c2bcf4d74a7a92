package objects

import (
	"github.com/quorate/quorate/apiserver/objects/patch"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/schema"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// Source is how a client says what an object is to be: Put, Patch or Apply. It is asked again
// for each newer version, so it changes nothing that it holds or is given.
type Source interface {
	// insert decides on an object that is not there.
	insert(o *Op) (Change, error)
	// wanted is what the client wants of the target: a body, or what a patch or an apply has
	// made. It is of the current version, cur; old is that, decoded.
	wanted(o *Op, on Target, cur *mvcc.Version) (sent, old tree.Object, err error)
}

// Target is what of an object a write may change: all of it (Whole), a part (PartOf), or its
// number of replicas (Scale).
type Target interface {
	// Kind is that of what clients send and are shown.
	Kind(o *Op) *kinds.Resource
	// Shown is an object as clients see it.
	Shown(o *Op, obj tree.Object) tree.Object

	// inserts says that a write may create the object.
	inserts() bool
	// configuration is what an apply merges into the object, if body is sent. model is the object's.
	configuration(o *Op, body tree.Object, model *schema.Model) (tree.Object, error)
	// match checks, before the current version is decoded, that a body may replace it.
	match(o *Op, sent tree.Object, cur *mvcc.Version) error
	// patched is what a patch makes of what is shown of old, if that is still of cur.
	patched(o *Op, p *patch.Patch, old tree.Object, cur *mvcc.Version) (tree.Object, error)
	// take is the object as it will be, with metadata of its own: it takes from sent what
	// the target is, and the rest from old. Values of all three may be shared and are
	// replaced, not changed.
	take(o *Op, sent, old tree.Object, cur *mvcc.Version) (tree.Object, error)
}

// Modify changes the object that Info names to what the source wants, as far as the target
// takes it.
func (o *Op) Modify(want Source, on Target) (Written, error) {
	_, o.applying = want.(Apply)
	return o.GuaranteedUpdate(o.Key(), func(cur *mvcc.Version) (Change, error) {
		switch {
		case cur == nil && on.inserts():
			return want.insert(o)
		case cur == nil:
			return Change{}, o.NotFound()
		}
		sent, old, err := want.wanted(o, on, cur)
		if err != nil {
			return Change{}, err
		}
		obj, err := on.take(o, sent, old, cur)
		if err != nil {
			return Change{}, err
		}
		o.partOf, o.partSeen = nil, nil
		if o.Subresource != nil {
			o.partOf, o.partSeen = cur, old
		}
		return o.Replace(cur, obj, old)
	})
}
