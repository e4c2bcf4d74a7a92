package differential

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// change is one of an object.
type change struct {
	path   path
	value  any
	delete bool
}

func (c change) String() string {
	if c.delete {
		return "delete " + c.path.String()
	}
	v := string(encode(c.value))
	if len(v) > 60 {
		v = v[:60] + "..."
	}
	return "set " + c.path.String() + " = " + v
}

func (c change) apply(obj map[string]any) {
	if c.delete {
		remove(obj, c.path)
		return
	}
	set(obj, c.path, clone(c.value))
}

// operation is the change as an operation of a JSON patch.
func (c change) operation(obj map[string]any) map[string]any {
	_, there := lookup(obj, c.path)
	switch {
	case c.delete:
		return map[string]any{"op": "remove", "path": c.path.pointer()}
	case there:
		return map[string]any{"op": "replace", "path": c.path.pointer(), "value": c.value}
	}
	return map[string]any{"op": "add", "path": c.path.pointer(), "value": c.value}
}

var (
	badTexts = []any{
		"", " ", "-5", "Bad Name!", "bogus", "../..", "UPPER", "a.b", "a/b", "a/b/c", "*", "ünï", "a_b", ".", "a.", "-", "1", "0", "true", "null",
		"10.0.0.1", "::1", "010.0.0.1", "10.0.0.0/8", "http://a", "https://a/b?c", "1Gi", "-1Gi", "0.5", "1e3", "1.5m", "50%", "101%", "1h", "1000000Gi",
		"example.com/a", "kubernetes.io/a", "2020-01-01T00:00:00Z", "a=b", "{}", "a\nb", "None", "Always", "TCP", "Ingress",
		strings.Repeat("x", 64), strings.Repeat("x", 254), strings.Repeat("x", 300), strings.Repeat("a.", 40) + "a",
	}
	numbers = []any{-1, 0, 1, 2, 3, 100, 101, 65535, 65536, 2147483647, 2147483648, -2147483649, json.Number("9223372036854775807"), json.Number("9223372036854775808"), 1.5, 1000000}
	others  = []any{nil, true, false, "bogus", "", 7, 1.5, []any{}, map[string]any{}, []any{"a"}, []any{nil}, map[string]any{"a": "b"}, []any{map[string]any{}}, "5", "true"}
)

// The values that Go's types, JSON, and the code on both tell apart or do not.
var (
	empties = []any{nil, "", []any{}, map[string]any{}}
	zeros   = []any{0, false, "0", json.Number("0.0")}
)

func pick[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

// mutator changes objects at random; neighbours are other objects of the same kind.
type mutator struct {
	r *rand.Rand
	// values are those of all objects of a kind, by the forms of their paths.
	values map[string][]any
	forms  map[string][]string // what can be in an object, by its form
}

// neighbourhood collects what objects of a kind have.
func neighbourhood(objects []map[string]any) (values map[string][]any, forms map[string][]string) {
	values, forms = map[string][]any{}, map[string][]string{}
	seen := map[string]bool{}
	for _, obj := range objects {
		walk(nil, obj, func(p path, v any) {
			f := p.form()
			key := f + " " + string(encode(v))
			if seen[key] {
				return
			}
			seen[key] = true
			values[f] = append(values[f], v)
			if m, ok := v.(map[string]any); ok {
				for _, name := range slices.Sorted(maps.Keys(m)) {
					if !slices.Contains(forms[f], name) {
						forms[f] = append(forms[f], name)
					}
				}
			}
		})
	}
	return values, forms
}

// change makes one change of an object, below a field if one is named and there.
func (m *mutator) change(obj map[string]any, below string) change {
	if m.r.IntN(8) == 0 && below == "" {
		return m.metadata(obj)
	}
	var at []path
	walk(nil, obj, func(p path, _ any) {
		if len(p) == 0 || len(p) == 1 && (p[0] == "apiVersion" || p[0] == "kind" || p[0] == "metadata") && m.r.IntN(4) > 0 {
			return
		}
		if below != "" && p[0] != below {
			return
		}
		if len(p) > 2 && p[1] == "managedFields" && m.r.IntN(20) > 0 {
			return
		}
		// Less than the weight of status and metadata: what is in them is mostly dropped.
		if (p[0] == "metadata" || p[0] == "status" && below == "") && m.r.IntN(3) > 0 {
			return
		}
		at = append(at, p)
	})
	if len(at) == 0 {
		return change{path: path{pick(m.r, []string{"spec", "data", "bogus"})}, value: pick(m.r, others)}
	}
	p := pick(m.r, at)
	v, _ := lookup(obj, p)
	if m.r.IntN(4) == 0 {
		return m.void(p, v)
	}
	switch n := m.r.IntN(20); {
	case n < 5:
		return change{path: p, delete: true}
	case n < 7:
		return change{path: p, value: pick(m.r, others)}
	case n < 10:
		if all := m.values[p.form()]; len(all) > 1 {
			return change{path: p, value: pick(m.r, all)}
		}
	}
	switch v := v.(type) {
	case string:
		return change{path: p, value: pick(m.r, badTexts)}
	case bool:
		return change{path: p, value: !v}
	case []any:
		if len(v) > 0 && m.r.IntN(3) > 0 {
			return change{path: p.plus(len(v)), value: pick(m.r, v)}
		}
		return change{path: p, value: pick(m.r, []any{[]any{}, nil, []any{""}, []any{nil}, []any{map[string]any{}}})}
	case map[string]any:
		names := m.forms[p.form()]
		if len(names) > 0 && m.r.IntN(4) > 0 {
			name := pick(m.r, names)
			if all := m.values[p.plus(name).form()]; len(all) > 0 {
				return change{path: p.plus(name), value: pick(m.r, all)}
			}
		}
		if m.r.IntN(2) == 0 {
			return change{path: p.plus(pick(m.r, []string{"bogus", "name", "kind", "a b", "", "example.com/x", "type"})), value: pick(m.r, badTexts)}
		}
		return change{path: p, value: map[string]any{}}
	}
	if isNumber(v) {
		return change{path: p, value: pick(m.r, numbers)}
	}
	return change{path: p, value: pick(m.r, others)}
}

// void makes a value, or something that can be in it, absent, null, empty or zero. Most are of the
// type that the value has: others are refused before anything looks at them.
func (m *mutator) void(p path, v any) change {
	if names := m.forms[p.form()]; len(names) > 0 && m.r.IntN(2) == 0 {
		p = p.plus(pick(m.r, names))
		v = nil
		if all := m.values[p.form()]; len(all) > 0 {
			v = all[0]
		}
	}
	if list, ok := v.([]any); ok && m.r.IntN(4) == 0 {
		return change{path: p.plus(m.r.IntN(len(list) + 1)), value: pick(m.r, empties)}
	}
	switch m.r.IntN(8) {
	case 0:
		return change{path: p, delete: true}
	case 1, 2:
		return change{path: p}
	case 3:
		return change{path: p, value: pick(m.r, slices.Concat(empties, zeros))}
	}
	switch v.(type) {
	case string:
		return change{path: p, value: pick(m.r, []any{"", "0"})}
	case bool:
		return change{path: p, value: false}
	case []any:
		return change{path: p, value: []any{}}
	case map[string]any:
		return change{path: p, value: map[string]any{}}
	}
	if isNumber(v) {
		return change{path: p, value: pick(m.r, []any{0, "0", json.Number("0.0")})}
	}
	return change{path: p, value: pick(m.r, empties)}
}

// metadata changes what all objects have.
func (m *mutator) metadata(obj map[string]any) change {
	meta := child(obj, "metadata")
	in := func(name string, value any) change { return change{path: path{"metadata", name}, value: value} }
	t := text(pick(m.r, badTexts))
	switch m.r.IntN(12) {
	case 0, 1:
		return in("name", t)
	case 2:
		return in("generateName", t)
	case 3:
		labels := cloneObject(child(cloneObject(meta), "labels"))
		labels[pick(m.r, []string{"a", "example.com/a", t})] = text(pick(m.r, badTexts))
		return in("labels", labels)
	case 4:
		annotations := cloneObject(child(cloneObject(meta), "annotations"))
		annotations[pick(m.r, []string{"a", "UPPER.example.com/A", t})] = text(pick(m.r, badTexts))
		return in("annotations", annotations)
	case 5:
		return in("finalizers", []any{pick(m.r, []string{"example.com/a", "a", "foregroundDeletion", "orphan", "kubernetes", "kubernetes.io/pvc-protection", t})})
	case 6:
		owner := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "0a1b2c3d-0000-4000-8000-0123456789ab"}
		switch m.r.IntN(6) {
		case 0:
			delete(owner, pick(m.r, []string{"apiVersion", "kind", "name", "uid"}))
		case 1:
			owner[pick(m.r, []string{"apiVersion", "kind", "name", "uid"})] = t
		case 2:
			owner["controller"] = true
			return in("ownerReferences", []any{owner, clone(owner)})
		case 3:
			owner["apiVersion"], owner["kind"] = "v1", "Event"
		case 4:
			return in("ownerReferences", []any{owner, clone(owner)})
		}
		return in("ownerReferences", []any{owner})
	case 7:
		return in(pick(m.r, []string{"uid", "selfLink"}), t)
	case 8:
		return in(pick(m.r, []string{"deletionTimestamp", "creationTimestamp"}), pick(m.r, []any{"2020-01-01T00:00:00Z", t, nil}))
	case 9:
		return in(pick(m.r, []string{"generation", "deletionGracePeriodSeconds"}), pick(m.r, numbers))
	case 10:
		return in("managedFields", []any{map[string]any{
			"manager": t, "operation": pick(m.r, []string{"Update", "Apply", "bogus"}), "apiVersion": pick(m.r, []any{obj["apiVersion"], "v1"}),
			"fieldsType": pick(m.r, []string{"FieldsV1", "bogus"}), "fieldsV1": map[string]any{"f:metadata": map[string]any{}},
		}})
	}
	return in("namespace", pick(m.r, []string{"default", "", t}))
}

// describe says what was changed.
func describe(changes []change) string {
	if len(changes) == 0 {
		return "as it is"
	}
	var all []string
	for _, c := range changes {
		all = append(all, c.String())
	}
	return strings.Join(all, "; ")
}
