package egress

import "context"

type nodeKey struct{}

// WithNode returns a context that says which Node's kubelet is dialled: its tunnel is used, if it has
// opened one. It is for those that dial kubelets; a name that a client has sent must be that of the Node
// whose address is dialled. What is dialled with it must not be kept for another Node.
func WithNode(ctx context.Context, node string) context.Context {
	return context.WithValue(ctx, nodeKey{}, node)
}

// NodeFrom returns the Node of a context, empty if there is none.
func NodeFrom(ctx context.Context) string {
	node, _ := ctx.Value(nodeKey{}).(string)
	return node
}
