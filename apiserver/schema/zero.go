package schema

// Zero returns the object of which nothing is set, as upstream's Go type would be
// written: parts that are no pointers there are present and empty, and lists and
// maps that are always written are null. Who sets a field below such a part does
// not set the part itself, which shows in managedFields.
func (m *Model) Zero() map[string]any { return zeroOf(m.root) }

func zeroOf(n *node) map[string]any {
	obj := map[string]any{}
	for _, p := range n.sorted {
		switch {
		case p.embedded && p.node.shape == shapeStruct:
			obj[p.name] = zeroOf(p.node)
		case p.required && (p.node.shape == shapeList || p.node.shape == shapeMap):
			obj[p.name] = nil
		}
	}
	return obj
}
