package upstream

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	typednodev1 "k8s.io/client-go/kubernetes/typed/node/v1"
)

// Client is the client that upstream's plugins ask for what a lister does not have: the state is brought
// up to date first. It has nil interfaces for everything that no plugin asks of it.
type Client struct {
	kubernetes.Interface
	Namespaces *Namespaces
	// CreateNamespace makes a namespace, as the node itself; nil: no plugin does.
	CreateNamespace func(ctx context.Context, name string) error
	// RuntimeClass is one of this node's state, nil if there is none.
	RuntimeClass func(name string) *nodev1.RuntimeClass
}

// CoreV1 implements kubernetes.Interface for Namespaces, NodeV1 for RuntimeClasses.
func (c *Client) CoreV1() typedcorev1.CoreV1Interface { return coreClient{c: c} }
func (c *Client) NodeV1() typednodev1.NodeV1Interface { return nodeClient{c: c} }

type coreClient struct {
	typedcorev1.CoreV1Interface
	c *Client
}

func (c coreClient) Namespaces() typedcorev1.NamespaceInterface { return namespaceClient{c: c.c} }

type namespaceClient struct {
	typedcorev1.NamespaceInterface
	c *Client
}

// confirmTimeout bounds a confirmed read: upstream's plugins ask without a context.
const confirmTimeout = 10 * time.Second

func (c *Client) confirm(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	return c.Namespaces.confirm(ctx)
}

func (c namespaceClient) Get(ctx context.Context, name string, _ metav1.GetOptions) (*corev1.Namespace, error) {
	if err := c.c.confirm(ctx); err != nil {
		return nil, err
	}
	return c.c.Namespaces.Get(name)
}

func (c namespaceClient) Create(ctx context.Context, n *corev1.Namespace, _ metav1.CreateOptions) (*corev1.Namespace, error) {
	return n, c.c.CreateNamespace(ctx, n.Name)
}

type nodeClient struct {
	typednodev1.NodeV1Interface
	c *Client
}

func (c nodeClient) RuntimeClasses() typednodev1.RuntimeClassInterface {
	return runtimeClassClient{c: c.c}
}

type runtimeClassClient struct {
	typednodev1.RuntimeClassInterface
	c *Client
}

func (c runtimeClassClient) Get(ctx context.Context, name string, _ metav1.GetOptions) (*nodev1.RuntimeClass, error) {
	if err := c.c.confirm(ctx); err != nil {
		return nil, err
	}
	if class := c.c.RuntimeClass(name); class != nil {
		return class, nil
	}
	return nil, errors.NewNotFound(nodev1.Resource("runtimeclasses"), name)
}
