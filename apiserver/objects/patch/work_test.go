package patch

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/types/schema"
	"github.com/quorate/quorate/internal/cputime"
	"github.com/quorate/quorate/internal/must"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// A patch within all other bounds that would insert thousands of times at the
// front of a huge array is refused before it has cost anything.
func TestPatchThatIsTooMuchWork(t *testing.T) {
	var b strings.Builder
	b.WriteString(`[{"op":"add","path":"/x","value":[0` + strings.Repeat(",0", 299_999) + `]}`)
	b.WriteString(strings.Repeat(`,{"op":"add","path":"/x/0","value":0}`, 9_000) + "]")
	p, err := Parse("application/json-patch+json", []byte(b.String()), true)
	must.OK(t, err)
	took := cputime.Of(func() { _, err = p.Apply(map[string]any{"metadata": map[string]any{"name": "a"}}, nil) })
	status, ok := err.(apierrors.APIStatus)
	if !ok || status.Status().Code != http.StatusRequestEntityTooLarge {
		t.Errorf("got %v, want 413", err)
	}
	if took > time.Second {
		t.Errorf("the refusal took %s", took)
	}
}

// TestStrategicMergeThatIsTooMuchWork: the library takes a time that grows with the square of lists
// that it merges.
func TestStrategicMergeThatIsTooMuchWork(t *testing.T) {
	m, err := schema.Lookup("io.k8s.api.core.v1.Pod")
	must.OK(t, err)
	const n = 20_000
	finalizers, env, reversed := make([]any, n), make([]any, n), make([]any, n)
	for i := range n {
		finalizers[i] = fmt.Sprintf("example.com/f%05d", i)
		env[i] = map[string]any{"name": fmt.Sprintf("E%05d", i), "value": "x"}
		reversed[n-1-i] = map[string]any{"name": fmt.Sprintf("E%05d", i)}
	}
	object := func(n int) map[string]any {
		return map[string]any{"metadata": map[string]any{"finalizers": finalizers[:n]},
			"spec": map[string]any{"containers": []any{map[string]any{"name": "a", "env": env[:n]}}}}
	}
	// The library merges into the first of two with the same key. There are enough to have an index.
	twice := object(n)
	containers := twice["spec"].(map[string]any)["containers"].([]any)
	for range 300 {
		containers = append(containers, map[string]any{"name": "a"})
	}
	twice["spec"].(map[string]any)["containers"] = containers
	text := func(v any) string {
		b, err := json.Marshal(v)
		must.OK(t, err)
		return string(b)
	}
	one := `{"metadata":{"finalizers":["example.com/one"]},"spec":{"containers":[{"name":"a","env":[{"name":"ONE","value":"y"}]}]}}`
	for name, c := range map[string]struct {
		current map[string]any
		patch   string
		code    int32 // zero: it is applied
	}{
		"one more finalizer":         {object(n), `{"metadata":{"finalizers":["example.com/one"]}}`, http.StatusRequestEntityTooLarge},
		"one more of a container's":  {object(n), `{"spec":{"containers":[{"name":"a","env":[{"name":"ONE","value":"y"}]}]}}`, http.StatusRequestEntityTooLarge},
		"another order":              {object(2000), `{"spec":{"containers":[{"name":"a","env":` + text(reversed[n-2000:]) + `}]}}`, http.StatusRequestEntityTooLarge},
		"an order of what comes":     {object(0), `{"metadata":{"$setElementOrder/finalizers":` + text(finalizers) + `,"finalizers":` + text(finalizers) + `}}`, http.StatusRequestEntityTooLarge},
		"a list that is replaced":    {object(n), `{"spec":{"containers":[{"name":"a","args":` + text(finalizers) + `}]}}`, 0},
		"of one that is there twice": {twice, `{"spec":{"containers":[{"name":"a","env":[{"name":"ONE","value":"y"}]}]}}`, http.StatusRequestEntityTooLarge},
		"another field":              {object(n), `{"metadata":{"labels":{"a":"b"}}}`, 0},
		"what is deleted":            {object(n), `{"metadata":{"$deleteFromPrimitiveList/finalizers":["example.com/f00007"]}}`, 0},
		"a long list":                {object(1000), one, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Parse(string(types.StrategicMergePatchType), []byte(c.patch), false)
			must.OK(t, err)
			_, err = p.Apply(c.current, m.PatchMeta())
			status, ok := err.(apierrors.APIStatus)
			switch {
			case c.code == 0 && err != nil:
				t.Error(err)
			case c.code != 0 && (!ok || status.Status().Code != c.code):
				t.Errorf("got %v, want %d", err, c.code)
			}
		})
	}
}

// podMeta says which lists of a Pod are merged.
func podMeta(t *testing.T) strategicpatch.LookupPatchMeta {
	t.Helper()
	m, err := schema.Lookup("io.k8s.api.core.v1.Pod")
	must.OK(t, err)
	return m.PatchMeta()
}

// some is a list of n elements that have no key.
func some(n int) []any { return make([]any, n) }

type tree = map[string]any

// TestMergeWorkBound: the longest lists that are merged, of each form, and one more. Other figures
// are fine if the times of the library ask for them.
func TestMergeWorkBound(t *testing.T) {
	meta := podMeta(t)
	finalizers := func(current, patch []any) (tree, tree) {
		return tree{"metadata": tree{"finalizers": current}}, tree{"metadata": tree{"finalizers": patch}}
	}
	container := func(name string, env int) tree { return tree{"name": name, "env": some(env)} }
	for name, row := range map[string]struct {
		most int
		of   func(n int) (current, patch tree)
	}{
		"one more":         {5792, func(n int) (tree, tree) { return finalizers(some(n), some(1)) }},
		"a new list":       {1023, func(n int) (tree, tree) { return finalizers(nil, some(n)) }},
		"as many as there": {1016, func(n int) (tree, tree) { return finalizers(some(n), some(n)) }},
		"a third":          {888, func(n int) (tree, tree) { return finalizers(some(3*n), some(n)) }},
		"an order": {3978, func(n int) (tree, tree) {
			current, _ := finalizers(some(n), nil)
			return current, tree{"metadata": tree{"$setElementOrder/finalizers": some(700)}}
		}},
		"an order of what is there and what comes": {2973, func(n int) (tree, tree) {
			current, patch := finalizers(some(n), some(400))
			patch["metadata"].(tree)["$setElementOrder/finalizers"] = some(500)
			return current, patch
		}},
		"two containers": {4095, func(n int) (tree, tree) {
			one := []any{tree{"name": "x"}}
			return tree{"spec": tree{"containers": []any{container("a", n), container("b", n)}}},
				tree{"spec": tree{"containers": []any{tree{"name": "a", "env": one}, tree{"name": "b", "env": one}}}}
		}},
	} {
		for _, n := range []int{row.most, row.most + 1} {
			current, patch := row.of(n)
			if err := checkMergeWork(current, patch, meta); (err != nil) != (n > row.most) {
				t.Errorf("%s, %d: %v", name, n, err)
			}
		}
	}
	for name, patch := range map[string]tree{
		"no elements":              {"metadata": tree{"finalizers": []any{}}},
		"unknown fields":           {"metadata": tree{"none": some(1), "$setElementOrder/none": some(1), "nothing": tree{"finalizers": some(1)}}},
		"a list that is replaced":  {"spec": tree{"containers": []any{}, "nothing": some(1)}},
		"elements that are no key": {"spec": tree{"containers": []any{}}, "metadata": tree{"$deleteFromPrimitiveList/finalizers": some(5)}},
	} {
		current, _ := finalizers(some(100), nil)
		if work := mergeWork(current, patch, meta); work != 0 {
			t.Errorf("%s: %d elements", name, work)
		}
	}
}

// TestMergeWorkOfAllLists: every list counts, in whichever order the patch is read: what is just
// within the bound is merged, and not one element beside it.
func TestMergeWorkOfAllLists(t *testing.T) {
	meta := podMeta(t)
	current := tree{"spec": tree{"volumes": some(5791), "initContainers": some(19), "imagePullSecrets": some(111)}}
	patch := tree{"spec": tree{"volumes": some(1), "initContainers": some(1), "imagePullSecrets": some(2)}}
	if work := mergeWork(current, patch, meta); work != maxMergeWork {
		t.Fatalf("%d elements, want %d", work, maxMergeWork)
	}
	if err := checkMergeWork(current, patch, meta); err != nil {
		t.Error(err)
	}
	patch["metadata"] = tree{"finalizers": some(1)}
	for range 64 { // the keys of a map come in another order each time
		if err := checkMergeWork(current, patch, meta); err == nil {
			t.Fatal("the finalizer does not count")
		}
	}
}

// TestFinder: short lists, which are searched, and long ones, which have an index, answer the same.
func TestFinder(t *testing.T) {
	first := tree{"name": "a", "n": "first"}
	list := []any{nil, "a", tree{}, tree{"name": nil}, tree{"name": tree{}}, tree{"name": []any{}}, first,
		tree{"name": "a", "n": "second"}, tree{"name": int64(7), "n": "seven"}, tree{"name": true, "n": "true"}}
	for _, times := range []int{0, 1, 1000} {
		find := finder(list, "name", times)
		for _, row := range []struct {
			value any
			want  any
		}{{"a", "first"}, {int64(7), "seven"}, {true, "true"}, {"b", nil}, {"7", nil}, {nil, nil}, {tree{}, nil}, {[]any{}, nil}} {
			if got := find(row.value); got["n"] != row.want {
				t.Errorf("%d times: %v is %v, want %v", times, row.value, got, row.want)
			}
		}
	}
}

// TestMergeWorkIsFoundSoon: elements with the same key would each have the list of the same one
// looked at.
func TestMergeWorkIsFoundSoon(t *testing.T) {
	meta := podMeta(t)
	env, same := some(20_000), some(5000)
	for i := range env {
		env[i] = tree{"name": fmt.Sprint("E", i)}
	}
	for i := range same {
		same[i] = tree{"name": "a", "env": []any{tree{"name": "ONE"}}}
	}
	var err error
	took := cputime.Of(func() {
		err = checkMergeWork(tree{"spec": tree{"containers": []any{tree{"name": "a", "env": env}}}}, tree{"spec": tree{"containers": same}}, meta)
	})
	if err == nil {
		t.Error("it is not refused")
	}
	if took > time.Second { // 2 ms
		t.Errorf("the refusal took %s", took)
	}
}
