package validation

import (
	"flag"
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/types/schema"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/internal/cputime"
	"github.com/quorate/quorate/internal/must"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// model is the type of the kind in k8s.io/api.
func (r rules[V, I]) model() reflect.Type { return reflect.TypeFor[V]() }

// full measures all lists of all kinds, instead of those that are bounded.
var full = flag.Bool("full", false, "TestLongLists of all lists: takes some minutes")

// listField is a list or a map of a kind.
type listField struct {
	path []string
	typ  reflect.Type // slice or map
}

// leaves are the types whose values are one text or number, and such a value.
var leaves = map[reflect.Type]any{
	reflect.TypeFor[metav1.Time]():          "2026-01-01T00:00:00Z",
	reflect.TypeFor[metav1.MicroTime]():     "2026-01-01T00:00:00.000000Z",
	reflect.TypeFor[metav1.Duration]():      "1s",
	reflect.TypeFor[resource.Quantity]():    "1",
	reflect.TypeFor[intstr.IntOrString]():   int64(1),
	reflect.TypeFor[runtime.RawExtension](): tree.Object{},
	reflect.TypeFor[metav1.FieldsV1]():      tree.Object{},
}

// fields calls f for each field of a struct as JSON has it.
func fields(t reflect.Type, f func(name string, t reflect.Type)) {
	for i := range t.NumField() {
		sf := t.Field(i)
		tag, _, _ := strings.Cut(sf.Tag.Get("json"), ",")
		switch {
		case tag == "-":
		case tag == "" && sf.Anonymous:
			ft := sf.Type
			if ft.Kind() == reflect.Pointer {
				ft = ft.Elem()
			}
			fields(ft, f)
		default:
			f(tag, sf.Type)
		}
	}
}

func isBytes(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8
}

// listsOf finds the lists and maps of a type. Types that have themselves are followed once.
func listsOf(t reflect.Type, path []string, seen []reflect.Type, out *[]listField) {
	if _, ok := leaves[t]; ok || isBytes(t) {
		return
	}
	switch t.Kind() {
	case reflect.Pointer:
		listsOf(t.Elem(), path, seen, out)
	case reflect.Slice:
		*out = append(*out, listField{slices.Clone(path), t})
		listsOf(t.Elem(), append(path, "[]"), seen, out)
	case reflect.Map:
		*out = append(*out, listField{slices.Clone(path), t})
		listsOf(t.Elem(), append(path, "{}"), seen, out)
	case reflect.Struct:
		if slices.Contains(seen, t) {
			return
		}
		seen = append(slices.Clone(seen), t)
		fields(t, func(name string, ft reflect.Type) { listsOf(ft, append(path, name), seen, out) })
	}
}

// value is one of a type, another for each i; depth is how many levels of objects have fields.
func value(t reflect.Type, name string, i, depth int) any {
	if v, ok := leaves[t]; ok {
		return v
	}
	if isBytes(t) {
		return "YQ=="
	}
	switch t.Kind() {
	case reflect.Pointer:
		if t.Elem().Kind() == reflect.Struct {
			return nil
		}
		return value(t.Elem(), name, i, depth)
	case reflect.String:
		if e, ok := enums[t.Name()]; ok {
			return e
		}
		switch name {
		case "ip", "hostIP", "podIP", "address":
			return fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255)
		case "mountPath", "devicePath":
			return fmt.Sprintf("/x%d", i)
		case "expression":
			return "true"
		}
		return fmt.Sprintf("x%d", i)
	case reflect.Int32, reflect.Int64, reflect.Int:
		return int64(i%60000 + 1)
	case reflect.Struct:
		o := tree.Object{}
		if depth == 0 {
			return o
		}
		fields(t, func(name string, ft reflect.Type) {
			k := ft.Kind()
			if _, leaf := leaves[ft]; !leaf && (k == reflect.Slice || k == reflect.Map || k == reflect.Pointer) {
				return
			}
			if v := value(ft, name, i, depth-1); v != nil {
				o[name] = v
			}
		})
		return o
	}
	return nil
}

// enums are words for types that have few: what is wrong is often not looked at further.
var enums = map[string]string{
	"TolerationOperator": "Exists", "TaintEffect": "NoSchedule", "Protocol": "TCP", "LabelSelectorOperator": "Exists",
	"NodeSelectorOperator": "Exists", "UnsatisfiableConstraintAction": "DoNotSchedule", "ConditionStatus": "True",
	"PullPolicy": "Always", "TerminationMessagePolicy": "File", "IPFamily": "IPv4", "LimitType": "Container",
	"NodeAddressType": "InternalIP", "ScopeSelectorOperator": "Exists",
}

// elements are n of a list or map: unique, reversed, the same or empty ones.
func elements(t reflect.Type, n int, variant string, start int) any {
	at := func(i int) int {
		if variant == "same" {
			return 1
		}
		return i + start
	}
	depth := 2
	if variant == "empty" {
		depth = 0
	}
	if t.Kind() == reflect.Map {
		out := tree.Object{}
		for i := range n {
			v := value(t.Elem(), "", i, depth)
			if v == nil {
				v = tree.Object{}
			}
			if t.Elem().Kind() == reflect.Slice && !isBytes(t.Elem()) {
				v = []any{}
			}
			out[fmt.Sprintf("x%d", i+start)] = v
		}
		return out
	}
	var out []any
	for i := range n {
		v := value(t.Elem(), "", at(i), depth)
		if v == nil {
			v = tree.Object{}
		}
		if t.Elem().Kind() == reflect.Slice && !isBytes(t.Elem()) {
			v = []any{}
		}
		out = append(out, v)
	}
	if variant == "reversed" {
		slices.Reverse(out)
	}
	return out
}

// place puts v at a path below o, whose type is t, and makes what is missing on the way.
func place(o any, t reflect.Type, path []string, v any) any {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if len(path) == 0 {
		return v
	}
	switch path[0] {
	case "[]":
		l, _ := o.([]any)
		if len(l) == 0 {
			l = []any{value(t.Elem(), "", 1, 2)}
		}
		l[0] = place(l[0], t.Elem(), path[1:], v)
		return l
	case "{}":
		m, _ := o.(tree.Object)
		if m == nil {
			m = tree.Object{}
		}
		m["x"] = place(m["x"], t.Elem(), path[1:], v)
		return m
	}
	m, _ := o.(tree.Object)
	if m == nil {
		m = tree.Object{}
	}
	fields(t, func(name string, ft reflect.Type) {
		if name == path[0] {
			m[name] = place(m[name], ft, path[1:], v)
		}
	})
	return m
}

const (
	mostObjects = 20_000  // the longest list of objects that a body may have
	mostValues  = 150_000 // and of texts, numbers or entries
	mostTime    = time.Second
)

// expressions are the lists that have them, and wait for their turn to be compiled.
var expressions = []string{"matchConditions", "variables", "validations", "auditAnnotations", "mutations"}

// longList is one field of one kind, with as many elements as a test wants.
type longList struct {
	name  string
	s     sample
	typ   reflect.Type
	model *schema.Model
	listField
}

func (l *longList) object(t *testing.T, n int, variant string, first int) tree.Object {
	t.Helper()
	obj := runtime.DeepCopyJSON(l.s.obj)
	prepare(l.name, obj)
	tree.As(obj["metadata"])["resourceVersion"] = "7"
	place(obj, l.typ, l.path, elements(l.listField.typ, n, variant, first))
	must.OK(t, l.model.Default(obj))
	return obj
}

// measure validates writes with n elements in every way, and checks how long each takes.
func (l *longList) measure(t *testing.T, n int) {
	t.Helper()
	rules, namespaced := Of(l.name), l.s.res.Namespaced
	check := func(what string, f func()) {
		if took := cputime.Of(f); took > mostTime {
			t.Errorf("%s %s: %d elements: %s takes %s", l.name, strings.Join(l.path, "."), n, what, took)
		}
	}
	for _, variant := range []string{"unique", "same", "empty"} {
		obj := l.object(t, n, variant, 1)
		check("a create of "+variant+" ones", func() { rules.Create(obj, namespaced, nil) })
	}
	old := l.object(t, n, "unique", 1)
	for what, obj := range map[string]tree.Object{
		"the same": old, "an update to reversed ones": l.object(t, n, "reversed", 1), "an update to others": l.object(t, n, "unique", 1_000_000),
	} {
		for _, part := range append([]string{""}, all[l.name].(interface{ subresources() []string }).subresources()...) {
			check(what+" "+part, func() { rules.Update(part, obj, old, namespaced, nil) })
		}
	}
}

// TestLongLists: no list that a body may have takes upstream's functions more than a second of a
// processor: they cannot be interrupted, and a client that may write one object can have it done
// again and again. Lists with a bound are measured at it, and are refused above it unless they
// were as long before.
func TestLongLists(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	of := samples(t)
	for _, name := range Kinds() {
		if bounds[name] == nil && !*full {
			continue
		}
		t.Run(name, func(t *testing.T) {
			typ := all[name].(interface{ model() reflect.Type }).model()
			model, err := schema.Lookup(of[name].res.Model)
			must.OK(t, err)
			var lists []listField
			listsOf(typ, nil, nil, &lists)
			left := slices.Clone(bounds[name])
			for _, f := range lists {
				path := strings.Join(f.path, ".")
				l := &longList{name, of[name], typ, model, f}
				i := slices.IndexFunc(left, func(b bound) bool { return b.path == path })
				switch {
				case i >= 0:
					if name == "pods" || !strings.Contains(path, "template") || *full { // templates are Pods
						l.measure(t, left[i].max)
					}
					l.refuses(t, left[i])
					left = slices.Delete(left, i, i+1)
				case !*full || strings.Contains(path, "managedFields") || strings.Contains(path, "template.") && name != "podtemplates":
				case strings.HasSuffix(name, "admissionregistration.k8s.io") && slices.Contains(expressions, f.path[len(f.path)-1]):
					l.measure(t, 1000) // package builtin refuses more
				case f.typ.Elem().Kind() == reflect.Struct:
					l.measure(t, mostObjects)
				default:
					l.measure(t, mostValues)
				}
			}
			if len(left) > 0 {
				t.Errorf("there are bounds of %v, which it has not", left)
			}
		})
	}
}

// refuses checks that one element more than the bound is refused, and may stay.
func (l *longList) refuses(t *testing.T, b bound) {
	t.Helper()
	long, same := l.object(t, b.max+1, "unique", 1), l.object(t, b.max+1, "reversed", 1)
	shorter, longer := l.object(t, b.max, "unique", 1), l.object(t, b.max+2, "unique", 1)
	for _, c := range []struct {
		what     string
		obj, old tree.Object
		refused  bool
	}{
		{"a create", long, nil, true}, {"a shorter one", shorter, nil, false},
		{"an update of a shorter one", long, shorter, true}, {"an update that makes it longer", longer, long, true},
		{"an update", same, long, false}, {"an update that makes it shorter", shorter, long, false},
	} {
		if refused := len(tooMany([]bound{b}, c.obj, c.old)) > 0; refused != c.refused {
			t.Errorf("%s, %s of %d: refused: %t", l.name, c.what, b.max+1, refused)
		}
	}
	if errs := Of(l.name).Create(long, l.s.res.Namespaced, nil); len(errs) != 1 || errs[0].Type != field.ErrorTypeTooMany {
		t.Errorf("%s %s: %.200v", l.name, b.path, errs)
	}
}
