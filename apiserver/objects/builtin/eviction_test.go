package builtin

import (
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWhyNoneAllowed(t *testing.T) {
	failed := []metav1.Condition{{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.SyncFailedReason, Message: "no controllers"}}
	insufficient := []metav1.Condition{{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.InsufficientPodsReason, Message: "too few"}}
	allowed := []metav1.Condition{{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionTrue, Reason: policyv1.SufficientPodsReason, Message: "enough"}}
	for _, x := range []struct {
		current, desired int32
		conditions       []metav1.Condition
		want             string
	}{
		{1, 2, nil, "The disruption budget b needs 2 healthy pods and has 1 currently"},
		{2, 2, insufficient, "The disruption budget b needs 2 healthy pods and has 2 currently"},
		{1, 2, failed, "The disruption budget b does not allow evicting pods currently because it failed sync: no controllers"},
		{3, 2, insufficient, "The disruption budget b does not allow evicting pods currently (InsufficientPods): too few"},
		{3, 2, allowed, "The disruption budget b does not allow evicting pods currently"},
		{3, 2, nil, "The disruption budget b does not allow evicting pods currently"},
	} {
		b := &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Name: "b"},
			Status:     policyv1.PodDisruptionBudgetStatus{CurrentHealthy: x.current, DesiredHealthy: x.desired, Conditions: x.conditions},
		}
		if got := whyNoneAllowed(b); got != x.want {
			t.Errorf("%d of %d, %v:\n%s\nwant\n%s", x.current, x.desired, x.conditions, got, x.want)
		}
	}
}
