package codec

// blankRows prints as many empty cells.
type blankRows int

func (n blankRows) Row(map[string]any) ([]any, error) { return make([]any, n), nil }
