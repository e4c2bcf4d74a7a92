package rbac

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/quorate/quorate/internal/must"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// api is Objects that are stored in memory. Writes can be refused.
type api struct {
	*stored
	mu      sync.Mutex
	objects map[string][]byte
	wrote   []string           // what was written, in order
	refuse  map[string][]error // the answers to the first writes of an object
}

func newAPI(t testing.TB) *api {
	return &api{stored: newStored(t), objects: map[string][]byte{}, refuse: map[string][]error{}}
}

func (a *api) Get(_ context.Context, r schema.GroupVersionResource, namespace, name string, into any) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	b, ok := a.objects[r.Resource+" "+storedKey(namespace, name)]
	if !ok {
		return apierrors.NewNotFound(r.GroupResource(), name)
	}
	return json.Unmarshal(b, into)
}

func (a *api) Create(_ context.Context, r schema.GroupVersionResource, namespace string, obj any) error {
	return a.replace(r, namespace, obj.(interface{ GetName() string }).GetName(), obj)
}

func (a *api) Update(_ context.Context, r schema.GroupVersionResource, namespace, name string, obj any) error {
	return a.replace(r, namespace, name, obj)
}

func (a *api) Delete(context.Context, schema.GroupVersionResource, string, string, types.UID) error {
	return errors.New("nothing is deleted here")
}

func (a *api) replace(r schema.GroupVersionResource, namespace, name string, obj any) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := r.Resource + " " + storedKey(namespace, name)
	if answers := a.refuse[at]; len(answers) > 0 {
		a.refuse[at] = answers[1:]
		return answers[0]
	}
	b, err := json.Marshal(obj)
	if err != nil {
		return err
	}
	a.put(r.Resource, storedKey(namespace, name), string(b[1:len(b)-1]))
	a.objects[at], a.wrote = b, append(a.wrote, at)
	return nil
}

func storedKey(namespace, name string) string {
	return strings.TrimPrefix(namespace+"/"+name, "/")
}

const smallPolicy = `
ClusterRole one
	get core pods
ClusterRole two
	get core secrets
Role ns/r
	get core pods
ClusterRoleBinding cluster-admin to ClusterRole one
	Group system:masters
ClusterRoleBinding b to ClusterRole one
	User u
RoleBinding ns/b to Role r
	User u
`

// The objects of smallPolicy, in the order of their texts. That of the binding cluster-admin is
// written last.
const allButLast = "clusterrolebindings b, clusterroles one, clusterroles two, rolebindings ns/b, roles ns/r"

// TestEnsure: all objects are tried, cluster-admin's binding is the last of them and says that the
// others are there; what is protected stays as it is, and the log says so if it lacks something.
func TestEnsure(t *testing.T) {
	full := errors.New("no space")
	conflict := apierrors.NewConflict(resource("clusterroles").GroupResource(), "one", errors.New("changed"))
	// change changes an object before the policy is ensured for the second time.
	change := func(a *api, at string, obj any, f func()) {
		must.OK(t, json.Unmarshal(a.objects[at], obj))
		f()
		b, err := json.Marshal(obj)
		must.OK(t, err)
		a.objects[at] = b
	}
	for _, row := range []struct {
		name   string
		change func(*api) // of a store that has all of the policy; nil: of an empty one
		refuse map[string][]error
		wrote  string // beside the last, sorted
		last   bool
		err    string // part of it
		log    string // part of the one line
	}{
		{name: "an empty store", wrote: allButLast, last: true},
		{name: "all is there", change: func(*api) {}, last: true},
		{name: "a role is not written", refuse: map[string][]error{"clusterroles one": {full}}, err: "ensure role one: no space",
			wrote: "clusterrolebindings b, clusterroles two, rolebindings ns/b, roles ns/r"},
		{name: "bindings are not written", refuse: map[string][]error{"clusterrolebindings b": {full}, "rolebindings ns/b": {full}},
			err: "ensure binding b: no space\nensure binding b: no space", wrote: "clusterroles one, clusterroles two, roles ns/r"},
		{name: "the last is not written", refuse: map[string][]error{"clusterrolebindings cluster-admin": {full}},
			err: "ensure binding cluster-admin: no space", wrote: allButLast},
		{name: "another node writes at the same time", wrote: allButLast, last: true,
			refuse: map[string][]error{"clusterroles one": {conflict, conflict}}},
		{name: "other nodes never cease to write", err: "changed", wrote: strings.Replace(allButLast, "clusterroles one, ", "", 1),
			refuse: map[string][]error{"clusterroles one": slices.Repeat([]error{conflict}, 100)}},
		{name: "a role lacks a rule", last: true, wrote: "clusterroles two", change: func(a *api) {
			var r rbacv1.ClusterRole
			change(a, "clusterroles two", &r, func() { r.Rules = nil })
		}},
		{name: "a protected role lacks a rule", last: true, log: "a role is protected from updates and lacks permissions", change: func(a *api) {
			var r rbacv1.ClusterRole
			change(a, "clusterroles two", &r, func() { r.Annotations[rbacv1.AutoUpdateAnnotationKey], r.Rules = "false", nil })
		}},
		{name: "a protected role lacks nothing", last: true, change: func(a *api) {
			var r rbacv1.ClusterRole
			change(a, "clusterroles two", &r, func() { r.Annotations[rbacv1.AutoUpdateAnnotationKey] = "false" })
		}},
		{name: "a binding lacks a subject", last: true, wrote: "rolebindings ns/b", change: func(a *api) {
			var b rbacv1.RoleBinding
			change(a, "rolebindings ns/b", &b, func() { b.Subjects = nil })
		}},
		{name: "a protected binding lacks a subject", last: true, log: "a binding is protected from updates and lacks subjects", change: func(a *api) {
			var b rbacv1.RoleBinding
			change(a, "rolebindings ns/b", &b, func() { b.Annotations[rbacv1.AutoUpdateAnnotationKey], b.Subjects = "false", nil })
		}},
		{name: "a protected binding lacks nothing", last: true, change: func(a *api) {
			var b rbacv1.RoleBinding
			change(a, "rolebindings ns/b", &b, func() { b.Annotations[rbacv1.AutoUpdateAnnotationKey] = "false" })
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			policy := parsePolicy(t, smallPolicy)
			a := newAPI(t)
			if row.change != nil {
				must.OK(t, Ensure(t.Context(), a, policy, slog.New(slog.DiscardHandler)))
				row.change(a)
				a.wrote = nil
			} else if a.z.Ensured() {
				t.Error("an empty store is ensured")
			}
			for at, answers := range row.refuse {
				a.refuse[at] = answers
			}
			var log bytes.Buffer
			err := Ensure(t.Context(), a, policy, slog.New(slog.NewTextHandler(&log, nil)))
			if (err != nil) != (row.err != "") || err != nil && !strings.Contains(err.Error(), row.err) {
				t.Errorf("error %v, want %q", err, row.err)
			}
			if at := slices.Index(a.wrote, "clusterrolebindings cluster-admin"); at >= 0 {
				if at != len(a.wrote)-1 {
					t.Errorf("cluster-admin's binding is not the last of %q", a.wrote)
				}
				a.wrote = a.wrote[:at]
			}
			slices.Sort(a.wrote)
			if got := strings.Join(a.wrote, ", "); got != row.wrote {
				t.Errorf("wrote %s, want %s", got, row.wrote)
			}
			if a.z.Ensured() != row.last {
				t.Errorf("ensured: %v", !row.last)
			}
			if strings.Count(log.String(), "\n") > 1 || (log.Len() > 0) != (row.log != "") || !strings.Contains(log.String(), row.log) {
				t.Errorf("the log is %q, want %q", &log, row.log)
			}
		})
	}
}

// TestEnsuredByTheLast: that administrators are bound by another binding says nothing.
func TestEnsuredByTheLast(t *testing.T) {
	s := newStored(t)
	masters := `"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"kind":"Group","name":"system:masters"}]`
	for _, row := range []struct {
		binding string
		want    bool
	}{{"another", false}, {"cluster-admin", true}} {
		s.put("clusterrolebindings", row.binding, masters)
		if s.z.Ensured() != row.want {
			t.Errorf("with the binding %s: ensured is %v", row.binding, !row.want)
		}
	}
}
