package tolerations

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// list reads tolerations as KEY/OPERATOR/VALUE/EFFECT/SECONDS, of which those at the end may be missing.
func list(t *testing.T, text string) (out []corev1.Toleration) {
	t.Helper()
	for _, one := range strings.Fields(text) {
		p := append(strings.Split(one, "/"), "", "", "", "")
		x := corev1.Toleration{Key: p[0], Operator: corev1.TolerationOperator(p[1]), Value: p[2], Effect: corev1.TaintEffect(p[3])}
		if p[4] != "" {
			n, err := strconv.ParseInt(p[4], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			x.TolerationSeconds = &n
		}
		out = append(out, x)
	}
	return out
}

func text(list []corev1.Toleration) string {
	var out []string
	for _, x := range list {
		s := fmt.Sprintf("%s/%s/%s/%s", x.Key, x.Operator, x.Value, x.Effect)
		if x.TolerationSeconds != nil {
			s += fmt.Sprintf("/%d", *x.TolerationSeconds)
		}
		out = append(out, strings.TrimRight(s, "/"))
	}
	return strings.Join(out, " ")
}

func TestMerge(t *testing.T) {
	for _, c := range []struct{ first, second, want string }{
		{"", "", ""},
		{"a/Exists", "b/Exists", "a/Exists b/Exists"},
		{"a/Exists", "a/Exists", "a/Exists"},
		{"a/Exists", "a/Equal/v", "a/Exists"},
		{"a/Equal/v", "a/Exists", "a/Exists"},
		{"a/Equal/v", "a/Equal/w", "a/Equal/v a/Equal/w"},
		{"a/Exists//NoSchedule", "a/Exists", "a/Exists"},
		{"a/Exists//NoSchedule", "a/Exists//NoExecute", "a/Exists//NoSchedule a/Exists//NoExecute"},
		{"a/Exists b/Equal/v/NoExecute", "/Exists", "/Exists"},
		{"a/Exists//NoExecute/10", "a/Exists//NoExecute/20", "a/Exists//NoExecute/20"},
		{"a/Exists//NoExecute", "a/Exists//NoExecute/20", "a/Exists//NoExecute"},
		{"a/Gt/3", "a/Gt/4", "a/Gt/3 a/Gt/4"},
	} {
		if got := text(Merge(list(t, c.first), list(t, c.second))); got != c.want {
			t.Errorf("%q and %q: %q, want %q", c.first, c.second, got, c.want)
		}
	}
}

func TestAllowed(t *testing.T) {
	for _, c := range []struct {
		list, allowed string
		want          bool
	}{
		{"a/Exists", "", true},
		{"", "a/Exists", true},
		{"a/Equal/v", "a/Exists", true},
		{"a/Exists", "a/Equal/v", false},
		{"a/Equal/v b/Exists", "a/Exists", false},
		{"a/Exists//NoExecute/60", "a/Exists//NoExecute/60", true},
		{"a/Exists//NoExecute/61", "a/Exists//NoExecute/60", false},
		{"a/Exists//NoExecute", "a/Exists//NoExecute/60", false},
		{"a/Equal/v", "a//v", true},
	} {
		if got := Allowed(list(t, c.list), list(t, c.allowed)); got != c.want {
			t.Errorf("%q among %q: %t", c.list, c.allowed, got)
		}
	}
}

// TestTree: a toleration is the same after a tree.
func TestTree(t *testing.T) {
	for _, x := range list(t, "a/Exists a/Equal/v/NoExecute/0 /Exists//NoSchedule") {
		if got := Of([]any{Tree(&x)}); text(got) != text([]corev1.Toleration{x}) {
			t.Errorf("%s became %s", text([]corev1.Toleration{x}), text(got))
		}
	}
}
