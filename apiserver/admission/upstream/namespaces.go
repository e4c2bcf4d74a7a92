package upstream

import (
	"context"
	"sync"

	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/raftstore/mvcc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	listersv1 "k8s.io/client-go/listers/core/v1"
)

var namespacesGR = schema.GroupResource{Resource: "namespaces"}

// maxNamespaces is how many decoded namespaces are kept.
const maxNamespaces = 1024

// Namespaces are the namespaces in this node's state, as the lister and the client that
// upstream's matchers want. What they do not ask for is not there. Safe for concurrent use.
type Namespaces struct {
	state   *state.State
	confirm func(context.Context) error

	mu   sync.Mutex
	kept map[string]keptNamespace
}

type keptNamespace struct {
	version *mvcc.Version
	object  *corev1.Namespace
}

var _ listersv1.NamespaceLister = (*Namespaces)(nil)

// NewNamespaces returns the namespaces of a state. confirm brings it up to date with all writes
// that were acknowledged before the call.
func NewNamespaces(s *state.State, confirm func(context.Context) error) *Namespaces {
	return &Namespaces{state: s, confirm: confirm, kept: map[string]keptNamespace{}}
}

// Get returns a namespace, shared and not to be changed. Errors: NotFound, and that it cannot
// be decoded.
func (n *Namespaces) Get(name string) (*corev1.Namespace, error) {
	version := n.state.Version(namespacesGR, "", name)
	if version == nil {
		return nil, errors.NewNotFound(namespacesGR, name)
	}
	n.mu.Lock()
	kept := n.kept[name]
	n.mu.Unlock()
	if kept.version == version {
		return kept.object, nil
	}
	object, err := state.Get[corev1.Namespace](n.state, namespacesGR, "", name)
	switch {
	case err != nil:
		return nil, errors.NewInternalError(err)
	case object == nil:
		return nil, errors.NewNotFound(namespacesGR, name)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.kept) >= maxNamespaces {
		clear(n.kept)
	}
	// object may be newer than version: then it is decoded once more.
	n.kept[name] = keptNamespace{version, object}
	return object, nil
}

// List is not there: no matcher lists namespaces.
func (n *Namespaces) List(labels.Selector) ([]*corev1.Namespace, error) {
	return nil, errors.NewMethodNotSupported(namespacesGR, "list")
}

// Show makes the namespaces visible to a plugin, which gets them by their names.
func (n *Namespaces) Show(i *Informers) {
	Show(i, func(name string) (*corev1.Namespace, error) {
		ns, err := n.Get(name)
		if errors.IsNotFound(err) {
			return nil, nil
		}
		return ns, err
	}, nil, nil)
}
