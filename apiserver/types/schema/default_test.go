package schema

import (
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

// TestRuleOrder: rules are compiled in the order of their fields, so that an object comes before the
// fields in it.
func TestRuleOrder(t *testing.T) {
	fields := []string{"a", "a.b", "a.b.c", "b", "c", "d", "e"}
	values, from, want := map[string]any{}, map[string]string{}, strings.Join(fields, " ")
	for _, name := range fields {
		values[name], from[name] = 1.0, "x.y"
	}
	var set, copied []string
	for _, a := range assignments(values, map[string]bool{"b": true}) {
		set = append(set, strings.Join(a.path, "."))
		if a.value != int64(1) || a.zero != (a.path[0] == "b") {
			t.Errorf("%+v", a)
		}
	}
	for _, c := range transfers(from, map[string]bool{"b": true}) {
		copied = append(copied, strings.Join(c.to, "."))
		if !slices.Equal(c.from, []string{"x", "y"}) || c.zero != (c.to[0] == "b") {
			t.Errorf("%+v", c)
		}
	}
	if got := strings.Join(set, " "); got != want {
		t.Errorf("set in the order %s", got)
	}
	if got := strings.Join(copied, " "); got != want {
		t.Errorf("copied in the order %s", got)
	}
}

// TestReaches: a rule reaches into a field if it gives a value to a field in it; not if it gives a
// value to the field itself.
func TestReaches(t *testing.T) {
	to := func(path ...string) []transfer { return []transfer{{to: path, from: []string{"a"}}} }
	for _, c := range []struct {
		rule rule
		want bool
	}{
		{rule{set: []assignment{{path: []string{"a"}}}}, false},
		{rule{set: []assignment{{path: []string{"b", "a"}}}}, false},
		{rule{set: []assignment{{path: []string{"a", "b"}}}}, true},
		{rule{copies: to("a")}, false},
		{rule{copies: to("b", "a")}, false},
		{rule{copies: to("a", "b")}, true},
		{rule{merges: to("a", "b")}, true},
		{rule{images: to("a", "b")}, true},
		{rule{drop: [][]string{{"a", "b"}}}, false},
	} {
		d := &defaulting{rules: []rule{{}, c.rule}}
		if got := d.reaches("a"); got != c.want {
			t.Errorf("%+v: %v", c.rule, got)
		}
	}
	if (*defaulting)(nil).reaches("a") {
		t.Error("no rules reach")
	}
}

// TestPointer: whether a field is a pointer upstream is found through the items of lists.
func TestPointer(t *testing.T) {
	m, err := Lookup("io.k8s.api.apps.v1.Deployment")
	must.OK(t, err)
	for path, want := range map[string]bool{
		"spec":                                      false,
		"spec.replicas":                             true,
		"spec.minReadySeconds":                      false,
		"spec.template.spec.hostUsers":              true,
		"spec.template.spec.hostNetwork":            false,
		"spec.template.spec.containers.stdin":       false,
		"spec.template.spec.containers.ports.name":  false,
		"spec.template.spec.volumes.hostPath":       true,
		"spec.template.spec.volumes.hostPath.type":  true,
		"spec.template.spec.volumes.hostPath.path":  false,
		"spec.template.spec.nothing":                false,
		"spec.template.nothing.containers.restarts": false,
	} {
		if got := m.root.pointer(strings.Split(path, ".")); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
	if m.root.pointer(nil) {
		t.Error("no path is one to a pointer")
	}
}

// TestPlainTagBounds: which names of images are plain, and the tags of those.
func TestPlainTagBounds(t *testing.T) {
	x := strings.Repeat("x", 63)
	for _, c := range []struct {
		image, tag string
		plain      bool
	}{
		{"a", "", true},
		{"az09", "", true},
		{"z", "", true},
		{"0", "", true},
		{"9", "", true},
		{"a/b.c-d", "", true},
		{"a:azAZ09_.-", "azAZ09_.-", true},
		{"a:z", "z", true},
		{"a:A", "A", true},
		{"a:_", "_", true},
		{x, "", true},
		{x + "x", "", false},
		{"a:" + x, x, true},
		{"a:" + x + "x", "", false},
		{"", "", false},
		{":a", "", false},
		{"a:", "", false},
		{"a:.", "", false},
		{"a:-", "", false},
		{"a:b/c", "", false},
		{"a:b:c", "", false},
		{"a:b@", "", false},
		{"a:b[", "", false},
		{"a:b`", "", false},
		{"a:b{", "", false},
		{"-a", "", false},
		{".a", "", false},
		{"/a", "", false},
		{"a..b", "", false},
		{"a--b", "", false},
		{"a//b", "", false},
		{"a-", "", false},
		{"a/", "", false},
		{"a_b", "", false},
		{"A", "", false},
		{"a`", "", false},
		{"a{", "", false},
	} {
		tag, plain := plainTag(c.image)
		if plain != c.plain || plain && tag != c.tag {
			t.Errorf("%q: %q, %v", c.image, tag, plain)
		}
		if got, want := pullPolicy(c.image), pullPolicyOfReference(c.image); got != want {
			t.Errorf("%q: %s, by the library %s", c.image, got, want)
		}
	}
}

// TestPullPolicyOfReference: an image is pulled always if it has the tag "latest", or neither tag nor digest.
func TestPullPolicyOfReference(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0", 64)
	for image, want := range map[string]string{
		"a_b": "Always", "a_b:latest": "Always", "a_b:1": "IfNotPresent", "a_b" + digest: "IfNotPresent",
		"a_b:latest" + digest: "Always", "a_b:1" + digest: "IfNotPresent", "A B": "IfNotPresent",
	} {
		if got := pullPolicy(image); got != want {
			t.Errorf("%s: %s", image, got)
		}
	}
}

// TestAbsent: what a default takes the place of.
func TestAbsent(t *testing.T) {
	for _, c := range []struct {
		v             any
		zero, pointer bool
		want          bool
	}{
		{nil, false, false, true}, {nil, false, true, true},
		{"", false, false, true}, {"", false, true, false}, {"", true, true, false},
		{"x", true, false, false},
		{int64(0), false, false, false}, {int64(0), true, false, true}, {int64(0), true, true, true},
		{int64(1), true, false, false}, {false, true, false, false},
	} {
		if got := absent(c.v, c.zero, c.pointer); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
