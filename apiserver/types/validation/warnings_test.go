package validation

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/internal/must"
	"k8s.io/apimachinery/pkg/util/json"
)

// warnings are what is told of an object as if it were valid.
func (r rules[V, I]) warnings(obj, old tree.Object) ([]string, error) {
	if old == nil {
		in, err := r.decode(obj)
		if err != nil {
			return nil, err
		}
		return r.warn(in, nil), nil
	}
	in, was, err := r.decodeBoth(obj, old)
	if err != nil {
		return nil, err
	}
	return r.warn(in, was), nil
}

func warningsOf(t *testing.T, resource string, obj, old tree.Object) []string {
	t.Helper()
	rules, ok := all[resource].(interface {
		warnings(obj, old tree.Object) ([]string, error)
	})
	if !ok {
		t.Fatalf("there is no kind %s", resource)
	}
	out, err := rules.warnings(obj, old)
	must.OK(t, err)
	return out
}

// TestWarnings runs testdata/warnings.txt. A case is
//
//	== title
//	resource code-name, as pods or jobs.batch
//	old {...}       the stored object; without it, a create
//	new {...}       the object that is written
//	~ text          one warning, whole
func TestWarnings(t *testing.T) {
	raw, err := os.ReadFile("testdata/warnings.txt")
	must.OK(t, err)
	for _, block := range strings.Split("\n"+string(raw), "\n== ")[1:] {
		title, body, _ := strings.Cut(block, "\n")
		t.Run(title, func(t *testing.T) {
			var old, obj tree.Object
			var resource string
			var want []string
			for line := range strings.SplitSeq(body, "\n") {
				switch word, rest, _ := strings.Cut(line, " "); word {
				case "resource":
					resource = rest
				case "old":
					old = objectOf(t, rest)
				case "new":
					obj = objectOf(t, rest)
				case "~":
					want = append(want, rest)
				case "":
				default:
					t.Fatalf("what is %q?", line)
				}
			}
			if got := warningsOf(t, resource, obj, old); !slices.Equal(got, want) {
				t.Errorf("warned of  %s\nwant %s", strings.Join(got, "\n     "), strings.Join(want, "\n     "))
			}
		})
	}
}

func objectOf(t *testing.T, text string) (out tree.Object) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return out
}

// TestWarningsOfValid: nothing is told of an object that is refused, and nothing if nobody is told.
func TestWarningsOfValid(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(obj tree.Object)
		told   int
	}{
		{"valid", func(tree.Object) {}, 1},
		{"wrong", func(obj tree.Object) { tree.As(obj["spec"])["restartPolicy"] = "Sometimes" }, 0},
		{"wrong metadata", func(obj tree.Object) { tree.As(obj["metadata"])["labels"] = tree.Object{"-": "a"} }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			obj := samples(t)["pods"].obj
			tree.As(obj["spec"])["imagePullSecrets"] = []any{tree.Object{"name": "s"}, tree.Object{"name": "s"}}
			c.change(obj)
			var warnings []string
			errs := Of("pods").Create(obj, true, &warnings)
			if (len(errs) == 0) != (c.told > 0) || len(warnings) != c.told {
				t.Errorf("told %q, errors %v", warnings, errs)
			}
			if again := Of("pods").Create(obj, true, nil); words(again) != words(errs) {
				t.Errorf("without warnings: %v, with them: %v", again, errs)
			}
		})
	}
}

// TestWarningsAreBounded: upstream is not asked to compare each with each of what a body of some hundred
// kilobytes can have. What there are few of is told.
func TestWarningsAreBounded(t *testing.T) {
	list := func(n int, element func(i int) tree.Object) []any {
		all := make([]any, n)
		for i := range all {
			all[i] = element(i)
		}
		return all
	}
	long := strings.Repeat("a", 600)
	items := func(n int, path string) []any { // # in it is a number
		return list(n, func(i int) tree.Object {
			return tree.Object{"key": "k", "path": strings.Replace(path, "#", strconv.Itoa(i), 1)}
		})
	}
	volume := func(items []any) tree.Object {
		return tree.Object{"name": "v", "configMap": tree.Object{"name": "c", "items": items}}
	}
	container := func(field string, all []any) tree.Object {
		return tree.Object{"containers": []any{tree.Object{"name": "a", field: all}}}
	}
	onePort := func(int) tree.Object { return tree.Object{"containerPort": int64(80), "protocol": "TCP"} }
	projected := func(n int) tree.Object {
		return tree.Object{"name": "v", "projected": tree.Object{"sources": list(n, func(int) tree.Object {
			return tree.Object{"serviceAccountToken": tree.Object{"path": "a"}}
		})}}
	}
	for _, c := range []struct {
		name     string
		spec     tree.Object
		warnings int
	}{
		{"ports of one number", container("ports", list(20000, onePort)), 0},
		{"a few of one number", container("ports", list(100, onePort)), 100 * 99 / 2},
		{"many ports", container("ports", list(20000, func(i int) tree.Object {
			return tree.Object{"containerPort": int64(i), "protocol": "TCP"}
		})), 0},
		{"ports of one name", container("ports", list(20000, func(i int) tree.Object {
			return tree.Object{"name": "p", "containerPort": int64(i), "protocol": "TCP"}
		})), 19999},
		{"long paths", tree.Object{"volumes": []any{volume(items(2000, long+"#"))}}, 0},
		{"a few long paths", tree.Object{"volumes": []any{volume(items(200, strings.Repeat(long, 20)+"#"))}}, 0},
		{"paths in each other", tree.Object{"volumes": []any{volume(items(2000, "a/#/../a"))}}, 0},
		{"one path", tree.Object{"volumes": []any{volume(items(2000, "a"))}}, 0},
		{"a few of one path", tree.Object{"volumes": []any{volume(items(100, "a"))}}, 100 * 99 / 2},
		{"many volumes", tree.Object{"volumes": list(200, func(int) tree.Object { return volume(items(100, "a")) })}, 0},
		{"sources of one path", tree.Object{"volumes": []any{projected(2000)}}, 0},
		{"variables", container("env", list(20000, func(int) tree.Object { return tree.Object{"name": "A", "value": "b"} })), 19999},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := tree.Object{"metadata": tree.Object{"name": "a"}, "spec": c.spec}
			if n := len(warningsOf(t, "pods", pod, nil)); n != c.warnings {
				t.Errorf("%d warnings, want %d", n, c.warnings)
			}
			for resource, obj := range map[string]tree.Object{
				"pods":             pod,
				"deployments.apps": {"metadata": pod["metadata"], "spec": tree.Object{"template": pod}},
				"cronjobs.batch":   {"metadata": pod["metadata"], "spec": tree.Object{"jobTemplate": tree.Object{"spec": tree.Object{"template": pod}}}},
			} {
				// Some for each element, with the decoding: none for a pair.
				if n := testing.AllocsPerRun(1, func() { warningsOf(t, resource, obj, nil) }); n > 2_000_000 {
					t.Errorf("%s: %.0f allocations", resource, n)
				}
			}
		})
	}
}
