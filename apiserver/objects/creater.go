package objects

import (
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/proto"
	"k8s.io/apimachinery/pkg/runtime"
)

// Creater answers a POST that stores no object of its own: a question, or the making of
// something that is not stored (upstream's rest.NamedCreater).
type Creater struct {
	// Kind is what is posted, and what the answer is; nil: the operation's resource.
	Kind *kinds.Resource
	// Also are group versions whose objects of that kind look the same and are taken for it.
	Also []string
	// New is an empty object of the type of k8s.io/api that is posted.
	New func() runtime.Object
	// KeepsMeta says that what the server sets of the metadata of other objects, such as the uid, is a condition
	// here, where it is a subresource that is posted.
	KeepsMeta bool
	// Complete, if there is one, fills in what the server knows, and refuses what is invalid: validating plugins see the
	// result, and are not asked about what is refused, as upstream's. It may be called again for what it has completed.
	Complete func(o *Op, in runtime.Object) error
	// Create does what is asked. in is what New made, as it was posted, and completed.
	Create func(o *Op, in runtime.Object) (Created, error)
}

// KindOf is the kind of what an operation posts, and of the answer.
func (p *Creater) KindOf(o *Op) *kinds.Resource {
	if p.Kind != nil {
		return p.Kind
	}
	return o.Resource
}

// Created is what came of a POST.
type Created struct {
	// Object of a type of k8s.io/api is the answer; nil: a Status says that it is done.
	Object any
	// Revision of the state that the answer is from, if it is from one.
	Revision proto.Revision
}

// CreaterOf makes a Creater of a function that knows its type.
func CreaterOf[T any, P interface {
	*T
	runtime.Object
}](kind *kinds.Resource, create func(o *Op, in P) (Created, error), also ...string) *Creater {
	return &Creater{
		Kind: kind, Also: also, New: func() runtime.Object { return P(new(T)) },
		Create: func(o *Op, in runtime.Object) (Created, error) { return create(o, in.(P)) },
	}
}

// Completed is a Creater that completes or checks what is posted. It has a type of its own to do that with, which is the Creater's.
func Completed[P runtime.Object](p *Creater, complete func(o *Op, in P) error) *Creater {
	p.Complete = func(o *Op, in runtime.Object) error { return complete(o, in.(P)) }
	return p
}

// KeepingMeta is a Creater with KeepsMeta.
func KeepingMeta(p *Creater) *Creater {
	p.KeepsMeta = true
	return p
}
