package builtin_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/builtin"
	"github.com/quorate/quorate/apiserver/tree"
)

// TestWarningsAreBounded: a Pod of some hundred kilobytes whose faults come in pairs is neither
// told all of them nor costs what they are.
func TestWarningsAreBounded(t *testing.T) {
	list := func(n int, element func(i int) tree.Object) []any {
		all := make([]any, n)
		for i := range all {
			all[i] = element(i)
		}
		return all
	}
	long := strings.Repeat("a", 600)
	items := func(n int, path string) []any {
		return list(n, func(i int) tree.Object { return tree.Object{"key": "k", "path": fmt.Sprintf(path, i)} })
	}
	volume := func(items []any) tree.Object {
		return tree.Object{"name": "v", "configMap": tree.Object{"name": "c", "items": items}}
	}
	container := func(field string, all []any) tree.Object {
		return tree.Object{"containers": []any{tree.Object{"name": "a", field: all}}}
	}
	for _, c := range []struct {
		name string
		spec tree.Object
	}{
		{"ports of one number", container("ports", list(20000, func(int) tree.Object { return tree.Object{"containerPort": int64(80), "protocol": "TCP"} }))},
		{"ports of one name", container("ports", list(20000, func(i int) tree.Object {
			return tree.Object{"name": "p", "containerPort": int64(i), "protocol": "TCP"}
		}))},
		{"long paths", tree.Object{"volumes": []any{volume(items(2000, long+"%d"))}}},
		{"paths in each other", tree.Object{"volumes": []any{volume(items(2000, "a/%d/../a"))}}},
		{"one path", tree.Object{"volumes": []any{volume(items(2000, "a%.0d"))}}},
		{"many volumes", tree.Object{"volumes": list(20, func(int) tree.Object { return volume(items(1000, "a%.0d")) })}},
		{"variables", container("env", list(20000, func(int) tree.Object { return tree.Object{"name": "A", "value": "b"} }))},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := tree.Object{"metadata": tree.Object{"name": "a"}, "spec": c.spec}
			warn := builtin.Strategies(builtin.Config{})["pods"].Warnings
			if n := len(warn(pod, nil)); n > 300 {
				t.Errorf("%d warnings", n)
			}
			// What is told is some allocations each; what is compared, none.
			if n := testing.AllocsPerRun(1, func() { warn(pod, nil) }); n > 100_000 {
				t.Errorf("%.0f allocations", n)
			}
		})
	}
}
