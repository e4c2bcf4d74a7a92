package storage

import (
	"context"
	"slices"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/tree"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type inUseProtection struct{}

// NewInUseProtection returns StorageObjectInUseProtection.
func NewInUseProtection() admission.Mutator { return inUseProtection{} }

// Handles implements admission.Plugin.
func (inUseProtection) Handles(a *admission.Attributes) bool {
	return a.Operation == admission.Create && a.Subresource == "" && finalizerOf(a.Resource.GroupResource()) != ""
}

// finalizerOf is the finalizer of a resource, "" if it is not one of the three.
func finalizerOf(gr schema.GroupResource) string {
	switch gr {
	case schema.GroupResource{Group: corev1.GroupName, Resource: "persistentvolumes"}:
		return "kubernetes.io/pv-protection"
	case schema.GroupResource{Group: corev1.GroupName, Resource: "persistentvolumeclaims"}:
		return "kubernetes.io/pvc-protection"
	case schema.GroupResource{Group: storagev1.GroupName, Resource: "volumeattributesclasses"}:
		return "kubernetes.io/vac-protection"
	}
	return ""
}

// Admit implements admission.Mutator.
func (inUseProtection) Admit(_ context.Context, a *admission.Attributes) error {
	finalizer := finalizerOf(a.Resource.GroupResource())
	meta := a.Meta()
	list := tree.List(meta["finalizers"])
	if !slices.Contains(list, any(finalizer)) {
		meta["finalizers"] = append(slices.Clone(list), finalizer)
	}
	return nil
}
