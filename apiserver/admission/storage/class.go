package storage

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/proto"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

type defaultClass struct {
	classes *state.Objects[storagev1.StorageClass]
}

// NewDefaultClass returns DefaultStorageClass.
func NewDefaultClass(s *state.State, log *slog.Logger) admission.Mutator {
	return &defaultClass{state.All[storagev1.StorageClass](s, storagev1.Resource("storageclasses"), log)}
}

// Handles implements admission.Plugin.
func (*defaultClass) Handles(a *admission.Attributes) bool {
	return a.Operation == admission.Create && a.Is("", "persistentvolumeclaims")
}

// Admit implements admission.Mutator. An empty class is a class: it asks for none.
func (p *defaultClass) Admit(_ context.Context, a *admission.Attributes) error {
	if tree.Field(a.Object, "spec", "storageClassName") != nil || tree.Field(a.Meta(), "annotations", corev1.BetaStorageClassAnnotation) != nil {
		return nil
	}
	a.Consulted(admission.Rules(proto.RuleStorageClasses))
	class := newest(p.classes.List())
	if class == nil {
		return nil
	}
	if err := tree.Set(a.Object, "spec.storageClassName", class.Name); err != nil {
		return fmt.Errorf("set the default class: %w", err)
	}
	return nil
}

// newest returns the class that was marked last, as far as the times of creation tell; the first by name
// among those of one second; nil if there is none. classes are in the order of their names.
func newest(classes []*storagev1.StorageClass) (best *storagev1.StorageClass) {
	for _, c := range classes {
		if isDefault(c) && (best == nil || c.CreationTimestamp.After(best.CreationTimestamp.Time)) {
			best = c
		}
	}
	return best
}

func isDefault(c *storagev1.StorageClass) bool {
	return c.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" || c.Annotations["storageclass.beta.kubernetes.io/is-default-class"] == "true"
}
