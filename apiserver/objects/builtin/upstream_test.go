package builtin_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/quorate/quorate/apiserver/objects/builtin"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/internal/must"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/helper/qos"
	v1 "k8s.io/kubernetes/pkg/apis/core/v1"
)

// everyField sets all fields of a value but metadata, one element in each list and map. Types that have themselves
// end.
func everyField(v reflect.Value, depth int) {
	switch x := v.Addr().Interface().(type) {
	case *resource.Quantity:
		*x = resource.MustParse("1")
		return
	case *metav1.Time, *metav1.ObjectMeta:
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		everyField(v.Elem(), depth)
	case reflect.Struct:
		for i := 0; i < v.NumField() && depth < 20; i++ {
			everyField(v.Field(i), depth+1)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		everyField(v.Index(0), depth)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		everyField(key, depth)
		everyField(value, depth)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	}
}

// treeOfPod and internalPod are a Pod in two forms.
func treeOfPod(t *testing.T, pod *corev1.Pod) tree.Object {
	t.Helper()
	obj, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	must.OK(t, err)
	return obj
}

func internalPod(t *testing.T, obj tree.Object) *core.Pod {
	t.Helper()
	var pod corev1.Pod
	must.OK(t, runtime.DefaultUnstructuredConverter.FromUnstructured(obj, &pod))
	in := new(core.Pod)
	must.OK(t, v1.Convert_v1_Pod_To_core_Pod(&pod, in, nil))
	return in
}

// TestDroppedAsUpstream: of a Pod and a template with every field, those are dropped that upstream drops
// with the gates that are closed by default, and none that was there already.
func TestDroppedAsUpstream(t *testing.T) {
	all := builtin.Strategies(builtin.Config{})
	var pod corev1.Pod
	everyField(reflect.ValueOf(&pod.Spec).Elem(), 0)
	everyField(reflect.ValueOf(&pod.Status).Elem(), 0)
	for _, had := range []bool{false, true} {
		var old tree.Object
		was := &core.Pod{}
		if had {
			old = treeOfPod(t, &pod)
			was = internalPod(t, old)
		}
		want := internalPod(t, treeOfPod(t, &pod))
		podutil.DropDisabledPodFields(want, was)
		obj := treeOfPod(t, &pod)
		if had {
			all["pods"].Prepare(obj, old)
		} else { // of a new one the status is another
			all["pods"].Prepare(obj, tree.Object{})
		}
		got := internalPod(t, obj)
		if d := cmp.Diff(&want.Spec, &got.Spec); d != "" {
			t.Errorf("it had them %v: -upstream +ours: %s", had, d)
		}
		if d := cmp.Diff(&want.Status, &got.Status); d != "" {
			t.Errorf("it had them %v: -upstream +ours: %s", had, d)
		}

		template := tree.Object{"template": treeOfPod(t, &pod)}
		var oldTemplate tree.Object
		if had {
			oldTemplate = tree.Object{"template": old}
		}
		all["podtemplates"].Prepare(template, oldTemplate)
		if d := cmp.Diff(&want.Spec, &internalPod(t, tree.As(template["template"])).Spec); d != "" {
			t.Errorf("a template, it had them %v: -upstream +ours: %s", had, d)
		}
	}
}

// TestQOSAsUpstream: random Pods have the class that upstream gives them.
func TestQOSAsUpstream(t *testing.T) {
	prepare := builtin.Strategies(builtin.Config{})["pods"].Prepare
	seen := map[core.PodQOSClass]int{}
	for seed := range 3000 {
		r := rand.New(rand.NewPCG(uint64(seed), 3))
		values := [][]string{{"1"}, {"1", "1000m"}, {"", "0", "1"}, {"", "1", "2"}, {""}}[r.IntN(5)]
		list := func() tree.Object {
			out := tree.Object{}
			for _, name := range []string{"cpu", "memory", "example.com/gpu"} {
				if v := values[r.IntN(len(values))]; v != "" {
					out[name] = v
				}
			}
			return out
		}
		resources := func() tree.Object { return tree.Object{"requests": list(), "limits": list()} }
		spec := tree.Object{}
		for _, kind := range []string{"containers", "initContainers"} {
			var all []any
			for i := range r.IntN(3) {
				all = append(all, tree.Object{"name": fmt.Sprint(i), "resources": resources()})
			}
			spec[kind] = all
		}
		if r.IntN(3) == 0 {
			spec["resources"] = resources()
		}
		obj := tree.Object{"metadata": tree.Object{"name": "a"}, "spec": spec}
		want := qos.ComputePodQOS(internalPod(t, obj))
		prepare(obj, nil)
		if got := tree.Text(tree.As(obj["status"]), "qosClass"); got != string(want) {
			t.Errorf("%v is %s, upstream: %s", spec, got, want)
		}
		seen[want]++
	}
	if len(seen) != 3 {
		t.Errorf("only %v", seen)
	}
}
