package admission_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/internal/must"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
)

// told keeps what a decision said.
type told struct{ lines []string }

func (t *told) Warn(texts []string) { t.lines = append(t.lines, texts...) }
func (t *told) Annotate(key, value string, level auditinternal.Level) {
	t.lines = append(t.lines, key+"="+value+" "+string(level))
}

func TestSetObject(t *testing.T) {
	for _, c := range []struct {
		name            string
		object, replace map[string]any
		self            bool
	}{
		{"by another one", map[string]any{"a": "b", "metadata": map[string]any{"name": "x"}}, map[string]any{"c": "d", "metadata": map[string]any{"name": "y"}}, false},
		{"by one without metadata", map[string]any{"a": "b"}, map[string]any{"c": "d"}, false},
		{"an empty one", map[string]any{}, map[string]any{"c": "d"}, false},
		{"by itself", map[string]any{"a": "b", "metadata": map[string]any{"name": "x"}}, nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &admission.Attributes{Object: c.object}
			if c.self {
				c.replace = c.object
			}
			want := runtime.DeepCopyJSON(c.replace)
			replaced := c.replace["metadata"]
			a.SetObject(c.replace)
			if !reflect.DeepEqual(a.Object, want) || !reflect.DeepEqual(c.object, want) {
				t.Errorf("the object is %v, and the caller's %v, want %v", a.Object, c.object, want)
			}
			if meta := a.Meta(); meta != nil {
				meta["name"] = "own"
				if replaced.(map[string]any)["name"] == "own" {
					t.Error("the metadata is shared")
				}
			}
		})
	}
}

// TestManyAnnotations: what a server answers is bounded in the checks that it costs and in what is logged of it.
func TestManyAnnotations(t *testing.T) {
	notes := func(n int, key string) map[string]string {
		all := map[string]string{}
		for i := range n {
			all[fmt.Sprintf(key, i)] = "v"
		}
		return all
	}
	long := strings.Repeat("x", 1<<20)
	for _, c := range []struct {
		name  string
		notes map[string]string
		added int
		want  string
	}{
		{"as many as are taken", notes(256, "k%d"), 256, ""},
		{"one more", notes(257, "k%d"), 0, "the answer has 257 audit annotations, at most 256 are taken: all were left out"},
		{"a mistake among others", map[string]string{"a": "1", "b c": "2", "d": "3"}, 2, `annotation key "example.com/b c" has invalid format`},
		{"mistakes alone", notes(200, "bad key %d"), 0, "and 190 more"},
		{"long ones", map[string]string{"bad key" + long: long}, 0, "has invalid format"},
		{"a long one of another value", map[string]string{"had": long}, 0, "may not be changed"},
	} {
		var to told
		a := &admission.Attributes{Told: &to}
		must.OK(t, a.AddAnnotation("example.com/had", long+long))
		err := admission.AddAnnotations(a, "example.com/", c.notes)
		switch {
		case len(to.lines) != c.added+1:
			t.Errorf("%s: %d were added, want %d", c.name, len(to.lines)-1, c.added)
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 10_000):
			t.Errorf("%s: %.10100v", c.name, err)
		}
	}
}

func TestAnnotations(t *testing.T) {
	var to told
	a := &admission.Attributes{Told: &to}
	for _, c := range []struct{ key, value, want string }{
		{"example.com/a", "1", ""},
		{"example.com/a", "1", ""}, // the same again
		{"example.com/a", "2", `the admission annotation "example.com/a" may not be changed from "1" to "2"`},
		{"example.com/b", "1", ""},
		{"a", "1", `annotation key "a" has invalid format, the right format is a DNS subdomain prefix and '/' and key name`},
		{"a/b/c", "1", `annotation key "a/b/c" has invalid format, the right format`},
		{"Example.com/a", "1", `annotation key "Example.com/a" has invalid format: prefix part`},
	} {
		err := a.AddAnnotation(c.key, c.value)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("%s=%s: %v", c.key, c.value, err)
		}
	}
	if err := a.AddAnnotationWithLevel("example.com/c", "1", auditinternal.LevelRequest); err != nil {
		t.Error(err)
	}
	a.Warn("beware")
	if want := []string{"example.com/a=1 Metadata", "example.com/b=1 Metadata", "example.com/c=1 Request", "beware"}; !slices.Equal(to.lines, want) {
		t.Errorf("told %q", to.lines)
	}
	silent := &admission.Attributes{}
	silent.Warn("beware")
	if err := silent.AddAnnotation("example.com/a", "1"); err != nil {
		t.Error(err)
	}
}

func TestOptions(t *testing.T) {
	kind := func(name string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: name}
	}
	seconds := int64(5)
	deletion := &metav1.DeleteOptions{GracePeriodSeconds: &seconds}
	for _, c := range []struct {
		name string
		a    *admission.Attributes
		want runtime.Object
	}{
		{"create", &admission.Attributes{Operation: admission.Create, FieldManager: "m", FieldValidation: "Strict"},
			&metav1.CreateOptions{TypeMeta: kind("CreateOptions"), FieldManager: "m", FieldValidation: "Strict"}},
		{"update, dry", &admission.Attributes{Operation: admission.Update, DryRun: true, FieldManager: "m", FieldValidation: "Warn"},
			&metav1.UpdateOptions{TypeMeta: kind("UpdateOptions"), DryRun: []string{"All"}, FieldManager: "m", FieldValidation: "Warn"}},
		{"delete", &admission.Attributes{Operation: admission.Delete, DeleteOptions: deletion},
			&metav1.DeleteOptions{TypeMeta: kind("DeleteOptions"), GracePeriodSeconds: &seconds}},
		{"delete, dry, without options", &admission.Attributes{Operation: admission.Delete, DryRun: true},
			&metav1.DeleteOptions{TypeMeta: kind("DeleteOptions"), DryRun: []string{"All"}}},
		{"connect", &admission.Attributes{Operation: admission.Connect}, nil},
	} {
		if got := c.a.GetOperationOptions(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %#v", c.name, got)
		}
	}
	if deletion.Kind != "" {
		t.Error("the options of the caller were changed")
	}
}

// TestUpstream: what upstream's plugins see is what there is, and nil where there is nothing.
func TestUpstream(t *testing.T) {
	a := &admission.Attributes{}
	if a.GetObject() != nil || a.GetOldObject() != nil || a.GetUserInfo() != nil {
		t.Error("there is something of nothing")
	}
	a = &admission.Attributes{
		Operation: admission.Update, Subresource: "status", Namespace: "n", Name: "x", DryRun: true,
		User:   &auth.User{Name: "alice", UID: "u", Groups: []string{"g"}, Extra: map[string][]string{"k": {"v"}}},
		Object: map[string]any{"a": "b"}, Old: map[string]any{"a": "c"},
	}
	a.Resource.Resource, a.Kind.Kind = "things", "Thing"
	if a.GetOperation() != admission.Update || a.GetSubresource() != "status" || a.GetNamespace() != "n" || a.GetName() != "x" || !a.IsDryRun() ||
		a.GetResource() != a.Resource || a.GetKind() != a.Kind {
		t.Error("the words of the write are others")
	}
	u := a.GetUserInfo()
	if u.GetName() != "alice" || u.GetUID() != "u" || !slices.Equal(u.GetGroups(), []string{"g"}) || len(u.GetExtra()["k"]) != 1 {
		t.Errorf("user %v", u)
	}
	now, old := a.GetObject().(*unstructured.Unstructured), a.GetOldObject().(*unstructured.Unstructured)
	now.Object["a"] = "d"
	if a.Object["a"] != "d" || old.Object["a"] != "c" {
		t.Errorf("%v %v", a.Object, old.Object)
	}
}

// TestReset: nothing of a decision is left for the next one.
func TestReset(t *testing.T) {
	a := &admission.Attributes{Operation: admission.Create, Namespace: "n", Name: "x", DryRun: true, User: &auth.User{}, FieldManager: "m",
		FieldValidation: "Strict", DeleteOptions: &metav1.DeleteOptions{}, Subresource: "s", Object: map[string]any{}, Old: map[string]any{}, Told: &told{}}
	a.Kind.Kind, a.Resource.Resource = "Thing", "things"
	must.OK(t, a.AddAnnotation("example.com/a", "1"))
	a.GetObject()
	a.GetOldObject()
	a.Consulted(1)
	a.ConsultedRange(admission.Range{Table: "t"})
	context := a.GetReinvocationContext()
	context.SetIsReinvoke()
	context.SetShouldReinvoke()
	context.SetValue("p", 1)
	a.Reset()
	if rules, ranges := a.Decided(); rules != 0 || len(ranges) != 0 {
		t.Errorf("consulted %v %v", rules, ranges)
	}
	if c := a.GetReinvocationContext(); c.IsReinvoke() || c.ShouldReinvoke() || c.Value("p") != nil {
		t.Error("the reinvocation is left")
	}
	if err := a.AddAnnotation("example.com/a", "2"); err != nil {
		t.Errorf("the annotations are left: %v", err)
	}
	if a.Operation != "" || a.Namespace != "" || a.Name != "" || a.DryRun || a.User != nil || a.FieldManager != "" || a.FieldValidation != "" ||
		a.DeleteOptions != nil || a.Subresource != "" || a.Object != nil || a.Old != nil || a.Told != nil || a.Kind.Kind != "" || a.Resource.Resource != "" {
		t.Errorf("left: %+v", a)
	}
}

func TestConsulted(t *testing.T) {
	a := &admission.Attributes{}
	a.Consulted(1)
	a.Consulted(4)
	a.Consulted(1)
	a.ConsultedRange(admission.Range{Table: "t", Prefix: "a/"})
	a.ConsultedRange(admission.Range{Table: "t", Prefix: "b/"})
	a.ConsultedRange(admission.Range{Table: "t", Prefix: "a/"})
	rules, ranges := a.Decided()
	if rules != 5 || !slices.Equal(ranges, []admission.Range{{Table: "t", Prefix: "a/"}, {Table: "t", Prefix: "b/"}}) {
		t.Errorf("%b %v", rules, ranges)
	}
}

func TestIs(t *testing.T) {
	a := &admission.Attributes{}
	a.Resource.Group, a.Resource.Resource = "apps", "deployments"
	if !a.Is("apps", "deployments") || a.Is("", "deployments") || a.Is("apps", "replicasets") {
		t.Error("the resource is another one")
	}
	a.Subresource = "scale"
	if a.Is("apps", "deployments") {
		t.Error("a subresource is the resource")
	}
}

// TestForbidden: an object is called by its name, by that in it, or by what its name is made of.
func TestForbidden(t *testing.T) {
	meta := func(name, value string) map[string]any {
		return map[string]any{"metadata": map[string]any{name: value}}
	}
	for _, c := range []struct {
		name   string
		object map[string]any
		want   string
	}{
		{"x", nil, `things.example.com "x" is forbidden: refused`},
		{"", meta("name", "y"), `things.example.com "y" is forbidden: refused`},
		{"", meta("generateName", "z-"), `things.example.com "z-" is forbidden: refused`},
		{"", nil, `things.example.com "Unknown" is forbidden: refused`},
	} {
		a := &admission.Attributes{Name: c.name, Object: c.object}
		a.Resource.Group, a.Resource.Resource = "example.com", "things"
		err := a.Forbidden(errRefused)
		if !apierrors.IsForbidden(err) || err.Error() != c.want {
			t.Errorf("%v, want %s", err, c.want)
		}
		if again := a.Forbidden(err); again != err {
			t.Errorf("twice: %v", again)
		}
	}
}

// TestConsultedRanges: an entry has room for what was looked at, however much it was.
func TestConsultedRanges(t *testing.T) {
	const roles, bindings = "roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io"
	a := &admission.Attributes{Namespace: "own"}
	check := func(want ...admission.Range) {
		t.Helper()
		rules, ranges := a.Decided()
		if rules != 0xf || !slices.Equal(ranges, want) {
			t.Errorf("consulted %b %v, want %v", rules, ranges, want)
		}
	}
	a.ConsultedRoles("")
	a.ConsultedRoles("own")
	check()
	a.ConsultedRoles("other")
	a.ConsultedRoles("other")
	a.ConsultedRange(admission.Range{Table: roles, Prefix: "other/role"})
	a.ConsultedRange(admission.Range{Table: "t", Prefix: "x"})
	check(admission.Range{Table: roles, Prefix: "other/"}, admission.Range{Table: bindings, Prefix: "other/"}, admission.Range{Table: "t", Prefix: "x"})
	for i := range 1000 {
		a.ConsultedRange(admission.Range{Table: "t", Prefix: fmt.Sprint("n", i, "/")})
	}
	if _, ranges := a.Decided(); len(ranges) != 3 {
		t.Errorf("%d parts of tables", len(ranges))
	}
	a.ConsultedAllRoles()
	_, ranges := a.Decided()
	for _, table := range []string{roles, bindings, "t"} {
		if !slices.Contains(ranges, admission.Range{Table: table}) {
			t.Errorf("not all of %s: %v", table, ranges)
		}
	}
}
