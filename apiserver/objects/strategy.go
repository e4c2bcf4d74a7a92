package objects

import (
	"time"

	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/proto"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Strategy is what the objects of one kind have as code; everything else is the same for
// every kind, or data (package kinds). Functions that are nil do nothing. In a write they
// run in the order in which they stand here; the words are those of upstream's
// RESTCreateStrategy and RESTUpdateStrategy where it has one. obj is the object as it will
// be, old as it was, nil for a create. Values of obj below its first level and its metadata
// may be shared with other trees and are replaced, not changed. All of them may run several
// times for one operation.
type Strategy struct {
	// Fit says that an object, which fits its model, does not have the form of its kind all the
	// same: of what clients send, and of what their patches make.
	Fit func(obj tree.Object) error
	// Complete fills in what clients leave out, after the model's defaults and before
	// anybody owns the fields.
	Complete func(o *Op, obj, old tree.Object) error
	// Prepare fills in what the server generates, and takes out what cannot be written
	// (upstream's PrepareForCreate and PrepareForUpdate). The object has its name, its uid
	// and its defaults.
	Prepare func(obj, old tree.Object)
	// Dropped are names of lists that Prepare may take out: validation does not see empty ones.
	Dropped []string
	// ForUser completes or refuses an object for the user, once it is prepared and
	// before it is validated.
	ForUser func(o *Op, obj, old tree.Object) error
	// Validation is what is wrong with an object that is complete (upstream's Validate and
	// ValidateUpdate), metadata included; writes of all subresources come by. Nil: its metadata
	// is checked.
	Validation Validation
	// ValidateScale is what is wrong with a Scale of such an object, which has the object's
	// name and namespace (upstream's function of that name). Nil: nothing is.
	ValidateScale func(scale tree.Object) field.ErrorList
	// TrustsNode: objects that the node itself writes are not held against Validation.
	TrustsNode bool
	// ValidateWith adds to Validation what is this server's own, or needs the operation;
	// writes of all subresources come by. The error is that it could not be found out.
	ValidateWith func(o *Op, obj, old tree.Object) (field.ErrorList, error)
	// Warnings are what is told the client of a valid object besides the answer and what
	// Validation tells: what is deprecated, or probably not meant.
	// Writes of the object itself and of its scale come by. Only clients are told.
	Warnings func(obj, old tree.Object) []string
	// Allocate completes a valid object with what only one object of the cluster may
	// have. errs are for the client.
	Allocate func(o *Op, obj, old tree.Object) (errs field.ErrorList, err error)
	// Held are the rows of what allocate has given to a stored object.
	Held func(obj tree.Object) []ClaimKey

	// Usage is what an object uses of what quotas bound, as of now, and Limits are what a quota
	// bounds; nil is nothing. They are part of the version that is written, for every writer,
	// and pure; obj is as it is stored.
	Usage  func(obj tree.Object, now time.Time) *proto.Usage
	Limits func(obj tree.Object) []*proto.Limit
	// SameRule reports whether an object that other writes are decided by (proto.Rules) says for
	// them what old says, so that they stand. Nil: it may not.
	SameRule func(obj, old tree.Object) bool

	// MayDelete refuses the deletion of some objects.
	MayDelete func(name string) error
	// StartDelete prepares the first phase of a deletion; it reports whether
	// something other than metadata.finalizers still holds the object.
	StartDelete func(o *Op, obj tree.Object) (held bool)
	// Holds reports whether a deleting object must stay although it has no
	// finalizers in its metadata.
	Holds func(obj tree.Object) bool

	// Post answers a kind that is not stored.
	Post *Creater
	// Posts are subresources that are posted, by their names.
	Posts map[string]*Creater
	// Parts are subresources that show the whole object and change a part of it, beside
	// status, by their names.
	Parts map[string]Part
}

// Validation is what is wrong with objects of one kind, in the form in which they are
// stored. It changes nothing, and is for any number of goroutines (package validation).
type Validation interface {
	// Create is about a new object. namespaced is the scope of the kind. What the client should be
	// told of a valid object is added to warnings (upstream's WarningsOnCreate and WarningsOnUpdate);
	// nil: it is not asked for.
	Create(obj tree.Object, namespaced bool, warnings *[]string) field.ErrorList
	// Update is about an object that takes the place of another, by a write of the
	// subresource; "" is the object itself.
	Update(subresource string, obj, old tree.Object, namespaced bool, warnings *[]string) field.ErrorList
}

var noStrategy Strategy

// ValidationPanic is the BadValue of the error that a Validation makes of a panic: what the log
// is told, and the client is not.
type ValidationPanic interface {
	Where() string // function and line
	Stack() string
}

// Strategy of the operation's resource; never nil.
func (r *Request) Strategy() *Strategy {
	if r.Resource.Custom {
		return r.Store.Custom
	}
	if found := r.Store.Strategies[r.Resource.CodeName()]; found != nil {
		return found
	}
	return &noStrategy
}
