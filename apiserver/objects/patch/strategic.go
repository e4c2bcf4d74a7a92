package patch

import (
	"math/bits"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// maxMergeWork bounds a strategic merge, in elements of lists that the library looks at: some
// seconds. It has no index of lists that are merged: it looks for each element in the whole list,
// and sorts them by their places in it, for which it looks again at each comparison. A patch of 100
// bytes that adds one to 20,000 finalizers takes 17 s of a processor; one that gives 10,000
// elements another order takes minutes. None of that can be interrupted. A list of 5,000 elements
// of which some change is within the bound, or one of 1,000 which all change.
const maxMergeWork = 1 << 26

const (
	orderDirective  = "$setElementOrder/"
	mergeStrategy   = "merge"
	directivePrefix = "$"
)

// checkMergeWork refuses a strategic merge that would take too long.
func checkMergeWork(current, patch map[string]any, meta strategicpatch.LookupPatchMeta) error {
	if mergeWork(current, patch, meta) > maxMergeWork {
		return apierrors.NewRequestEntityTooLargeError(
			"the lists are too long for a strategic merge patch: send a JSON patch or a server-side apply")
	}
	return nil
}

// mergeWork estimates how many elements the library looks at.
func mergeWork(current, patch map[string]any, meta strategicpatch.LookupPatchMeta) (work int64) {
	for key, v := range patch {
		switch v := v.(type) {
		case map[string]any:
			if below, _, err := meta.LookupPatchMetadataForStruct(key); err == nil {
				inner, _ := current[key].(map[string]any)
				work += mergeWork(inner, v, below)
			}
		case []any:
			name, order := strings.CutPrefix(key, orderDirective)
			if !order && strings.HasPrefix(name, directivePrefix) {
				continue // a list of what is deleted is looked up in a map
			}
			below, how, err := meta.LookupPatchMetadataForSlice(name)
			if err != nil || !order && !slices.Contains(how.GetPatchStrategies(), mergeStrategy) {
				continue
			}
			was, _ := current[name].([]any)
			if order {
				sent, _ := patch[name].([]any)
				work += listWork(len(was)+len(sent), len(v))
				continue
			}
			work += listWork(len(was), len(v)) + elementWork(was, v, how.GetPatchMergeKey(), below)
		}
		if work > maxMergeWork {
			break // it is refused, whatever the others are
		}
	}
	return work
}

// listWork is the work of a list that is there and one that is merged into it.
func listWork(there, sent int) int64 {
	n, m := int64(there), int64(sent)
	if m == 0 {
		return 0
	}
	log := int64(bits.Len64(uint64(m)))
	return n*n + (n+m)*(n+m) + m*m*(10+log*log/2)
}

// elementWork is that of the elements which are merged with each other.
func elementWork(there, sent []any, key string, meta strategicpatch.LookupPatchMeta) (work int64) {
	find := finder(there, key, len(sent))
	for _, x := range sent {
		if m, ok := x.(map[string]any); ok {
			work += mergeWork(find(m[key]), m, meta)
		}
		if work > maxMergeWork { // else each of those with the same key makes an index of the same list
			break
		}
	}
	return work
}

// finder finds elements of a list by a field. Keys are strings and numbers.
func finder(list []any, key string, times int) func(value any) map[string]any {
	const fewComparisons = 256 // cost less than an index
	if len(list)*times <= fewComparisons {
		return func(value any) map[string]any {
			for _, x := range list {
				if m, ok := x.(map[string]any); ok && isKey(value) && m[key] == value {
					return m
				}
			}
			return nil
		}
	}
	index := make(map[any]map[string]any, len(list))
	for _, x := range list {
		if m, ok := x.(map[string]any); ok && isKey(m[key]) {
			if _, known := index[m[key]]; !known { // the library merges into the first
				index[m[key]] = m
			}
		}
	}
	return func(value any) map[string]any {
		if !isKey(value) {
			return nil
		}
		return index[value]
	}
}

// isKey reports whether a value can be compared.
func isKey(value any) bool {
	switch value.(type) {
	case string, int64, float64, bool:
		return true
	}
	return false
}
