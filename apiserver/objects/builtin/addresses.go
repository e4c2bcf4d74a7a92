package builtin

import (
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/tree"
)

// completeNode makes the ranges of a Node's Pods agree.
func completeNode(_ *objects.Op, obj, _ tree.Object) error {
	agree(obj, "spec", "podCIDR", "podCIDRs", func(s string) any { return s }, func(item any) string {
		s, _ := item.(string)
		return s
	})
	return nil
}

// agreeOnPodIPs does so with the addresses of a Pod.
func agreeOnPodIPs(obj tree.Object) {
	agree(obj, "status", "podIP", "podIPs", func(s string) any { return tree.Object{"ip": s} }, func(item any) string {
		return tree.Text(tree.As(item), "ip")
	})
}

// agree makes a field agree with the list that it is the first item of, as upstream's conversions do: older
// clients know the field alone, so it counts where both are there. The functions make an item of a
// text, and the reverse.
func agree(obj tree.Object, part, field, list string, item func(string) any, text func(any) string) {
	of := tree.As(obj[part])
	value, items, first := tree.Text(of, field), tree.List(of[list]), ""
	if len(items) > 0 {
		first = text(items[0])
	}
	if value == first && (value == "" || len(items) > 0) {
		return
	}
	of = tree.Clone(of)
	if value != "" {
		of[list] = []any{item(value)}
	} else {
		of[field] = first
	}
	obj[part] = of
}
