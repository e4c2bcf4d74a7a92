package random

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/types/tree"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/randfill"
)

// words are what texts are chosen from: most rules ask for one of them. The empty one is there because a pointer to it
// is not absent.
var words = []string{
	"", "", "a", "nginx:1.2", "nginx:latest", "TCP", "ClusterIP", "None", "ExternalName", "LoadBalancer", "NodePort", "Cluster", "Local",
	"RollingUpdate", "Recreate", "OnDelete", "Always", "Never", "Equal", "Exists", "RuntimeDefault", "Localhost", "Allow", "Limited", "ByUser",
	"ExactCount", "All", "Indexed", "NonIndexed", "Resource", "Pods", "Object", "External", "Utilization", "Container", "PodFailurePolicy",
}

// Filler makes random objects.
type Filler struct {
	// Metadata fills the metadata of an object and of templates in it; nil: they have a name.
	Metadata func(*metav1.ObjectMeta, randfill.Continue)
	// Words are what texts are chosen from. Nil: most that rules ask for.
	Words []string
	// Absent is the chance of what may be absent; zero: 0.6, so that fields which are absent are common beside those which are there.
	Absent float64
}

// Fill fills an object of a kind by a seed.
func (f Filler) Fill(seed int64, obj runtime.Object) {
	if f.Metadata == nil {
		f.Metadata = func(x *metav1.ObjectMeta, _ randfill.Continue) { x.Name = "n" }
	}
	if f.Words == nil {
		f.Words = words
	}
	if f.Absent == 0 {
		f.Absent = 0.6
	}
	f.filler(seed).Fill(obj)
	f.reword(reflect.ValueOf(obj), rand.New(rand.NewPCG(uint64(seed), 0)))
}

// scalars are what pointers lead to that a filler never leaves out, because it has a function for them.
var scalars = map[reflect.Type]bool{
	reflect.TypeFor[string](): true, reflect.TypeFor[int32](): true, reflect.TypeFor[int64](): true, reflect.TypeFor[resource.Quantity](): true,
	reflect.TypeFor[intstr.IntOrString](): true, reflect.TypeFor[metav1.Time](): true, reflect.TypeFor[metav1.MicroTime](): true,
}

// reword does what a filler cannot, because it goes by exact types: it chooses texts whose types have names of their own, and
// the keys of maps, from words, and leaves scalars out. Metadata stay as they are.
func (f Filler) reword(v reflect.Value, chance *rand.Rand) {
	word := func() string { return f.Words[chance.IntN(len(f.Words))] }
	switch v.Kind() {
	case reflect.Pointer:
		if v.CanSet() && scalars[v.Type().Elem()] && chance.Float64() < f.Absent {
			v.SetZero()
		}
		fallthrough
	case reflect.Interface:
		if !v.IsNil() {
			f.reword(v.Elem(), chance)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[metav1.ObjectMeta]() {
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				f.reword(v.Field(i), chance)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			f.reword(v.Index(i), chance)
		}
	case reflect.Map:
		if v.Type().Key().Kind() != reflect.String || v.Type().Key() == reflect.TypeFor[string]() || v.IsNil() {
			return
		}
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		out := reflect.MakeMap(v.Type())
		for _, key := range keys {
			out.SetMapIndex(reflect.ValueOf(word()).Convert(v.Type().Key()), v.MapIndex(key))
		}
		v.Set(out)
	case reflect.String:
		if v.Type() != reflect.TypeFor[string]() && v.CanSet() {
			v.SetString(word())
		}
	}
}

// filler makes objects of a seed. Few fields are there, so that those are common which are absent beside those which are.
func (f Filler) filler(seed int64) *randfill.Filler {
	return randfill.NewWithSeed(seed).NilChance(f.Absent).NumElements(0, 2).MaxDepth(16).Funcs(
		func(s *string, c randfill.Continue) { *s = f.Words[c.Intn(len(f.Words))] },
		func(q *resource.Quantity, c randfill.Continue) {
			*q = resource.MustParse([]string{"0", "1", "100m", "1Gi", "1500m", "1u", "2e3"}[c.Intn(7)])
		},
		func(x *intstr.IntOrString, c randfill.Continue) {
			if *x = intstr.FromInt32(int32(c.Intn(3))); c.Intn(2) == 0 {
				*x = intstr.FromString("25%")
			}
		},
		func(x *int32, c randfill.Continue) { *x = int32(c.Intn(3)) },
		func(x *int64, c randfill.Continue) { *x = int64(c.Intn(3)) },
		func(x *metav1.Time, c randfill.Continue) {
			*x = metav1.NewTime(time.Unix(int64(c.Intn(2))<<30, 0).UTC())
		},
		func(x *metav1.MicroTime, c randfill.Continue) {
			*x = metav1.NewMicroTime(time.Unix(int64(c.Intn(2))<<30, 0).UTC())
		},
		func(x *metav1.FieldsV1, _ randfill.Continue) { x.SetRawBytes([]byte(`{}`)) },
		f.Metadata,
		func(x *metav1.TypeMeta, _ randfill.Continue) {},
		func(x *runtime.RawExtension, _ randfill.Continue) { x.Raw = []byte(`{"a":1}`) },
		func(x *runtime.Object, _ randfill.Continue) {},
		func(b *[]byte, c randfill.Continue) { *b = []byte(f.Words[c.Intn(len(f.Words))]) },
	)
}

// Tree is an object as a tree, as it comes in a body or goes into an answer.
func Tree(t *testing.T, obj runtime.Object) tree.Object {
	t.Helper()
	b, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	var out tree.Object
	if err := kjson.UnmarshalCaseSensitivePreserveInts(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}
