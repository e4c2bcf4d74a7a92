package differential

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// path leads to a value: names of fields and indices of elements.
type path []any

func (p path) String() string {
	var s strings.Builder
	for i, e := range p {
		switch e := e.(type) {
		case int:
			fmt.Fprintf(&s, "[%d]", e)
		case string:
			if i > 0 {
				s.WriteByte('.')
			}
			s.WriteString(e)
		}
	}
	return s.String()
}

// pointer is the path as JSON patches have it.
func (p path) pointer() string {
	var s strings.Builder
	for _, e := range p {
		s.WriteByte('/')
		s.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(fmt.Sprint(e)))
	}
	return s.String()
}

// form is the path without indices.
func (p path) form() string {
	var names []string
	for _, e := range p {
		if n, ok := e.(string); ok {
			names = append(names, n)
		}
	}
	return strings.Join(names, ".")
}

func (p path) plus(e any) path { return append(slices.Clip(p), e) }

// walk visits a value and all in it, in an order that only depends on the value.
func walk(at path, v any, visit func(path, any)) {
	visit(at, v)
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			walk(at.plus(name), v[name], visit)
		}
	case []any:
		for i, e := range v {
			walk(at.plus(i), e, visit)
		}
	}
}

// lookup finds a value.
func lookup(v any, p path) (any, bool) {
	for _, e := range p {
		switch e := e.(type) {
		case string:
			m, ok := v.(map[string]any)
			if !ok {
				return nil, false
			}
			if v, ok = m[e]; !ok {
				return nil, false
			}
		case int:
			l, ok := v.([]any)
			if !ok || e >= len(l) {
				return nil, false
			}
			v = l[e]
		}
	}
	return v, true
}

// set sets a value; what leads there must be there. It returns the changed object.
func set(v any, p path, value any) any {
	if len(p) == 0 {
		return value
	}
	switch e := p[0].(type) {
	case string:
		if m, ok := v.(map[string]any); ok {
			m[e] = set(m[e], p[1:], value)
		}
	case int:
		l, ok := v.([]any)
		switch {
		case ok && e < len(l):
			l[e] = set(l[e], p[1:], value)
		case ok && e == len(l) && len(p) == 1:
			return append(l, value)
		}
	}
	return v
}

// remove removes a value, if it is there.
func remove(v any, p path) any {
	if len(p) == 0 {
		return nil
	}
	switch e := p[0].(type) {
	case string:
		if m, ok := v.(map[string]any); ok {
			if len(p) == 1 {
				delete(m, e)
			} else if in, ok := m[e]; ok {
				m[e] = remove(in, p[1:])
			}
		}
	case int:
		if l, ok := v.([]any); ok && e < len(l) {
			if len(p) == 1 {
				return slices.Delete(slices.Clone(l), e, e+1)
			}
			l[e] = remove(l[e], p[1:])
		}
	}
	return v
}

func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		c := make(map[string]any, len(v))
		for name, in := range v {
			c[name] = clone(in)
		}
		return c
	case []any:
		c := make([]any, len(v))
		for i, in := range v {
			c[i] = clone(in)
		}
		return c
	}
	return v
}

func cloneObject(m map[string]any) map[string]any { return clone(m).(map[string]any) }

// mergePatch is the merge patch from one object to another.
func mergePatch(from, to map[string]any) map[string]any {
	p := map[string]any{}
	for name := range from {
		if _, ok := to[name]; !ok {
			p[name] = nil
		}
	}
	for name, v := range to {
		old, was := from[name]
		a, aok := old.(map[string]any)
		b, bok := v.(map[string]any)
		switch {
		case aok && bok:
			if in := mergePatch(a, b); len(in) > 0 {
				p[name] = in
			}
		case !was || string(encode(old)) != string(encode(v)):
			p[name] = v
		}
	}
	return p
}

// parseField reads the path of a cause, as field.Path writes it, against an object: a key in
// brackets is a field if an object is there.
func parseField(s string) path {
	var p path
	for s != "" {
		switch {
		case s[0] == '.':
			s = s[1:]
		case s[0] == '[':
			in, rest, ok := strings.Cut(s[1:], "]")
			if !ok {
				return p
			}
			if i, err := strconv.Atoi(in); err == nil {
				p = append(p, i)
			} else {
				p = append(p, in)
			}
			s = rest
		default:
			end := strings.IndexAny(s, ".[")
			if end < 0 {
				end = len(s)
			}
			p = append(p, s[:end])
			s = s[end:]
		}
	}
	return p
}

func isNumber(v any) bool {
	switch v.(type) {
	case json.Number, int, float64:
		return true
	}
	return false
}
