package schema

// Emptied are the empty lists and maps of an object that its model does not keep: upstream's types do
// not write them, or write null. Upstream's decoder keeps them, so its validation sees and shows
// an empty list where the object that is stored has none. The zero value has none.
type Emptied struct {
	places []place
	fields []emptied
}

// place is a value in an object that has something empty below it.
type place struct {
	in    int32 // where it is: that number less one is the index of another place, 0 is the object itself
	index int32 // in a list
	name  string
}

type emptied struct {
	in   int32 // as that of a place
	name string
	list bool
}

// noteEmpty notes the field that the path leads to, if its value is an empty list or map.
func (w *fitter) noteEmpty(v any) {
	if w.emptied == nil {
		return
	}
	_, list := v.([]any)
	if !isEmpty(v) {
		return
	}
	e, in, top := w.emptied, int32(0), len(w.path)-1
	for i := range w.path[:top] {
		s := &w.path[i]
		if s.place == 0 {
			e.places = append(e.places, place{in, int32(s.index), s.name})
			s.place = int32(len(e.places))
		}
		in = s.place
	}
	e.fields = append(e.fields, emptied{in, w.path[top].name, list})
}

// Restore puts them into obj, which was made of the object that was fitted, where there is
// nothing, and returns what takes them out again, if they are empty still. obj is changed in place, as far as it
// has the same lists and maps. Fields that are not sent, by their names and whether they are at the top, are
// left as they are, and what is in them. With written those are left out that upstream's types do not write: what is told
// in JSON does not have them.
func (e *Emptied) Restore(obj map[string]any, written bool, sent func(name string, top bool) bool) (undo func()) {
	if len(e.fields) == 0 {
		return func() {}
	}
	type change struct {
		in   map[string]any
		name string
		null bool // it was null, and not absent
	}
	var changes []change
	// found are the values at the places; that before them is the object.
	found := make([]any, 1, len(e.places)+1)
	found[0] = obj
	for _, p := range e.places {
		var v any
		switch in := found[p.in].(type) {
		case map[string]any:
			if sent(p.name, p.in == 0) {
				v = in[p.name]
			}
		case []any:
			if int(p.index) < len(in) {
				v = in[p.index]
			}
		}
		found = append(found, v)
	}
	for _, f := range e.fields {
		in, _ := found[f.in].(map[string]any)
		v, there := in[f.name]
		if in == nil || v != nil || !sent(f.name, f.in == 0) || written && !there {
			continue
		}
		changes = append(changes, change{in, f.name, there})
		if f.list {
			in[f.name] = []any{}
		} else {
			in[f.name] = map[string]any{}
		}
	}
	return func() {
		for _, c := range changes {
			if !isEmpty(c.in[c.name]) {
				continue
			}
			if c.null {
				c.in[c.name] = nil
			} else {
				delete(c.in, c.name)
			}
		}
	}
}

func isEmpty(v any) bool {
	m, ok := v.(map[string]any)
	return ok && len(m) == 0 || isEmptyList(v)
}

func isEmptyList(v any) bool {
	list, ok := v.([]any)
	return ok && len(list) == 0
}
