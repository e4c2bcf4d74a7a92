package quota_test

import (
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/types/quota"
	"github.com/quorate/quorate/apiserver/types/tree"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
)

// scope is a requirement of a quota that a test names.
func scope(name corev1.ResourceQuotaScope, operator corev1.ScopeSelectorOperator, values ...string) corev1.ScopedResourceSelectorRequirement {
	return corev1.ScopedResourceSelectorRequirement{ScopeName: name, Operator: operator, Values: values}
}

// TestInScope asks for each operator of objects with the fact, with another value of it, and without it.
func TestInScope(t *testing.T) {
	objects := map[string]struct {
		gr   schema.GroupResource
		text string
	}{
		"plain":      {quota.Pods, `{"spec":{"containers":[{"resources":{"requests":{"cpu":"1"}}}]}}`},
		"best":       {quota.Pods, `{"spec":{"containers":[{}]}}`},
		"high":       {quota.Pods, `{"spec":{"priorityClassName":"high","containers":[{"resources":{"requests":{"cpu":"1"}}}]}}`},
		"best, low":  {quota.Pods, `{"spec":{"priorityClassName":"low","containers":[{}]}}`},
		"ends":       {quota.Pods, `{"spec":{"activeDeadlineSeconds":1,"containers":[{"resources":{"requests":{"cpu":"1"}}}]}}`},
		"best, ends": {quota.Pods, `{"spec":{"activeDeadlineSeconds":1,"containers":[{}]}}`},
		"crosses": {quota.Pods, `{"spec":{"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":
			[{"namespaces":["a"]}]}},"containers":[{"resources":{"requests":{"cpu":"1"}}}]}}`},
		"claim":      {quota.VolumeClaims, `{}`},
		"fast claim": {quota.VolumeClaims, `{"spec":{"volumeAttributesClassName":"fast"}}`},
		"changing claim": {quota.VolumeClaims, `{"spec":{"volumeAttributesClassName":"fast"},"status":{"currentVolumeAttributesClassName":"slow",
			"modifyVolumeStatus":{"targetVolumeAttributesClassName":"fast"}}}`},
		"claim of three": {quota.VolumeClaims, `{"spec":{"volumeAttributesClassName":"slow"},"status":{"currentVolumeAttributesClassName":"old",
			"modifyVolumeStatus":{"targetVolumeAttributesClassName":"fast"}}}`},
		"service": {quota.Services, `{"spec":{"type":"NodePort"}}`},
	}
	const (
		in, notIn     = corev1.ScopeSelectorOpIn, corev1.ScopeSelectorOpNotIn
		exists, lacks = corev1.ScopeSelectorOpExists, corev1.ScopeSelectorOpDoesNotExist
		priority      = corev1.ResourceQuotaScopePriorityClass
		volume        = corev1.ResourceQuotaScopeVolumeAttributesClass
	)
	for _, row := range []struct {
		scope corev1.ScopedResourceSelectorRequirement
		has   []string
	}{
		{scope(corev1.ResourceQuotaScopeBestEffort, exists), []string{"best", "best, low", "best, ends"}},
		{scope(corev1.ResourceQuotaScopeNotBestEffort, exists), []string{"plain", "high", "ends", "crosses"}},
		{scope(corev1.ResourceQuotaScopeTerminating, exists), []string{"ends", "best, ends"}},
		{scope(corev1.ResourceQuotaScopeNotTerminating, exists), []string{"plain", "best", "high", "best, low", "crosses"}},
		{scope(corev1.ResourceQuotaScopeCrossNamespacePodAffinity, exists), []string{"crosses"}},
		{scope(priority, in, "high", "middle"), []string{"high"}},
		{scope(priority, in, "low"), []string{"best, low"}},
		{scope(priority, notIn, "high"), []string{"plain", "best", "best, low", "ends", "best, ends", "crosses"}},
		{scope(priority, notIn, "low", "middle"), []string{"plain", "best", "high", "ends", "best, ends", "crosses"}},
		{scope(priority, exists), []string{"high", "best, low"}},
		{scope(priority, lacks), []string{"plain", "best", "ends", "best, ends", "crosses"}},
		{scope(priority, "Later"), nil},
		{scope("Later", exists), nil},
		{scope(volume, in, "fast"), []string{"fast claim", "changing claim", "claim of three"}},
		{scope(volume, in, "slow"), []string{"changing claim", "claim of three"}},
		{scope(volume, in, "old"), []string{"claim of three"}},
		{scope(volume, in, "new"), nil},
		{scope(volume, notIn, "fast"), []string{"claim", "changing claim", "claim of three"}},
		{scope(volume, notIn, "slow"), []string{"claim", "fast claim", "changing claim", "claim of three"}},
		{scope(volume, notIn, "slow", "fast"), []string{"claim", "claim of three"}},
		{scope(volume, exists), []string{"fast claim", "changing claim", "claim of three"}},
		{scope(volume, lacks), []string{"claim"}},
	} {
		want := map[string]bool{}
		for _, name := range row.has {
			want[name] = true
		}
		for name, o := range objects {
			var obj tree.Object
			if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(o.text), &obj); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			u, _ := quota.Of(o.gr, obj, time.Time{})
			if got := u.InScope(row.scope); got != want[name] {
				t.Errorf("%q is in scope %v: %t", name, row.scope, got)
			}
		}
	}
}
