package validation

import (
	"time"

	"github.com/quorate/quorate/apiserver/types/tree"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/core"
)

// What upstream says of Leases and ConfigMaps, which are written more than other kinds, is little
// besides what it says of metadata: decoding them and asking took a third of such a write. So
// these look at the tree, and accept what has nothing but what most have, by which upstream finds
// nothing wrong. They refuse nothing: the rest is for upstream's functions. TestPlain holds them
// against those functions, and asks to read this again when those are not what they were.

// plainFunc accepts a subset of the objects that are valid; old is nil for a new one.
type plainFunc func(obj, old tree.Object) bool

func plainConfigMap(obj, old tree.Object) bool {
	for name, x := range obj {
		switch name {
		case "metadata":
		case "apiVersion", "kind":
			if _, ok := x.(string); !ok {
				return false
			}
		case "data":
			if !plainData(x) {
				return false
			}
		default:
			return false
		}
	}
	return (old == nil || old["immutable"] == nil) && plainMetadata(obj, old)
}

func plainData(x any) bool {
	data, ok := x.(tree.Object)
	size := 0
	for key, x := range data {
		text, isText := x.(string)
		if size += len(text); !isText || !plainKey(key) {
			return false
		}
	}
	return ok && size <= core.MaxSecretSize
}

// plainKey accepts ordinary keys of ConfigMaps, a subset of those that are valid.
func plainKey(key string) bool {
	if key == "" || len(key) > 63 || key[0] == '.' {
		return false
	}
	for _, c := range []byte(key) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '-' || c == '_') {
			return false
		}
	}
	return true
}

func plainLease(obj, old tree.Object) bool {
	for name, x := range obj {
		switch name {
		case "metadata", "spec":
		case "apiVersion", "kind":
			if _, ok := x.(string); !ok {
				return false
			}
		default:
			return false
		}
	}
	spec, ok := obj["spec"].(tree.Object)
	for name, x := range spec {
		switch name {
		case "holderIdentity":
			if _, ok := x.(string); !ok {
				return false
			}
		case "leaseDurationSeconds", "leaseTransitions":
			if n, ok := x.(int64); !ok || n < 0 || n > 1<<30 || n == 0 && name == "leaseDurationSeconds" {
				return false
			}
		case "acquireTime", "renewTime":
			if !isTime(x, metav1.RFC3339Micro) {
				return false
			}
		default:
			return false
		}
	}
	return ok && plainMetadata(obj, old)
}

func isTime(x any, layout string) bool {
	text, ok := x.(string)
	if !ok {
		return false
	}
	_, err := time.Parse(layout, text)
	return err == nil
}

// plainMetadata accepts metadata of a namespaced kind whose names are DNS-1123 subdomains.
func plainMetadata(obj, old tree.Object) bool {
	meta, ok := obj["metadata"].(tree.Object)
	if !ok {
		return false
	}
	for name, x := range meta {
		is := true
		switch name {
		case "name", "namespace":
			text, _ := x.(string)
			is = tree.IsPlainDNSLabel(text)
		case "uid", "resourceVersion":
			_, is = x.(string)
		case "generation":
			n, isInt := x.(int64)
			is = isInt && n >= 0
		case "creationTimestamp":
			is = isTime(x, time.RFC3339)
		case "labels":
			is = plainTexts(x, tree.IsPlainLabelValue)
		case "annotations":
			is = plainTexts(x, func(value string) bool { return len(value) < 4096 }) // all of them: see plainTexts
		case "managedFields":
			is = tree.PlainManagers(x)
		default:
			return false
		}
		if !is {
			return false
		}
	}
	if tree.Text(meta, "name") == "" || tree.Text(meta, "namespace") == "" {
		return false
	}
	return old == nil || plainMetadataOver(meta, tree.As(old["metadata"]))
}

// plainMetadataOver accepts plain metadata in the place of others.
func plainMetadataOver(meta, old tree.Object) bool {
	for _, name := range [...]string{"name", "namespace", "uid", "creationTimestamp"} {
		if text, ok := old[name].(string); !ok || text != tree.Text(meta, name) {
			return false
		}
	}
	version, ok := old["resourceVersion"].(string)
	if !ok || version == "" && tree.Text(meta, "resourceVersion") == "" ||
		old["deletionTimestamp"] != nil || old["deletionGracePeriodSeconds"] != nil {
		return false
	}
	n, _ := meta["generation"].(int64)
	was, ok := old["generation"].(int64)
	return n >= was && (ok || old["generation"] == nil)
}

// plainTexts accepts up to 16 ordinary names with such values.
func plainTexts(x any, value func(string) bool) bool {
	m, ok := x.(tree.Object)
	if !ok || len(m) > 16 {
		return false
	}
	for k, x := range m {
		text, ok := x.(string)
		if !ok || !tree.IsPlainLabelKey(k) || !value(text) {
			return false
		}
	}
	return true
}
