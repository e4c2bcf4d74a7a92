package typed

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/internal/must"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// decodeAll is DecodeUnmanaged with managedFields.
func decodeAll(obj tree.Object, into any) error { return decode(&whole, obj, into, nil, nil) }

// TestAsConverter: of random trees for every type that Kubernetes publishes, decode makes what
// the converter makes, and fails where it fails, in its words. At least half of what fits takes
// the short way, so the test is about that one.
func TestAsConverter(t *testing.T) {
	known := scheme.Scheme.AllKnownTypes()
	var names []string
	types := map[string]reflect.Type{}
	for gvk, t := range known {
		if name := gvk.String(); strings.HasPrefix(t.PkgPath(), "k8s.io/api/") {
			names, types[name] = append(names, name), t
		}
	}
	slices.Sort(names)
	if len(names) < 100 {
		t.Fatalf("%d types", len(names))
	}
	rounds := 12
	if testing.Short() {
		rounds = 4
	}
	for _, name := range names {
		short, fit := 0, 0
		for seed := range rounds {
			g := generator{Rand: rand.New(rand.NewPCG(uint64(seed), 1)), wrong: []int{0, 0, 400, 40}[seed%4]}
			obj := tree.As(g.value(types[name], 0))
			what := fmt.Sprintf("%s, seed %d", name, seed)
			like(t, what, types[name], obj, g.near(types[name], obj))
			if asConverter(t, what, types[name], obj) {
				fit++
				if whole.of(types[name]).decode(obj, reflect.New(types[name]).Elem()) {
					short++
				}
			}
		}
		if short < fit/2 || fit == 0 {
			t.Errorf("%s: %d of %d that fit took the short way", name, short, fit)
		}
	}
}

// asConverter holds decodeAll and DecodeUnmanaged against the converter; fits says that it had no error.
func asConverter(t *testing.T, what string, of reflect.Type, obj tree.Object) (fits bool) {
	t.Helper()
	before := runtime.DeepCopyJSON(obj)
	without := obj
	if meta := tree.As(obj["metadata"]); meta["managedFields"] != nil {
		without = withoutManagedFields(obj)
	}
	for _, c := range []struct {
		how    string
		decode func(tree.Object, any) error
		from   tree.Object
	}{{"decodeAll", decodeAll, obj}, {"DecodeUnmanaged", DecodeUnmanaged, without}} {
		want, got := reflect.New(of), reflect.New(of)
		wantErr := runtime.DefaultUnstructuredConverter.FromUnstructured(c.from, want.Interface())
		gotErr := c.decode(obj, got.Interface())
		if fmt.Sprint(wantErr) != fmt.Sprint(gotErr) && !severalWrong(wantErr, gotErr) {
			t.Errorf("%s: %s: error %v, the converter's is %v", what, c.how, gotErr, wantErr)
		}
		if wantErr == nil && !reflect.DeepEqual(want.Interface(), got.Interface()) {
			t.Errorf("%s: %s of %v\n%+v\nthe converter:\n%+v", what, c.how, obj, got, want)
		}
		fits = wantErr == nil
	}
	if !reflect.DeepEqual(before, obj) {
		t.Errorf("%s: the tree was changed", what)
	}
	return fits
}

// like holds DecodeUnmanagedLike, after another object that is nearly the same, against the converter.
func like(t *testing.T, what string, of reflect.Type, obj, other tree.Object) {
	t.Helper()
	want, got, made := reflect.New(of), reflect.New(of), reflect.New(of)
	if DecodeUnmanaged(other, made.Interface()) != nil {
		return
	}
	without := obj
	if meta := tree.As(obj["metadata"]); meta["managedFields"] != nil {
		without = withoutManagedFields(obj)
	}
	wantErr := runtime.DefaultUnstructuredConverter.FromUnstructured(without, want.Interface())
	gotErr := DecodeUnmanagedLike(obj, got.Interface(), other, made.Interface())
	if fmt.Sprint(wantErr) != fmt.Sprint(gotErr) && !severalWrong(wantErr, gotErr) {
		t.Errorf("%s: after another: error %v, the converter's is %v", what, gotErr, wantErr)
	}
	if wantErr == nil && !reflect.DeepEqual(want.Interface(), got.Interface()) {
		t.Errorf("%s: %v after %v\n%+v\nthe converter:\n%+v", what, obj, other, got, want)
	}
}

// near is an object of a type with some of obj's fields: the same, or equal, or others.
func (g generator) near(t reflect.Type, obj tree.Object) tree.Object {
	other := tree.As(g.value(t, 0))
	for k, v := range obj {
		switch inner := tree.As(v); g.IntN(4) {
		case 0:
			other[k] = v
		case 1:
			other[k] = runtime.DeepCopyJSONValue(v)
		case 2:
			if inner = maps.Clone(inner); len(inner) > 0 {
				for k := range inner {
					if g.IntN(3) == 0 {
						delete(inner, k)
					}
				}
				other[k] = inner
			}
		}
	}
	return other
}

// severalWrong: the converter ranges over maps, and tells the first mistake that it meets.
func severalWrong(a, b error) bool { return a != nil && b != nil }

// generator makes trees that fit Go types, but for one value of wrong (0: for none).
type generator struct {
	*rand.Rand
	wrong int
}

var (
	texts = []string{"", "a", "two words", "\x00<é>", "\xff", "1", "Always"}
	// of types that read JSON themselves, and of bytes; the last of each fit nothing, or need care.
	times      = []any{"2026-01-02T03:04:05Z", "2026-01-02T03:04:05.123456Z", "2026-01-02T03:04:05+02:00", "1", ""}
	quantities = []any{"1", "100m", "1Gi", "0", "1e3", "1.5", int64(7), " 1", "1\n", "x", ""}
	ports      = []any{"http", "80", int64(80), int64(1 << 40), "\xff", "\u2028"}
	durations  = []any{"1s", "1", ""}
	encoded    = []any{"", "aGk=", "aGk", "aG\nk=", "aGk=\xff", "_-8="}
	oddities   = []any{nil, "a", int64(1), 1.5, 1.0, true, []any{}, []any(nil), []any{"a"}, tree.Object{}, tree.Object(nil), tree.Object{"a": "b"}, int64(math.MaxInt64)}
)

func (g generator) pick(of []any) any { return of[g.IntN(len(of))] }

func (g generator) value(t reflect.Type, depth int) any {
	if g.wrong > 0 && g.IntN(g.wrong) == 0 && depth > 0 {
		return g.pick(oddities)
	}
	care := g.wrong > 0
	first := func(of []any, n int) any {
		if !care {
			of = of[:n]
		}
		return g.pick(of)
	}
	switch t.String() {
	case "v1.Time":
		return first(times, 3)
	case "v1.MicroTime":
		return first(times[1:], 1)
	case "resource.Quantity":
		return first(quantities, 8)
	case "intstr.IntOrString":
		return first(ports, 3)
	case "v1.Duration":
		return first(durations, 1)
	case "v1.FieldsV1", "runtime.RawExtension", "v1.JSON", "v1beta1.JSON":
		return tree.Object{"f:a": tree.Object{}}
	}
	switch t.Kind() {
	case reflect.String:
		return texts[g.IntN(len(texts))]
	case reflect.Bool:
		return g.IntN(2) == 0
	case reflect.Int, reflect.Int32, reflect.Int64:
		return []any{int64(0), int64(-1), int64(1 << 40), int64(7)}[g.IntN(4)]
	case reflect.Pointer:
		return g.value(t.Elem(), depth)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return first(encoded, 2)
		}
		list := make([]any, g.IntN(3))
		for i := range list {
			list[i] = g.value(t.Elem(), depth+1)
		}
		return list
	case reflect.Map:
		m := tree.Object{}
		for range g.IntN(3) {
			m[texts[g.IntN(len(texts))]] = g.value(t.Elem(), depth+1)
		}
		return m
	case reflect.Struct:
		m := tree.Object{}
		g.fields(t, m, depth)
		if g.IntN(20) == 0 {
			m["unknown"] = g.pick(oddities)
		}
		return m
	}
	return g.pick(oddities)
}

func (g generator) fields(t reflect.Type, m tree.Object, depth int) {
	for i := range t.NumField() {
		f := t.Field(i)
		name := nameOf(f)
		switch {
		case name == "":
			g.fields(f.Type, m, depth)
		case depth == 0 || g.IntN(4+2*depth) == 0:
			m[name] = g.value(f.Type, depth+1)
		}
	}
}

// TestDecodeReplaces: what was there before is gone, as with the converter, also if it is the
// converter who decodes.
func TestDecodeReplaces(t *testing.T) {
	for _, obj := range []tree.Object{{"data": tree.Object{"a": "b"}}, {"data": tree.Object{"a": "b"}, "immutable": nil}} {
		cm := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "before"}, Data: map[string]string{"c": "d"}, Immutable: new(bool)}
		must.OK(t, decodeAll(obj, &cm))
		if want := (corev1.ConfigMap{Data: map[string]string{"a": "b"}}); !reflect.DeepEqual(cm, want) {
			t.Errorf("%+v", cm)
		}
	}
	if err := decodeAll(tree.Object{}, corev1.ConfigMap{}); err == nil {
		t.Error("what is no pointer was decoded")
	}
}

// TestDecodeConcurrently: plans are made while others are used.
func TestDecodeConcurrently(t *testing.T) {
	var fresh plans
	obj := tree.Object{"metadata": tree.Object{"name": "a"}, "spec": tree.Object{"containers": []any{tree.Object{"name": "a"}}}}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for _, into := range []any{&corev1.Pod{}, &corev1.PodTemplate{}, &corev1.Node{}} {
				if err := decode(&fresh, obj, into, nil, nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkDecode is a Pod, by the converter and here.
func BenchmarkDecode(b *testing.B) {
	var pod tree.Object
	if err := json.Unmarshal([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"default","uid":"u","creationTimestamp":"2026-01-02T03:04:05Z","labels":{"app":"a"}},
		"spec":{"nodeName":"n","restartPolicy":"Always","dnsPolicy":"ClusterFirst","schedulerName":"default-scheduler","securityContext":{},"enableServiceLinks":true,
		"containers":[{"name":"web","image":"nginx:1.27","imagePullPolicy":"IfNotPresent","terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File",
		"ports":[{"protocol":"TCP"}],"env":[{"name":"A","value":"b"}],"resources":{"requests":{"cpu":"100m","memory":"64Mi"}},"volumeMounts":[{"name":"v","mountPath":"/v"}]}],
		"volumes":[{"name":"v","emptyDir":{}}]}}`), &pod); err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		decode func(tree.Object, any) error
	}{{"converter", runtime.DefaultUnstructuredConverter.FromUnstructured}, {"typed", decodeAll}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := c.decode(pod, &corev1.Pod{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
