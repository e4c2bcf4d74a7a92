package controllers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/access/rbac"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRoles: the bootstrap roles come, once; roles that collect the rules of others have them, at the
// start and when another one comes.
func TestRoles(t *testing.T) {
	e := newEnv(t, Config{Controllers: []Name{BootstrapRolesController, ClusterRoleAggregationController}})
	roles := rbacv1.SchemeGroupVersion.WithResource("clusterroles")
	create := func(name string, change func(*rbacv1.ClusterRole)) {
		t.Helper()
		r := &rbacv1.ClusterRole{}
		r.Name = name
		change(r)
		must.OK(t, e.client.Create(t.Context(), roles, "", r))
	}
	collected := func(resource string) func(*rbacv1.ClusterRole) {
		return func(r *rbacv1.ClusterRole) {
			r.Labels = map[string]string{"collect": "yes"}
			r.Rules = []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{resource}}}
		}
	}
	create("collecting", func(r *rbacv1.ClusterRole) {
		r.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"collect": "yes"}}}}
	})
	create("one", collected("pods"))
	e.run()
	has := func(want string) func() string {
		return func() string {
			var r rbacv1.ClusterRole
			must.OK(t, e.client.Get(t.Context(), roles, "", "collecting", &r))
			var got []string
			for _, rule := range r.Rules {
				got = append(got, rule.Resources...)
			}
			if fmt.Sprint(got) != want {
				return fmt.Sprintf("%v, want %s", got, want)
			}
			return ""
		}
	}
	e.await("the first role's rules", has("[pods]"))
	create("two", collected("secrets"))
	e.await("both roles' rules", has("[pods secrets]"))
	e.await("the bootstrap roles", func() string {
		var r rbacv1.ClusterRole
		if err := e.client.Get(t.Context(), roles, "", "cluster-admin", &r); err != nil {
			return err.Error()
		}
		return ""
	})
	if got, want := e.seen.String(), "map[bootstrap-roles-controller:true clusterrole-aggregation-controller:true] map[]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestRetriesAreCounted: a step that fails is counted and repeated, without an end of its controller.
func TestRetriesAreCounted(t *testing.T) {
	e := newEnv(t, Config{Controllers: []Name{ClusterRoleAggregationController}})
	e.write(&proto.Write{Table: rbac.ClusterRolesTable, Key: "bad", Op: proto.Op_OP_PUT, Value: []byte("7"), Uid: "u"})
	e.run()
	e.await("a second failure", func() string {
		e.seen.mu.Lock()
		defer e.seen.mu.Unlock()
		if n := e.seen.failed[string(ClusterRoleAggregationController)]; n < 2 {
			return fmt.Sprintf("%d are counted", n)
		}
		return ""
	})
	if got, want := e.seen.String(), "map[clusterrole-aggregation-controller:true]"; !strings.HasPrefix(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestOneBadRoleDelaysNoOther: a ClusterRole whose rules cannot be collected is tried again from
// time to time; the others are collected when they change.
func TestOneBadRoleDelaysNoOther(t *testing.T) {
	e := newEnv(t, Config{Controllers: []Name{ClusterRoleAggregationController}})
	e.write(&proto.Write{Table: rbac.ClusterRolesTable, Key: "bad", Op: proto.Op_OP_PUT, Uid: "u", Value: []byte(
		`{"metadata":{"name":"bad"},"aggregationRule":{"clusterRoleSelectors":[{"matchExpressions":[{"key":"a","operator":"Bogus"}]}]}}`)})
	roles := rbacv1.SchemeGroupVersion.WithResource("clusterroles")
	collecting := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "collecting"}, AggregationRule: &rbacv1.AggregationRule{
		ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"collect": "yes"}}}}}
	must.OK(t, e.client.Create(t.Context(), roles, "", collecting))
	e.run()
	fastest := retryDelay
	for i := range 5 {
		one := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("one", i), Labels: map[string]string{"collect": "yes"}},
			Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{fmt.Sprint("r", i)}}}}
		began := time.Now()
		must.OK(t, e.client.Create(t.Context(), roles, "", one))
		e.await("the rules", func() string {
			var r rbacv1.ClusterRole
			must.OK(t, e.client.Get(t.Context(), roles, "", "collecting", &r))
			if len(r.Rules) != i+1 {
				return fmt.Sprint(len(r.Rules))
			}
			return ""
		})
		if i > 0 { // it came right after a round that had failed
			fastest = min(fastest, time.Since(began))
		}
	}
	if fastest > retryDelay/2 {
		t.Errorf("no rules came in less than %v", fastest)
	}
}
