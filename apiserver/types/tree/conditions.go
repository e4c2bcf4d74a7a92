package tree

import (
	"maps"
	"slices"
	"time"
)

// SetCondition returns a list of conditions with the one of want's type set to want, in
// its place or at the end. Its lastTransitionTime is the time of the last change of its
// status, as the API conventions say: another reason or message does not move it. The
// arguments are not changed.
func SetCondition(conditions any, want Object, now time.Time) []any {
	out := slices.Clone(List(conditions))
	want = maps.Clone(want)
	want["lastTransitionTime"] = Timestamp(now)
	i := ConditionIndex(out, Text(want, "type"))
	if i < 0 {
		return append(out, want)
	}
	if was := As(out[i]); Text(was, "status") == Text(want, "status") {
		want["lastTransitionTime"] = was["lastTransitionTime"]
	}
	out[i] = want
	return out
}

// ConditionIndex is where the condition of a type is in a list, or -1.
func ConditionIndex(conditions []any, kind string) int {
	return slices.IndexFunc(conditions, func(x any) bool { return Text(As(x), "type") == kind })
}
