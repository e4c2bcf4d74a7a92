package builtin

import (
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/tree"
)

// Fields that once had one value have a list beside them. Upstream's conversions make both agree
// (pkg/apis/core/v1/conversion.go): a client that knows the older field alone writes both.

// completeNode makes podCIDR and podCIDRs agree.
func completeNode(_ *objects.Op, obj, _ tree.Object) error {
	agree(obj, "spec", "podCIDR", "podCIDRs", func(item any) string { s, _ := item.(string); return s }, func(one string) any { return one })
	return nil
}

// agreePodIPs makes podIP and podIPs agree.
func agreePodIPs(obj tree.Object) {
	agree(obj, "status", "podIP", "podIPs", func(item any) string { return tree.Text(tree.As(item), "ip") }, func(one string) any { return tree.Object{"ip": one} })
}

// agree makes a field of a part of an object, and the list beside it, say the same. The field counts if
// they differ; it is the first item if it is empty. one is the field's value of an item, and item the reverse.
func agree(obj tree.Object, part, field, list string, one func(item any) string, item func(one string) any) {
	in := tree.As(obj[part])
	single, items := tree.Text(in, field), tree.List(in[list])
	if single == "" && len(items) == 0 {
		return
	}
	if single != "" && (len(items) == 0 || one(items[0]) != single) {
		items = []any{item(single)}
	}
	in = tree.Clone(in)
	if in[list] = items; one(items[0]) != "" {
		in[field] = one(items[0])
	}
	obj[part] = in
}
