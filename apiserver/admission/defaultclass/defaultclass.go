// Package defaultclass is the plugins DefaultStorageClass and DefaultIngressClass: what is
// created without a class gets the one that is marked as the default.
package defaultclass

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/proto"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// plugin sets one field of one resource to the name of the default class.
type plugin struct {
	group, resource string
	rule            admission.Rules
	// field is where the class stands; annotation is where it stood in older versions.
	field, annotation string
	// newest is the name of the newest class that is marked as the default, "" if none is.
	newest func() string
}

// Storage is DefaultStorageClass: claims for volumes.
func Storage(s *state.State, log *slog.Logger) admission.Mutator {
	classes := state.All[storagev1.StorageClass](s, storagev1.Resource("storageclasses"), log)
	return &plugin{
		resource: "persistentvolumeclaims", rule: admission.Rules(proto.RuleStorageClasses),
		field: "storageClassName", annotation: corev1.BetaStorageClassAnnotation,
		newest: func() string {
			return newest(classes.List(), "storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
		},
	}
}

// Ingress is DefaultIngressClass: Ingresses.
func Ingress(s *state.State, log *slog.Logger) admission.Mutator {
	classes := state.All[networkingv1.IngressClass](s, networkingv1.Resource("ingressclasses"), log)
	return &plugin{
		group: networkingv1.GroupName, resource: "ingresses", rule: admission.Rules(proto.RuleIngressClasses),
		field: "ingressClassName", annotation: networkingv1beta1.AnnotationIngressClass,
		newest: func() string { return newest(classes.List(), networkingv1.AnnotationIsDefaultIngressClass) },
	}
}

// Handles implements admission.Plugin.
func (p *plugin) Handles(a *admission.Attributes) bool {
	return a.Operation == admission.Create && a.Is(p.group, p.resource)
}

// Admit implements admission.Mutator. An empty class is a class: it asks for none.
func (p *plugin) Admit(_ context.Context, a *admission.Attributes) error {
	if tree.Field(a.Object, "spec", p.field) != nil || tree.Field(a.Meta(), "annotations", p.annotation) != nil {
		return nil
	}
	a.Consulted(p.rule)
	class := p.newest()
	if class == "" {
		return nil
	}
	if err := tree.Set(a.Object, "spec."+p.field, class); err != nil {
		return fmt.Errorf("set the default class: %w", err)
	}
	return nil
}

// newest returns the name of the class that was marked last, as far as the times of creation
// tell; the first by name among those of one second. classes are in the order of their names.
func newest[T any, C interface {
	*T
	metav1.Object
}](classes []*T, marks ...string) string {
	var best C
	for _, class := range classes {
		c := C(class)
		if !marked(c.GetAnnotations(), marks) {
			continue
		}
		if best == nil || c.GetCreationTimestamp().After(best.GetCreationTimestamp().Time) {
			best = c
		}
	}
	if best == nil {
		return ""
	}
	return best.GetName()
}

func marked(annotations map[string]string, marks []string) bool {
	for _, mark := range marks {
		if annotations[mark] == "true" {
			return true
		}
	}
	return false
}
