package measure

import (
	"errors"
	"fmt"
	"slices"
)

// Bounds collects what is wrong with options.
type Bounds []error

// Want notes what is wrong unless it is right.
func (b *Bounds) Want(ok bool, format string, args ...any) {
	if !ok {
		*b = append(*b, fmt.Errorf(format, args...))
	}
}

// Err is all of it.
func (b Bounds) Err() error { return errors.Join(b...) }

// Median of none is zero.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	values = slices.Sorted(slices.Values(values))
	return (values[len(values)/2] + values[(len(values)-1)/2]) / 2
}
