package rbac

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cputime"
	"github.com/quorate/quorate/internal/must"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// TestAggregate: roles that cannot be written, or have the rules already, do not keep others from
// theirs; only what is no race is an error.
func TestAggregate(t *testing.T) {
	a := newAPI(t)
	if err := Aggregate(t.Context(), a.mem, a); err != nil || len(a.wrote) > 0 {
		t.Errorf("without a table: %v, wrote %q", err, a.wrote)
	}
	rules := []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}}
	store := func(name string, r rbacv1.ClusterRole) {
		t.Helper()
		r.Name = name
		b, err := json.Marshal(r)
		must.OK(t, err)
		a.put("clusterroles", name, string(b[1:len(b)-1]))
	}
	collects := func(s metav1.LabelSelector) *rbacv1.AggregationRule {
		return &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{s}}
	}
	label := map[string]string{"collect": "yes"}
	all := collects(metav1.LabelSelector{MatchLabels: label})
	store("a-plain", rbacv1.ClusterRole{})
	store("b-source", rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Labels: label}, Rules: rules})
	store("c-broken", rbacv1.ClusterRole{AggregationRule: collects(metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}})})
	store("d-has-them", rbacv1.ClusterRole{AggregationRule: all, Rules: rules})
	roles := resource("clusterroles").GroupResource()
	for name, answer := range map[string]error{
		"e-changed":  apierrors.NewConflict(roles, "e-changed", errors.New("somebody was first")),
		"f-gone":     apierrors.NewNotFound(roles, "f-gone"),
		"g-refused":  errors.New("no space"),
		"h-accepted": nil,
		"i-itself":   nil,
	} {
		r := rbacv1.ClusterRole{AggregationRule: all}
		if name == "i-itself" { // it selects itself, which counts for nothing
			r.Rules, r.AggregationRule = rules, collects(metav1.LabelSelector{MatchLabels: map[string]string{"own": "yes"}})
			r.Labels = map[string]string{"own": "yes"}
		}
		store(name, r)
		if answer != nil {
			a.refuse["clusterroles "+name] = []error{answer}
		}
	}
	err := Aggregate(t.Context(), a.mem, a)
	if err == nil || strings.Count(err.Error(), "\n") != 1 || !strings.Contains(err.Error(), "ClusterRole c-broken: ") || !strings.HasSuffix(err.Error(), "\nno space") {
		t.Errorf("the error is %v", err)
	}
	if got := fmt.Sprint(a.wrote); got != "[clusterroles h-accepted clusterroles i-itself]" {
		t.Errorf("wrote %s", got)
	}
	for name, want := range map[string]int{"h-accepted": 1, "i-itself": 0} {
		var r rbacv1.ClusterRole
		if err := a.Get(t.Context(), resource("clusterroles"), "", name, &r); err != nil || len(r.Rules) != want {
			t.Errorf("%s has the rules %v, %v", name, r.Rules, err)
		}
	}
	a.put("clusterroles", "z-unreadable", `"rules":7`)
	if err := Aggregate(t.Context(), a.mem, a); err == nil || !strings.HasPrefix(err.Error(), "read ClusterRole z-unreadable: ") {
		t.Errorf("of a role that cannot be read: %v", err)
	}
}
