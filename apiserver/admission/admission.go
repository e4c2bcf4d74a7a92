// Package admission is the room for what may change or refuse a write although the user
// may make it and the object is valid: plugins and webhooks, each a folder of its own.
//
// The types to know:
//
//   - Interface is what admits. Package objects calls it, at one place of a write.
//   - Attributes are what it is asked about.
package admission

import (
	"context"

	"github.com/quorate/quorate/apiserver/auth"
	"github.com/quorate/quorate/apiserver/tree"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Interface admits writes. Safe for concurrent use.
type Interface interface {
	// Admit changes or refuses an object that is about to be written. It is called when the
	// object is complete, and its fields have their owners, and before what the kind has as
	// code prepares it and anything validates it: so nothing that it does is unchecked. It
	// may be called several times for one request, which is decided again when it has lost
	// a race. Deletions do not come here yet.
	//
	// What it leaves in a.Object must fit the model. Errors are for the client: Status
	// errors, and the context's.
	Admit(ctx context.Context, a *Attributes) error
}

// Attributes of a write. They are not to be kept.
type Attributes struct {
	// Operation is create or update, which patches and applies are, too.
	Operation   string
	Kind        schema.GroupVersionKind
	Resource    schema.GroupVersionResource
	Subresource string
	Namespace   string
	Name        string // empty if it is still to be generated
	User        *auth.User
	DryRun      bool
	// Object is the object as it will be; Old as it was, nil for a create. The first level
	// of Object and of its metadata are its own and are changed in place. What is below may
	// be shared, also with Old, and is replaced, not changed.
	Object, Old tree.Object
}
