package codec

import "github.com/quorate/quorate/apiserver/kinds"

// compileColumns returns what prints the rows of a resource.
func compileColumns(res *kinds.Resource) (rowPrinter, error) {
	if len(res.Columns) == 0 {
		return defaultRows{}, nil
	}
	return blankRows(len(res.Columns)), nil
}
