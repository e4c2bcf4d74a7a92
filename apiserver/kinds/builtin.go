package kinds

// Builtin returns the built-in resources from the embedded files.
func Builtin() (*Registry, error) { return NewRegistry(nil), nil }
