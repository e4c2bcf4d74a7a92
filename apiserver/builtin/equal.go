package builtin

import (
	"slices"

	"github.com/quorate/quorate/apiserver/tree"
)

// semanticEqual compares decoded JSON. As upstream's semantic comparison, it takes null,
// an absent field and an empty list or object for the same.
func semanticEqual(a, b any) bool {
	switch x := a.(type) {
	case tree.Object:
		y, ok := b.(tree.Object)
		if !ok {
			return isEmpty(a) && isEmpty(b)
		}
		for name, v := range x {
			if !semanticEqual(v, y[name]) {
				return false
			}
		}
		for name, v := range y {
			if _, seen := x[name]; !seen && !isEmpty(v) {
				return false
			}
		}
		return true
	case []any:
		y, ok := b.([]any)
		if !ok {
			return isEmpty(a) && isEmpty(b)
		}
		return slices.EqualFunc(x, y, semanticEqual)
	case int64:
		if y, ok := b.(float64); ok {
			return float64(x) == y
		}
	case float64:
		if y, ok := b.(int64); ok {
			return x == float64(y)
		}
	}
	return a == nil && isEmpty(b) || b == nil && isEmpty(a) || isScalar(a) && isScalar(b) && a == b
}

func isScalar(v any) bool {
	switch v.(type) {
	case tree.Object, []any:
		return false
	}
	return true
}

func isEmpty(v any) bool {
	switch x := v.(type) {
	case nil:
		return true
	case tree.Object:
		return len(x) == 0
	case []any:
		return len(x) == 0
	}
	return false
}
