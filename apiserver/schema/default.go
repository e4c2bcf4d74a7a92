package schema

type defaulting struct{}

func defaultsOf(n *node) (*defaulting, error) { return nil, nil }

func applyDefaults(n *node, obj map[string]any) {}
