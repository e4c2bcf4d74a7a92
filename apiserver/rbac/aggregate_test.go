package rbac

import (
	"fmt"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cputime"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestCollectManyRules: each rule is taken once, in the order of the roles, and the time does not
// grow with the square of their number: the leader does this after each change of a ClusterRole.
func TestCollectManyRules(t *testing.T) {
	const n = 30_000
	label := map[string]string{"collect": "yes"}
	one := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "one", Labels: label}}
	for i := range n {
		one.Rules = append(one.Rules, rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}, ResourceNames: []string{fmt.Sprint("p", i)}})
	}
	two := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "two", Labels: label}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}, ResourceNames: []string{"p7"}, NonResourceURLs: []string{}},
		{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}, ResourceNames: []string{"p7", "p8"}},
		{Verbs: []string{"get"}, NonResourceURLs: []string{"pods"}},
	}}
	into := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "into"}, AggregationRule: &rbacv1.AggregationRule{
		ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: label}, {MatchLabels: label}}}}
	var rules []rbacv1.PolicyRule
	var err error
	if took := cputime.Of(func() { rules, err = collect(into, []*rbacv1.ClusterRole{into, one, two}) }); took > 10*time.Second {
		t.Errorf("took %s", took)
	}
	if err != nil || len(rules) != n+2 || rules[7].ResourceNames[0] != "p7" || len(rules[n].ResourceNames) != 2 || len(rules[n+1].NonResourceURLs) != 1 {
		t.Errorf("%d rules, %v", len(rules), err)
	}
}
