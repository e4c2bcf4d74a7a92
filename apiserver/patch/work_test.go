package patch

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/schema"
	"github.com/quorate/quorate/internal/cputime"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// A patch within all other bounds that would insert thousands of times at the
// front of a huge array is refused before it has cost anything.
func TestPatchThatIsTooMuchWork(t *testing.T) {
	var b strings.Builder
	b.WriteString(`[{"op":"add","path":"/x","value":[0` + strings.Repeat(",0", 299_999) + `]}`)
	b.WriteString(strings.Repeat(`,{"op":"add","path":"/x/0","value":0}`, 9_000) + "]")
	p, err := Parse("application/json-patch+json", []byte(b.String()), true)
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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
	text := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	one := `{"metadata":{"finalizers":["example.com/one"]},"spec":{"containers":[{"name":"a","env":[{"name":"ONE","value":"y"}]}]}}`
	for name, c := range map[string]struct {
		current map[string]any
		patch   string
		code    int32 // zero: it is applied
	}{
		"one more finalizer":        {object(n), `{"metadata":{"finalizers":["example.com/one"]}}`, http.StatusRequestEntityTooLarge},
		"one more of a container's": {object(n), `{"spec":{"containers":[{"name":"a","env":[{"name":"ONE","value":"y"}]}]}}`, http.StatusRequestEntityTooLarge},
		"another order":             {object(2000), `{"spec":{"containers":[{"name":"a","env":` + text(reversed[n-2000:]) + `}]}}`, http.StatusRequestEntityTooLarge},
		"an order of what comes":    {object(0), `{"metadata":{"$setElementOrder/finalizers":` + text(finalizers) + `,"finalizers":` + text(finalizers) + `}}`, http.StatusRequestEntityTooLarge},
		"a list that is replaced":   {object(n), `{"spec":{"containers":[{"name":"a","args":` + text(finalizers) + `}]}}`, 0},
		"another field":             {object(n), `{"metadata":{"labels":{"a":"b"}}}`, 0},
		"what is deleted":           {object(n), `{"metadata":{"$deleteFromPrimitiveList/finalizers":["example.com/f00007"]}}`, 0},
		"a long list":               {object(1000), one, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Parse(string(types.StrategicMergePatchType), []byte(c.patch), false)
			if err != nil {
				t.Fatal(err)
			}
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
