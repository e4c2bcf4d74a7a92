package printers

import (
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/apiserver/types/tree"
	"k8s.io/apimachinery/pkg/util/duration"
)

// Events come in two forms; each function looks for both names of a field.

func eventLastSeen(v any) any {
	if t := get(v, "series", "lastObservedTime"); t != nil {
		return age(t)
	}
	if t := either(v, "lastTimestamp", "deprecatedLastTimestamp"); t != nil {
		return age(t)
	}
	return eventFirstSeen(v)
}

func eventFirstSeen(v any) any {
	if t := either(v, "firstTimestamp", "deprecatedFirstTimestamp"); t != nil {
		return age(t)
	}
	return age(get(v, "eventTime"))
}

func eventCount(v any) any {
	n := integer(either(v, "count", "deprecatedCount"))
	if get(v, "series") != nil {
		n = integer(get(v, "series", "count"))
	} else if n == 0 {
		n = 1 // the newer form does not count single events
	}
	return n
}

func eventObject(v any) any {
	kind := strings.ToLower(tree.Scalar(get(v, "kind")))
	if name := tree.Scalar(get(v, "name")); name != "" {
		return kind + "/" + name
	}
	return kind
}

func eventSource(v any) any {
	source := either(v, "source", "deprecatedSource")
	component, host := tree.Scalar(get(source, "component")), tree.Scalar(get(source, "host"))
	if component == "" {
		component = tree.Scalar(either(v, "reportingComponent", "reportingController"))
	}
	if host == "" {
		host = tree.Scalar(get(v, "reportingInstance"))
	}
	if host == "" {
		return component
	}
	return component + ", " + host
}

func either(v any, a, b string) any {
	if x := get(v, a); x != nil {
		return x
	}
	return get(v, b)
}

func nodeStatus(v any) any {
	s := "Unknown"
	if c := condition(items(v, "status", "conditions"), "Ready"); c != nil {
		s = "NotReady"
		if get(c, "status") == "True" {
			s = "Ready"
		}
	}
	if get(v, "spec", "unschedulable") == true {
		s += ",SchedulingDisabled"
	}
	return s
}

func nodeRoles(v any) any {
	var roles []string
	m, _ := v.(map[string]any)
	for name, x := range m {
		if role, ok := strings.CutPrefix(name, "node-role.kubernetes.io/"); ok && role != "" {
			roles = append(roles, role)
		} else if name == "kubernetes.io/role" && tree.Scalar(x) != "" {
			roles = append(roles, tree.Scalar(x))
		}
	}
	if len(roles) == 0 {
		return none
	}
	slices.Sort(roles)
	return strings.Join(slices.Compact(roles), ",")
}

func nodeAddress(v, kind any) any {
	for _, a := range items(v) {
		if get(a, "type") == kind {
			return tree.Scalar(get(a, "address"))
		}
	}
	return none
}

var modeNames = []struct{ mode, short string }{
	{"ReadWriteOnce", "RWO"}, {"ReadOnlyMany", "ROX"}, {"ReadWriteMany", "RWX"}, {"ReadWriteOncePod", "RWOP"},
}

func accessModes(v any) any {
	modes := texts(v)
	var out []string
	for _, m := range modeNames {
		if slices.Contains(modes, m.mode) {
			out = append(out, m.short)
		}
	}
	return strings.Join(out, ",")
}

func claimOf(v any) any {
	if v == nil {
		return ""
	}
	return tree.Scalar(get(v, "namespace")) + "/" + tree.Scalar(get(v, "name"))
}

func volumeClass(v any) any {
	if class := tree.Scalar(get(v, "metadata", "annotations", "volume.beta.kubernetes.io/storage-class")); class != "" {
		return class
	}
	return tree.Scalar(get(v, "spec", "storageClassName"))
}

func classNameAndDefault(v any) any {
	name := tree.Scalar(get(v, "metadata", "name"))
	for _, mark := range []string{"storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"} {
		if get(v, "metadata", "annotations", mark) == "true" {
			return name + " (default)"
		}
	}
	return name
}

func tokenAudiences(v any) any {
	var out []string
	for _, r := range items(v) {
		out = append(out, tree.Scalar(get(r, "audience")))
	}
	if len(out) == 0 {
		return unset
	}
	return strings.Join(out, ",")
}

func requestedDuration(v any) any {
	if v == nil {
		return none
	}
	return duration.HumanDuration(time.Duration(integer(v)) * time.Second)
}

func certificateCondition(v any) any {
	var out []string
	conditions := items(v, "conditions")
	switch {
	case condition(conditions, "Denied") != nil:
		out = append(out, "Denied")
	case condition(conditions, "Approved") != nil:
		out = append(out, "Approved")
	default:
		out = append(out, "Pending")
	}
	if condition(conditions, "Failed") != nil {
		out = append(out, "Failed")
	}
	if tree.Scalar(get(v, "certificate")) != "" {
		out = append(out, "Issued")
	}
	return strings.Join(out, ",")
}

func subjects(v, kind any) any {
	var out []string
	for _, s := range items(v) {
		if get(s, "kind") != kind {
			continue
		}
		name := tree.Scalar(get(s, "name"))
		if kind == "ServiceAccount" {
			name = tree.Scalar(get(s, "namespace")) + "/" + name
		}
		out = append(out, name)
	}
	return strings.Join(out, ", ")
}

func paramKind(v any) any {
	if v == nil {
		return unset
	}
	return tree.Scalar(get(v, "apiVersion")) + "/" + tree.Scalar(get(v, "kind"))
}

func paramRef(v any) any {
	name, namespace := tree.Scalar(get(v, "name")), tree.Scalar(get(v, "namespace"))
	if name == "" {
		if s, err := labelSelector(get(v, "selector")); s != nil && err == nil {
			return s.String()
		}
		return unset
	}
	if namespace == "" {
		namespace = "*"
	}
	return namespace + "/" + name
}

// conditionStatus is the status of a condition, "?" if there is none.
func conditionStatus(v, kind any) any {
	if c := condition(items(v), tree.Scalar(kind)); c != nil {
		return tree.Scalar(get(c, "status"))
	}
	return "?"
}

// kernel is a node's kernel version with its architecture.
func kernel(info any) any {
	version := tree.Scalar(get(info, "kernelVersion"))
	if version == "" {
		version = "<unknown>"
	}
	if arch := tree.Scalar(get(info, "architecture")); arch != "" {
		version += " (" + arch + ")"
	}
	return version
}
