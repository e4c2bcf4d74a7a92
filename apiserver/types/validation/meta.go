package validation

import (
	"strings"

	"github.com/quorate/quorate/apiserver/types/tree"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// What upstream asks of the metadata of all objects, it asks twice: rest.BeforeCreate and
// rest.BeforeUpdate do, and so do the functions of most kinds. Here the first time is a look for
// what nearly all objects are, by which nothing can be wrong; upstream's functions look at the rest.

// createdMeta is what rest.BeforeCreate finds wrong with metadata.
func createdMeta(meta metav1.Object, namespaced bool) field.ErrorList {
	if m, ok := meta.(*metav1.ObjectMeta); ok && plainMeta(m, namespaced) {
		return nil
	}
	return validation.ValidateObjectMetaAccessor(meta, namespaced, tree.PathSegmentName, metadataPath)
}

// updatedMeta is what rest.BeforeUpdate finds wrong with metadata in the place of others.
func updatedMeta(meta, old metav1.Object, namespaced bool) field.ErrorList {
	m, ok := meta.(*metav1.ObjectMeta)
	was, okWas := old.(*metav1.ObjectMeta)
	if ok && okWas && plainMeta(m, namespaced) && plainUpdate(m, was) {
		return nil
	}
	errs := validation.ValidateObjectMetaAccessor(meta, namespaced, tree.PathSegmentName, metadataPath)
	return append(errs, validation.ValidateObjectMetaAccessorUpdate(meta, old, metadataPath)...)
}

// plainMeta accepts a subset of what ValidateObjectMetaAccessor accepts.
func plainMeta(m *metav1.ObjectMeta, namespaced bool) bool {
	switch {
	case m.Name == "" || m.Name[0] == '.' || strings.ContainsAny(m.Name, "/%") || strings.ContainsAny(m.GenerateName, "/%"),
		namespaced && !tree.IsPlainDNSLabel(m.Namespace), !namespaced && m.Namespace != "",
		m.Generation < 0, len(m.OwnerReferences) > 0, len(m.Finalizers) > 0, len(m.ManagedFields) > 0:
		return false
	}
	for k, v := range m.Labels {
		if !tree.IsPlainLabelKey(k) || !tree.IsPlainLabelValue(v) {
			return false
		}
	}
	size := 0
	for k, v := range m.Annotations {
		if size += len(k) + len(v); !tree.IsPlainLabelKey(k) {
			return false
		}
	}
	return size <= validation.TotalAnnotationSizeLimitB
}

// plainUpdate accepts a subset of what ValidateObjectMetaAccessorUpdate accepts, of plain metadata.
func plainUpdate(m, old *metav1.ObjectMeta) bool {
	return m.ResourceVersion != "" && m.Generation >= old.Generation &&
		m.Name == old.Name && m.Namespace == old.Namespace && m.UID == old.UID && m.CreationTimestamp == old.CreationTimestamp &&
		m.DeletionTimestamp == nil && old.DeletionTimestamp == nil &&
		m.DeletionGracePeriodSeconds == nil && old.DeletionGracePeriodSeconds == nil
}
