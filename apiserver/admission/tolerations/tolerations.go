// Package tolerations is what several plugins do with the tolerations of Pods, as upstream's
// package of that name does: it merges them, and holds them against a list of allowed ones.
package tolerations

import (
	"github.com/quorate/quorate/apiserver/types/tree"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// Of reads tolerations of a tree.
func Of(list []any) []corev1.Toleration {
	out := make([]corev1.Toleration, 0, len(list))
	for _, v := range list {
		m := tree.As(v)
		t := corev1.Toleration{
			Key: tree.Text(m, "key"), Operator: corev1.TolerationOperator(tree.Text(m, "operator")),
			Value: tree.Text(m, "value"), Effect: corev1.TaintEffect(tree.Text(m, "effect")),
		}
		if n, ok := tree.Int(m["tolerationSeconds"]); ok {
			t.TolerationSeconds = &n
		}
		out = append(out, t)
	}
	return out
}

// Tree is a toleration in a tree.
func Tree(t *corev1.Toleration) tree.Object {
	out := tree.Object{}
	for name, value := range map[string]string{"key": t.Key, "operator": string(t.Operator), "value": t.Value, "effect": string(t.Effect)} {
		if value != "" {
			out[name] = value
		}
	}
	if t.TolerationSeconds != nil {
		out["tolerationSeconds"] = *t.TolerationSeconds
	}
	return out
}

// Set replaces the tolerations of a Pod's spec.
func Set(spec tree.Object, list []corev1.Toleration) {
	out := make([]any, len(list))
	for i := range list {
		out[i] = Tree(&list[i])
	}
	tree.SetList(spec, "tolerations", out)
}

// Merge merges two lists. Of two tolerations one of which tolerates all that the other does,
// it stays alone.
func Merge(first, second []corev1.Toleration) (merged []corev1.Toleration) {
	all := append(append(make([]corev1.Toleration, 0, len(first)+len(second)), first...), second...)
	for i := range all {
		if !redundant(&all[i], merged, all[i+1:]) {
			merged = append(merged, all[i])
		}
	}
	return merged
}

// redundant reports whether one of those before or behind t tolerates all that it does. Of
// equal ones the first stays.
func redundant(t *corev1.Toleration, before, behind []corev1.Toleration) bool {
	for i := range before {
		if covers(&before[i], t) {
			return true
		}
	}
	for i := range behind {
		if covers(&behind[i], t) && !equality.Semantic.DeepEqual(&behind[i], t) {
			return true
		}
	}
	return false
}

// Allowed reports whether each toleration is one of a list, or tolerates no more than one. An
// empty list allows all.
func Allowed(list, allowed []corev1.Toleration) bool {
	if len(allowed) == 0 {
		return true
	}
	for i := range list {
		found := false
		for j := range allowed {
			found = found || covers(&allowed[j], &list[i])
		}
		if !found {
			return false
		}
	}
	return true
}

// covers reports whether ss tolerates all that t does.
func covers(ss, t *corev1.Toleration) bool {
	switch {
	case equality.Semantic.DeepEqual(ss, t):
		return true
	case t.Key != ss.Key && (ss.Key != "" || ss.Operator != corev1.TolerationOpExists): // Exists without a key is all keys
		return false
	case t.Effect != ss.Effect && ss.Effect != "": // no effect is all effects
		return false
	case ss.Effect == corev1.TaintEffectNoExecute && ss.TolerationSeconds != nil &&
		(t.TolerationSeconds == nil || *t.TolerationSeconds > *ss.TolerationSeconds):
		return false
	}
	switch ss.Operator {
	case corev1.TolerationOpEqual, "":
		return t.Operator == corev1.TolerationOpEqual && t.Value == ss.Value
	case corev1.TolerationOpExists:
		return true
	}
	return false // Lt and Gt, which upstream compares with nothing either
}
