package upstream

import (
	"context"
	"sync"
	"time"

	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/raftstore/mvcc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
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

// Client is a client that can get namespaces, and nothing else.
func (n *Namespaces) Client() kubernetes.Interface { return client{n: n} }

// client has nil interfaces for everything that is not asked of it.
type client struct {
	kubernetes.Interface
	n *Namespaces
}

func (c client) CoreV1() typedv1.CoreV1Interface { return coreClient{n: c.n} }

type coreClient struct {
	typedv1.CoreV1Interface
	n *Namespaces
}

func (c coreClient) Namespaces() typedv1.NamespaceInterface { return namespaceClient{n: c.n} }

type namespaceClient struct {
	typedv1.NamespaceInterface
	n *Namespaces
}

// confirmTimeout bounds a confirmed read: upstream's matchers ask without a context.
const confirmTimeout = 10 * time.Second

// Get looks once more when the state is up to date: upstream's matchers ask it for a namespace
// that the lister does not have.
func (c namespaceClient) Get(ctx context.Context, name string, _ metav1.GetOptions) (*corev1.Namespace, error) {
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	if err := c.n.confirm(ctx); err != nil {
		return nil, err
	}
	return c.n.Get(name)
}
