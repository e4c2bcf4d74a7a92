package clients

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
)

// applyCalls applies with the typed and the dynamic client.
func applyCalls(t *testing.T, s *surroundings) {
	ctx, client := t.Context(), s.typed.CoreV1().ConfigMaps(s.ns)
	mine := func(value string) *corev1ac.ConfigMapApplyConfiguration {
		return corev1ac.ConfigMap("a", s.ns).WithData(map[string]string{"k": value})
	}
	first, err := client.Apply(ctx, mine("1"), metav1.ApplyOptions{FieldManager: "one"})
	noError(t, err)
	if len(first.ManagedFields) != 1 || first.ManagedFields[0].Manager != "one" || first.ManagedFields[0].Operation != metav1.ManagedFieldsOperationApply {
		t.Errorf("managedFields %+v", first.ManagedFields)
	}
	if _, err := client.Apply(ctx, mine("2"), metav1.ApplyOptions{FieldManager: "two"}); !apierrors.IsConflict(err) {
		t.Errorf("another's field: %v, want a conflict", err)
	}
	got, err := client.Apply(ctx, mine("2"), metav1.ApplyOptions{FieldManager: "two", Force: true})
	noError(t, err)
	if got.Data["k"] != "2" {
		t.Errorf("after force: %v", got.Data)
	}
	extracted, err := corev1ac.ExtractConfigMap(got, "two")
	noError(t, err)
	if extracted.Data["k"] != "2" {
		t.Errorf("extracted %+v", extracted)
	}
}
