package upstream

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/builtin"
	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/apiserver/schema"
	"github.com/quorate/quorate/apiserver/tree"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/authentication/install"
	_ "k8s.io/kubernetes/pkg/apis/authorization/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/certificates/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/flowcontrol/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	_ "k8s.io/kubernetes/pkg/apis/storagemigration/install"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/randfill"
)

var (
	objects = flag.Int("objects", 400, "objects of each kind")
	first   = flag.Int64("first", 1, "the first seed")
)

// words are what texts are chosen from: most rules ask for one of them. The empty one is there because a pointer to it
// is not absent.
var words = []string{
	"", "", "a", "nginx:1.2", "nginx:latest", "TCP", "ClusterIP", "None", "ExternalName", "LoadBalancer", "NodePort", "Cluster", "Local",
	"RollingUpdate", "Recreate", "OnDelete", "Always", "Never", "Equal", "Exists", "RuntimeDefault", "Localhost", "Allow", "Limited", "ByUser",
	"ExactCount", "All", "Indexed", "NonIndexed", "Resource", "Pods", "Object", "External", "Utilization", "Container", "PodFailurePolicy",
}

// fill makes an object of a seed.
func fill(seed int64, obj runtime.Object) {
	filler(seed).Fill(obj)
	reword(reflect.ValueOf(obj), rand.New(rand.NewPCG(uint64(seed), 0)))
}

// reword chooses texts from words in fields whose types have names of their own: fillers go by exact types.
func reword(v reflect.Value, chance *rand.Rand) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			reword(v.Elem(), chance)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				reword(v.Field(i), chance)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			reword(v.Index(i), chance)
		}
	case reflect.String:
		if v.Type() != reflect.TypeFor[string]() && v.CanSet() {
			v.SetString(words[chance.IntN(len(words))])
		}
	}
}

// filler makes objects of a seed. Few fields are there, so that those are common which are absent beside those which are.
func filler(seed int64) *randfill.Filler {
	return randfill.NewWithSeed(seed).NilChance(0.6).NumElements(0, 2).MaxDepth(16).Funcs(
		func(s *string, c randfill.Continue) { *s = words[c.Intn(len(words))] },
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
		func(x *metav1.ObjectMeta, _ randfill.Continue) { x.Name = "n" },
		func(x *metav1.TypeMeta, _ randfill.Continue) {},
		func(x *runtime.RawExtension, _ randfill.Continue) { x.Raw = []byte(`{"a":1}`) },
		func(x *runtime.Object, _ randfill.Continue) {},
		func(b *[]byte, c randfill.Continue) { *b = []byte(words[c.Intn(len(words))]) },
	)
}

// asTree is an object as a tree, as it comes in a body or goes into an answer.
func asTree(t *testing.T, obj runtime.Object) tree.Object {
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

// read is a body as upstream's decoder reads it: typed, with its defaults, in the internal version.
func read(t *testing.T, body tree.Object, gvk apischema.GroupVersionKind) (runtime.Object, error) {
	obj, err := legacyscheme.Scheme.New(gvk)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, obj); err != nil {
		t.Fatal(err)
	}
	legacyscheme.Scheme.Default(obj)
	return legacyscheme.Scheme.ConvertToVersion(obj, internalOf(gvk))
}

func internalOf(gvk apischema.GroupVersionKind) apischema.GroupVersion {
	return apischema.GroupVersion{Group: gvk.Group, Version: runtime.APIVersionInternal}
}

// keep is an internal object as it is read after it was stored in a version.
func keep(internal runtime.Object, gvk apischema.GroupVersionKind) (runtime.Object, error) {
	made, err := legacyscheme.Scheme.ConvertToVersion(internal, gvk.GroupVersion())
	if err != nil {
		return nil, err
	}
	b, err := made.(stored).Marshal()
	if err != nil {
		return nil, err
	}
	read, err := legacyscheme.Scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	return read, read.(stored).Unmarshal(b)
}

// completed is what upstream makes of a body: defaults, and what is left of it by its internal type and its stored form.
func completed(t *testing.T, body tree.Object, gvk apischema.GroupVersionKind) (runtime.Object, error) {
	internal, err := read(t, body, gvk)
	if err != nil {
		return nil, err
	}
	return keep(internal, gvk)
}

// stored is an object in its stored form, protobuf.
type stored interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// differences counts where two trees differ, by path.
type differences map[string]*difference

type difference struct {
	count   int
	example string
}

func (d differences) add(path string, upstream, ours any) {
	short := func(v any) string {
		b, _ := json.Marshal(v)
		return string(b[:min(len(b), 40)])
	}
	if d[path] == nil {
		d[path] = &difference{example: fmt.Sprintf("upstream %s, here %s", short(upstream), short(ours))}
	}
	d[path].count++
}

type absent struct{}

func (absent) MarshalJSON() ([]byte, error) { return []byte(`"absent"`), nil }

// step is a path with a field behind it. Keys of maps are all the same.
func step(path, name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return r > '~' || r <= ' ' }) || slices.ContainsFunc(words, func(w string) bool { return strings.EqualFold(w, name) }) {
		name = "*"
	}
	return path + "." + name
}

func (d differences) compare(path string, upstream, ours any) {
	if reflect.DeepEqual(upstream, ours) {
		return
	}
	a, ok := upstream.(tree.Object)
	b, ok2 := ours.(tree.Object)
	if ok && ok2 {
		for k, v := range a {
			if w, there := b[k]; there {
				d.compare(step(path, k), v, w)
			} else {
				d.add(step(path, k), v, absent{})
			}
		}
		for k, w := range b {
			if _, there := a[k]; !there {
				d.add(step(path, k), absent{}, w)
			}
		}
		return
	}
	l, ok := upstream.([]any)
	m, ok2 := ours.([]any)
	if ok && ok2 && len(l) == len(m) {
		for i := range l {
			d.compare(path+"[]", l[i], m[i])
		}
		return
	}
	d.add(path, upstream, ours)
}

// known is a file of differences that have a reason, as "KIND PATH". None is seen yet.
func known(t *testing.T, file string) map[string]bool {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			all[line] = false
		}
	}
	return all
}

var strategies = builtin.Strategies(builtin.Config{})

// fillIn adds to an object what its kind's model and strategy do.
func fillIn(t *testing.T, res *kinds.Resource, model *schema.Model, obj tree.Object) {
	t.Helper()
	if err := model.Default(obj); err != nil {
		t.Fatal(err)
	}
	if s := strategies[res.CodeName()]; s != nil && s.Complete != nil {
		if err := s.Complete(nil, obj, nil); err != nil {
			t.Fatal(err)
		}
	}
	model.Fill(obj)
}

// TestDefaults: what is filled in of a body, and what is left of it, is what upstream's types make of it.
func TestDefaults(t *testing.T) {
	registry, err := kinds.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	if testing.Short() {
		*objects = min(*objects, 60)
	}
	accepted := known(t, "testdata/defaults.txt")
	tried := 0
	for _, res := range registry.All() {
		gvk := res.GVK()
		if !legacyscheme.Scheme.Recognizes(gvk) {
			continue
		}
		model, err := schema.Lookup(res.Model)
		if err != nil {
			t.Errorf("%s: %v", gvk, err)
			continue
		}
		found, n := differences{}, 0
		for ; n < *objects; n++ {
			obj, err := legacyscheme.Scheme.New(gvk)
			if err != nil {
				t.Fatal(err)
			}
			fill(*first+int64(n), obj)
			obj.GetObjectKind().SetGroupVersionKind(gvk)
			ours := asTree(t, obj)
			made, err := completed(t, ours, gvk)
			if err != nil {
				continue // of an object that upstream refuses
			}
			made.GetObjectKind().SetGroupVersionKind(gvk)
			if _, err := model.Fit(ours); err != nil {
				found.add("", "taken", err.Error())
				continue
			}
			fillIn(t, res, model, ours)
			found.compare("", asTree(t, made), ours)
		}
		tried += n
		for _, path := range slices.Sorted(maps.Keys(found)) {
			line := gvk.Kind + " " + path
			if _, ok := accepted[line]; ok {
				accepted[line] = true
				continue
			}
			t.Errorf("%s: %d of %d: %s: %s", gvk, found[path].count, n, path, found[path].example)
		}
	}
	for line, seen := range accepted {
		if !seen && !testing.Short() { // which has too few objects for that
			t.Errorf("testdata/defaults.txt: %q is no difference any more", line)
		}
	}
	t.Logf("%d objects", tried)
}
