package pods

import (
	"context"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/tree"
	corev1 "k8s.io/api/core/v1"
)

// TolerationSeconds gives Pods the tolerations that they do not have.
type TolerationSeconds struct{ notReady, unreachable int64 }

// NewTolerationSeconds returns the plugin. The arguments are for how long a Pod stays, in seconds.
func NewTolerationSeconds(notReady, unreachable int64) *TolerationSeconds {
	return &TolerationSeconds{notReady, unreachable}
}

// Handles implements admission.Plugin.
func (*TolerationSeconds) Handles(a *admission.Attributes) bool {
	return (a.Operation == admission.Create || a.Operation == admission.Update) && a.Is("", "pods")
}

// Admit implements admission.Mutator.
func (p *TolerationSeconds) Admit(_ context.Context, a *admission.Attributes) error {
	list := tree.List(tree.Field(a.Object, "spec", "tolerations"))
	notReady, unreachable := tolerates(list, corev1.TaintNodeNotReady), tolerates(list, corev1.TaintNodeUnreachable)
	if notReady && unreachable {
		return nil
	}
	list = append(make([]any, 0, len(list)+2), list...)
	if !notReady {
		list = append(list, toleration(corev1.TaintNodeNotReady, p.notReady))
	}
	if !unreachable {
		list = append(list, toleration(corev1.TaintNodeUnreachable, p.unreachable))
	}
	spec := tree.Clone(a.Object["spec"])
	spec["tolerations"] = list
	a.Object["spec"] = spec
	return nil
}

// tolerates reports whether a list says anything of a taint with the effect NoExecute. As
// upstream, it looks neither at the operator nor at the value.
func tolerates(list []any, taint string) bool {
	for _, v := range list {
		t := tree.As(v)
		key, effect := tree.Text(t, "key"), tree.Text(t, "effect")
		if (key == taint || key == "") && (effect == string(corev1.TaintEffectNoExecute) || effect == "") {
			return true
		}
	}
	return false
}

func toleration(taint string, seconds int64) tree.Object {
	return tree.Object{
		"key": taint, "operator": string(corev1.TolerationOpExists), "effect": string(corev1.TaintEffectNoExecute),
		"tolerationSeconds": seconds,
	}
}
