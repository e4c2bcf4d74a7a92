package schema

// Zero returns the object of which nothing is set, as upstream's Go type would be
// written: what Fill adds is there. Who sets a field below a part that is always
// there does not set the part itself, which shows in managedFields.
func (m *Model) Zero() map[string]any {
	obj := map[string]any{}
	filler{}.fill(m.root, obj)
	return obj
}
