package apiserver

import (
	"github.com/quorate/quorate/apiserver/tree"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// strategy is what the objects of one kind have as code; everything else is the same for
// every kind, or data (package kinds). Functions that are nil do nothing. In a write they
// run in the order in which they stand here. obj is the object as it will be, old as it
// was, nil for a create. Values of obj may be shared and are replaced, not changed. All
// of them may run several times for one operation.
type strategy struct {
	// complete fills in what clients leave out, after the model's defaults and before
	// anybody owns the fields.
	complete func(o *op, obj, old tree.Object) error
	// prepare completes an object before it is validated.
	prepare func(obj, old tree.Object)
	// forUser completes or refuses an object for the user, once it is prepared and
	// before it is validated.
	forUser func(o *op, obj, old tree.Object) error
	// validate adds to what the model says of an object that is complete, or says it all.
	validate     func(o *op, obj, old tree.Object) (field.ErrorList, error)
	validatesAll bool
	// allocate completes a valid object with what only one object of the cluster may
	// have. errs are for the client.
	allocate func(o *op, obj, old tree.Object) (errs field.ErrorList, err error)
	// held are the rows of what allocate has given to a stored object.
	held func(obj tree.Object) []claimKey

	// mayDelete refuses the deletion of some objects.
	mayDelete func(name string) error
	// startDelete prepares the first phase of a deletion; it reports whether
	// something other than metadata.finalizers still holds the object.
	startDelete func(o *op, obj tree.Object) (held bool)
	// holds reports whether a deleting object must stay although it has no
	// finalizers in its metadata.
	holds func(obj tree.Object) bool
}

var noStrategy strategy

// strategy of the operation's resource; never nil.
func (o *op) strategy() *strategy {
	if o.res.Custom {
		return o.s.cfg.Custom
	}
	if found := o.s.cfg.Strategies[o.res.CodeName()]; found != nil {
		return found
	}
	return &noStrategy
}
