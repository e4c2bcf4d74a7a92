package rbac

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/internal/cputime"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/memstore"
	"github.com/quorate/quorate/raftstore/mvcc"
	rbacv1 "k8s.io/api/rbac/v1"
)

var update = flag.Bool("update", false, "rewrite testdata")

// indexOf compiles a policy without a store.
func indexOf(p *Policy) *Index {
	c := new(Index).change()
	for _, r := range p.ClusterRoles {
		c.setRole(roleKey{name: r.Name}, r.Rules)
	}
	for _, r := range p.Roles {
		c.setRole(roleKey{namespace: r.Namespace, name: r.Name}, r.Rules)
	}
	for _, b := range p.ClusterRoleBindings {
		c.addBinding(&binding{key: b.Name, ref: b.RoleRef, subjects: b.Subjects})
	}
	for _, b := range p.RoleBindings {
		c.addBinding(&binding{key: b.Namespace + "/" + b.Name, ref: b.RoleRef, subjects: b.Subjects})
	}
	return c.done()
}

// TestDecisions runs testdata/decisions.txt.
func TestDecisions(t *testing.T) {
	text, err := os.ReadFile("testdata/decisions.txt")
	must.OK(t, err)
	stories := strings.Split(string(text), "\n--- ")[1:]
	if len(stories) < 10 {
		t.Fatalf("%d stories", len(stories))
	}
	for _, story := range stories {
		name, body, _ := strings.Cut(story, "\n")
		t.Run(name, func(t *testing.T) { decide(t, body) })
	}
}

func decide(t *testing.T, body string) {
	var policy, questions []string
	for line := range strings.SplitSeq(body, "\n") {
		switch first, _, _ := strings.Cut(line, " "); first {
		case "yes", "no", "why":
			questions = append(questions, line)
		default:
			policy = append(policy, line)
		}
	}
	x := indexOf(parsePolicy(t, strings.Join(policy, "\n")))
	reason := ""
	for _, q := range questions {
		words := strings.Fields(q)
		if words[0] == "why" {
			if want := strings.TrimPrefix(strings.TrimPrefix(q, "why"), " "); reason != want {
				t.Errorf("the reason is %q, want %q", reason, want)
			}
			continue
		}
		a := question(words[1:])
		d, why, err := x.authorize(&a)
		if got := d == auth.Allow; got != (words[0] == "yes") || err != nil || d == auth.Deny {
			t.Errorf("%s: %v %q %v", q, d, why, err)
		}
		reason = why
	}
}

func question(words []string) auth.Attributes {
	who := strings.Split(words[0], ",")
	u := &auth.User{Name: who[0], Groups: who[1:]}
	if sa, ok := strings.CutPrefix(who[0], "sa:"); ok {
		namespace, name, _ := strings.Cut(sa, "/")
		u.Name = auth.ServiceAccountUser(namespace, name)
	}
	a := auth.Attributes{User: u, Verb: words[1]}
	if words[2] == "at" {
		a.Path = words[3]
		return a
	}
	a.ResourceRequest = true
	if a.APIGroup = words[2]; a.APIGroup == "core" {
		a.APIGroup = ""
	}
	var object string
	object, a.Name, _ = strings.Cut(words[3], ":")
	a.Resource, a.Subresource, _ = strings.Cut(object, "/")
	if len(words) > 4 {
		a.Namespace = words[5]
	}
	return a
}

// TestBootstrap: testdata/bootstrap.txt has the roles and bindings of the Kubernetes that is linked. What
// a new one changes is read here first; -update writes it.
func TestBootstrap(t *testing.T) {
	got := policyText(t, Bootstrap())
	if *update {
		must.OK(t, os.WriteFile("testdata/bootstrap.txt", []byte(got), 0o600))
	}
	want, err := os.ReadFile("testdata/bootstrap.txt")
	must.OK(t, err)
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("-recorded +linked: %s", d)
	}
}

// TestFirstDecisions: what upstream's users rely on from the first second.
func TestFirstDecisions(t *testing.T) {
	x := indexOf(Bootstrap())
	for _, row := range []string{
		"yes root,system:masters delete core secrets:x in kube-system",
		"yes root,system:masters post at /anything",
		"yes u,system:authenticated create authorization.k8s.io selfsubjectaccessreviews",
		"yes u,system:authenticated create authentication.k8s.io selfsubjectreviews",
		"yes u,system:authenticated get at /apis/apps/v1",
		"yes u,system:unauthenticated get at /version",
		"no u,system:unauthenticated get at /apis",
		"no u,system:authenticated list core pods in default",
		"yes sa:kube-system/deployment-controller update apps deployments/status:x in default",
		"no sa:default/deployment-controller update apps deployments/status:x in default",
		"yes system:kube-scheduler create core pods/binding:x in default",
		"no n,system:nodes get core secrets:x in default",
	} {
		words := strings.Fields(row)
		a := question(words[1:])
		if d, why, _ := x.authorize(&a); (d == auth.Allow) != (words[0] == "yes") {
			t.Errorf("%s: %v %q", row, d, why)
		}
	}
}

// TestNodeRules: kubelets have the rules of system:node, and those of bundles where these are served.
func TestNodeRules(t *testing.T) {
	for _, bundles := range []bool{false, true} {
		rules := NodeRules(bundles)
		for resource, want := range map[string]bool{" pods": true, " services": true, "certificates.k8s.io clustertrustbundles": bundles, " bindings": false} {
			group, name, _ := strings.Cut(resource, " ")
			if Allow(rules, &auth.Attributes{Verb: "get", APIGroup: group, Resource: name, ResourceRequest: true}) != want {
				t.Errorf("bundles %v: nodes may get %s: %v", bundles, resource, !want)
			}
		}
	}
}

// stored is an Authorizer on a memory store.
type stored struct {
	t   testing.TB
	mem *memstore.Store
	z   *Authorizer
}

func newStored(t testing.TB) *stored {
	s := &stored{t: t, mem: memstore.New()}
	s.z = New(s.mem, slog.New(slog.NewTextHandler(io.Discard, nil)))
	t.Cleanup(func() { must.Close(t, s.mem) })
	return s
}

func (s *stored) write(op proto.Op, table, key, value string) {
	s.t.Helper()
	w := &proto.Write{Table: table + "." + rbacv1.GroupName, Key: key, Op: op}
	if op == proto.Op_OP_PUT {
		const head = `{"metadata":{"resourceVersion":"` // the revision goes in behind it
		w.Value, w.RevisionOffset = []byte(head+`"},`+value+`}`), uint32(len(head))
	}
	r, err := s.mem.Propose(context.Background(), w)
	if err != nil || r.Outcome != proto.Outcome_OUTCOME_APPLIED {
		s.t.Fatalf("write %s/%s: %v %v", table, key, r.Outcome, err)
	}
}

func (s *stored) put(table, key, value string) { s.write(proto.Op_OP_PUT, table, key, value) }

const getPods = `"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]`

func bound(kind, role, user string) string {
	return fmt.Sprintf(`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":%q,"name":%q},"subjects":[{"kind":"User","name":%q}]`, kind, role, user)
}

func (s *stored) may(user, namespace string) bool {
	a := auth.Attributes{User: &auth.User{Name: user}, Verb: "get", Resource: "pods", Namespace: namespace, ResourceRequest: true}
	d, _, err := s.z.Authorize(context.Background(), a)
	must.OK(s.t, err)
	return d == auth.Allow
}

// TestFollows: each change counts as soon as it is visible.
func TestFollows(t *testing.T) {
	s := newStored(t)
	expect := func(user, namespace string, want bool) {
		t.Helper()
		if s.may(user, namespace) != want {
			t.Errorf("%s in %q: want %v", user, namespace, want)
		}
	}
	if !s.z.Empty() {
		t.Error("not empty")
	}
	expect("u", "", false)
	s.put("clusterrolebindings", "b", bound("ClusterRole", "c", "u"))
	expect("u", "", false)
	if s.z.Empty() {
		t.Error("empty with a binding")
	}
	s.put("clusterroles", "c", getPods)
	expect("u", "", true)
	expect("u", "ns", true)
	s.put("clusterroles", "c", `"rules":null`)
	expect("u", "", false)
	s.put("clusterroles", "c", getPods)
	expect("u", "", true)
	s.put("clusterrolebindings", "b", bound("ClusterRole", "c", "v"))
	expect("u", "", false)
	expect("v", "", true)
	s.write(proto.Op_OP_DELETE, "clusterrolebindings", "b", "")
	expect("v", "", false)
	if !s.z.Empty() {
		t.Error("not empty after the last binding is gone")
	}
	s.put("roles", "ns/r", getPods)
	s.put("rolebindings", "ns/b", bound("Role", "r", "u"))
	expect("u", "ns", true)
	expect("u", "", false)
	s.write(proto.Op_OP_DELETE, "roles", "ns/r", "")
	expect("u", "ns", false)
	s.put("roles", "ns/r", getPods)
	// More changes than are read at once.
	for i := range 300 {
		s.put("rolebindings", fmt.Sprintf("ns/b%d", i), bound("Role", "r", fmt.Sprintf("u%d", i)))
	}
	expect("u0", "ns", true)
	expect("u299", "ns", true)
	s.put("rolebindings", "ns/b299", `"roleRef":7`)
	expect("u299", "ns", false)
	expect("u298", "ns", true)
}

// TestFollowsAfterCompaction: changes that are forgotten are not missed.
func TestFollowsAfterCompaction(t *testing.T) {
	s := newStored(t)
	s.put("clusterroles", "c", getPods)
	s.put("clusterrolebindings", "b", bound("ClusterRole", "c", "u"))
	if !s.may("u", "") {
		t.Fatal("not allowed")
	}
	s.write(proto.Op_OP_DELETE, "clusterrolebindings", "b", "")
	s.put("clusterrolebindings", "b2", bound("ClusterRole", "c", "v"))
	must.OK(t, s.mem.Compact(context.Background(), s.mem.State().Applied()))
	if s.may("u", "") || !s.may("v", "") {
		t.Error("the changes before the floor were missed")
	}
}

// TestFollowsNewState: a snapshot replaces the state as a whole.
func TestFollowsNewState(t *testing.T) {
	one, two := newStored(t), newStored(t)
	one.put("clusterroles", "c", getPods)
	one.put("clusterrolebindings", "b", bound("ClusterRole", "c", "u"))
	two.put("clusterroles", "c", getPods)
	two.put("clusterrolebindings", "b", bound("ClusterRole", "c", "v"))
	var now stateOf = one.mem.State
	z := New(&now, slog.New(slog.NewTextHandler(io.Discard, nil)))
	one.z = z
	if !one.may("u", "") || one.may("v", "") {
		t.Fatal("the first state is not in force")
	}
	now = two.mem.State
	if one.may("u", "") || !one.may("v", "") {
		t.Error("the second state is not in force")
	}
}

type stateOf func() *mvcc.State

func (f *stateOf) State() *mvcc.State { return (*f)() }

// TestEscalation words what is missing as upstream does.
func TestEscalation(t *testing.T) {
	s := newStored(t)
	s.put("clusterroles", "c", getPods)
	s.put("clusterrolebindings", "b", bound("ClusterRole", "c", "u"))
	u := &auth.User{Name: "u", Groups: []string{"g", "system:authenticated"}}
	rule := func(words string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{parseRule(strings.Fields(words))}
	}
	for _, row := range []struct{ rule, missing string }{
		{"get core pods", ""},
		{"get core pods named a", ""},
		{"get,list,watch core pods", `{APIGroups:[""], Resources:["pods"], Verbs:["list" "watch"]}`},
		{"get,delete core,apps pods", `{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}` + "\n" + `{APIGroups:["apps"], Resources:["pods"], Verbs:["get" "delete"]}`},
		{"list,watch core pods jobs", `{APIGroups:[""], Resources:["jobs"], Verbs:["list" "watch"]}` + "\n" + `{APIGroups:[""], Resources:["pods"], Verbs:["list" "watch"]}`},
		{"* core pods", `{APIGroups:[""], Resources:["pods"], Verbs:["*"]}`},
		{"update core pods named x", `{APIGroups:[""], Resources:["pods"], ResourceNames:["x"], Verbs:["update"]}`},
		{"get,put at /x", `{NonResourceURLs:["/x"], Verbs:["get"]}` + "\n" + `{NonResourceURLs:["/x"], Verbs:["put"]}`},
	} {
		err := s.z.ConfirmNoEscalation(context.Background(), u, "", rule(row.rule))
		want := ""
		if row.missing != "" {
			want = `user "u" (groups=["g" "system:authenticated"]) is attempting to grant RBAC permissions not currently held:` + "\n" + row.missing
		}
		if got := fmt.Sprint(err); got != want && (err != nil || want != "") {
			t.Errorf("%s: %s\nwant %s", row.rule, got, want)
		}
	}
}

// TestRulesFor: roles that are missing are named, and the rules of others count all the same: in a
// refusal too.
func TestRulesFor(t *testing.T) {
	s := newStored(t)
	s.put("clusterroles", "c", getPods)
	s.put("clusterrolebindings", "b", bound("ClusterRole", "c", "u"))
	u := &auth.User{Name: "u"}
	lost := `clusterrole.rbac.authorization.k8s.io "gone" not found`
	for _, want := range []string{"", lost} {
		if want != "" {
			s.put("clusterrolebindings", "a-lost", bound("ClusterRole", "gone", "u"))
		}
		rules, err := s.z.RulesFor(u, "ns")
		if len(rules) != 1 || (err != nil) != (want != "") || err != nil && err.Error() != want {
			t.Errorf("rules %v, %v, want %q", rules, err, want)
		}
		if err := s.z.ConfirmNoEscalation(t.Context(), u, "", rules); err != nil {
			t.Errorf("what a user has is refused: %v", err)
		}
		err = s.z.ConfirmNoEscalation(t.Context(), u, "", Everything)
		if err == nil || strings.Contains(err.Error(), "; resolution errors: ["+lost+"]") != (want != "") {
			t.Errorf("the refusal is %v, want it to say %q", err, want)
		}
	}
}

// TestRulesOfRole: a role that is not there is called by the binding's resource.
func TestRulesOfRole(t *testing.T) {
	s := newStored(t)
	s.put("clusterroles", "c", getPods)
	s.put("clusterroles", "empty", `"rules":null`)
	s.put("roles", "ns/r", getPods)
	for _, row := range []struct {
		kind, name, namespace string
		rules                 int
		err                   string
	}{
		{"ClusterRole", "c", "", 1, ""},
		{"ClusterRole", "c", "ns", 1, ""},
		{"ClusterRole", "empty", "", 0, ""},
		{"Role", "r", "ns", 1, ""},
		{"ClusterRole", "gone", "", 0, `clusterrolebindings.rbac.authorization.k8s.io "gone" not found`},
		{"ClusterRole", "r", "ns", 0, `rolebindings.rbac.authorization.k8s.io "r" not found`},
		{"Role", "c", "ns", 0, `rolebindings.rbac.authorization.k8s.io "c" not found`},
		{"Role", "r", "other", 0, `rolebindings.rbac.authorization.k8s.io "r" not found`},
		{"Robot", "r", "ns", 0, `unsupported role reference kind: "Robot"`},
	} {
		rules, err := s.z.RulesOfRole(rbacv1.RoleRef{Kind: row.kind, Name: row.name}, row.namespace)
		if len(rules) != row.rules || (err != nil) != (row.err != "") || err != nil && err.Error() != row.err {
			t.Errorf("%s %s in %q: %v, %v, want %q", row.kind, row.name, row.namespace, rules, err, row.err)
		}
	}
}

// TestSubjectsThatAreNobody: a subject of an unknown kind, or a service account of no namespace,
// neither grants nor keeps the subjects behind it from what they have; nor from losing it.
func TestSubjectsThatAreNobody(t *testing.T) {
	s := newStored(t)
	s.put("clusterroles", "c", getPods)
	for _, name := range []string{"a", "b"} {
		s.put("clusterrolebindings", name, `"roleRef":{"kind":"ClusterRole","name":"c"},"subjects":[{"kind":"Robot","name":"v"},{"kind":"ServiceAccount","name":"v"},{"kind":"User","name":"u"}]`)
	}
	for _, step := range []struct {
		delete string
		want   bool
	}{{"", true}, {"a", true}, {"b", false}} {
		if step.delete != "" {
			s.write(proto.Op_OP_DELETE, "clusterrolebindings", step.delete, "")
		}
		if s.may("u", "") != step.want || s.may("v", "") {
			t.Errorf("without %q: u may %v, v may %v", step.delete, s.may("u", ""), s.may("v", ""))
		}
	}
}

// TestUnreadableIsLogged: the log names what cannot be read, and nothing else.
func TestUnreadableIsLogged(t *testing.T) {
	s := newStored(t)
	var log bytes.Buffer
	s.z = New(s.mem, slog.New(slog.NewTextHandler(&log, nil)))
	s.put("clusterroles", "c", getPods)
	s.put("clusterrolebindings", "b", bound("ClusterRole", "c", "u"))
	s.put("rolebindings", "ns/broken", `"roleRef":7`)
	if !s.may("u", "") {
		t.Error("not allowed")
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "table=rolebindings.rbac.authorization.k8s.io key=ns/broken") {
		t.Errorf("the log is %q", text)
	}
}

// BenchmarkAuthorize is one decision beside 5,000 bindings, for a user with three
// groups, of which two are bound by everybody's roles.
func BenchmarkAuthorize(b *testing.B) {
	s := newStored(b)
	p := Bootstrap()
	for i := range 5000 {
		s.put("rolebindings", fmt.Sprintf("ns%d/b", i), bound("ClusterRole", "c", fmt.Sprintf("u%d", i)))
	}
	s.put("clusterroles", "c", getPods)
	s.put("clusterrolebindings", "public", `"roleRef":{"kind":"ClusterRole","name":"system:basic-user"},"subjects":[{"kind":"Group","name":"system:authenticated"}]`)
	s.put("clusterrolebindings", "discovery", `"roleRef":{"kind":"ClusterRole","name":"system:discovery"},"subjects":[{"kind":"Group","name":"system:authenticated"}]`)
	for _, name := range []string{"system:basic-user", "system:discovery"} {
		s.put("clusterroles", name, `"rules":[{"verbs":["create"],"apiGroups":["authorization.k8s.io"],"resources":["selfsubjectaccessreviews"]}]`)
	}
	edit := ""
	for _, r := range p.ClusterRoles {
		if r.Name == "system:aggregate-to-edit" {
			for _, rule := range r.Rules {
				edit += fmt.Sprintf(`{"verbs":%s,"apiGroups":%s,"resources":%s},`, list(rule.Verbs), list(rule.APIGroups), list(rule.Resources))
			}
		}
	}
	s.put("clusterroles", "edit", `"rules":[`+strings.TrimSuffix(edit, ",")+`]`)
	s.put("rolebindings", "ns7/edit", bound("ClusterRole", "edit", "editor"))
	groups := []string{"devs", "system:serviceaccounts", "system:authenticated"}
	for _, row := range []struct {
		name string
		a    auth.Attributes
		want bool
	}{
		{"allowed", auth.Attributes{User: &auth.User{Name: "u7", Groups: groups}, Verb: "get", Resource: "pods", Namespace: "ns7", ResourceRequest: true}, true},
		{"refused", auth.Attributes{User: &auth.User{Name: "u7", Groups: groups}, Verb: "get", Resource: "pods", Namespace: "ns8", ResourceRequest: true}, false},
		{"edit", auth.Attributes{User: &auth.User{Name: "editor", Groups: groups}, Verb: "update", APIGroup: "apps", Resource: "statefulsets", Namespace: "ns7", ResourceRequest: true}, true},
	} {
		b.Run(row.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				d, _, _ := s.z.Authorize(context.Background(), row.a)
				if (d == auth.Allow) != row.want {
					b.Fatal(d)
				}
			}
		})
	}
	// What the first request after a change of a binding pays.
	b.Run("after a change", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			b.StopTimer()
			s.put("rolebindings", "ns7/x", bound("ClusterRole", "c", fmt.Sprint("x", i)))
			b.StartTimer()
			if !s.may(fmt.Sprint("x", i), "ns7") {
				b.Fatal("not in force")
			}
		}
	})
}

func list(words []string) string {
	return `["` + strings.Join(words, `","`) + `"]`
}

// TestBindingsOfOneSubject: who may bind in one namespace can bind one user thousands of times, in
// many bindings and within one. Neither a change of those nor a node that reads them all keeps
// everybody else from being authorized.
func TestBindingsOfOneSubject(t *testing.T) {
	s := newStored(t)
	s.put("roles", "ns/r", getPods)
	const bindings, times = 5000, 20_000
	for i := range bindings {
		s.put("rolebindings", fmt.Sprintf("ns/b%04d", i), bound("Role", "r", "u"))
	}
	subject := `{"kind":"User","name":"u"}`
	many := func(label string) string {
		return fmt.Sprintf(`"label":%q,"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"r"},"subjects":[%s%s]`,
			label, subject, strings.Repeat(","+subject, times-1))
	}
	for _, step := range []string{"a node that starts", "the binding that names him often", "it changes", "it changes again"} {
		if step != "a node that starts" {
			s.put("rolebindings", "ns/a", many(step))
		}
		right := false
		took := cputime.Of(func() { right = s.may("u", "ns") && !s.may("v", "ns") })
		if !right {
			t.Fatalf("%s: wrong decisions", step)
		}
		if took > 5*time.Second { // 50 ms
			t.Errorf("%s: authorization took %s", step, took)
		}
	}
	for i := range bindings {
		s.write(proto.Op_OP_DELETE, "rolebindings", fmt.Sprintf("ns/b%04d", i), "")
	}
	if !s.may("u", "ns") {
		t.Error("the last binding grants nothing")
	}
	s.write(proto.Op_OP_DELETE, "rolebindings", "ns/a", "")
	if s.may("u", "ns") || !s.z.Empty() {
		t.Error("a binding that is gone still grants something")
	}
}
