package crd

import (
	"errors"
	"fmt"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

// maxDefaults bounds what the defaults of a schema may add to one object, as the bytes of memory
// that its tree takes. What is there already is counted when it is decoded; a default is not in
// the body. A list of empty elements has one for each, and a default may be a list whose elements
// have defaults: a thousand in each of three levels are a billion, from a definition of 10 KB and
// an object without a field.
const maxDefaults = 8 << 20

// What the parts of a tree take, in bytes.
const (
	objectBytes  = 300
	memberBytes  = 120
	elementBytes = 16
)

// ErrDefaults is returned for an object that the defaults of its schema make too large.
var ErrDefaults = errors.New("the defaults of the schema make the object too large")

// completion is one walk that fills in defaults.
type completion struct{ left int64 }

// complete fills in the defaults of a schema, in place, as upstream's defaulting.Default does, which
// has no bound. After an error a part of them is there.
func complete(obj map[string]any, s *structuralschema.Structural) error {
	c := completion{left: maxDefaults}
	if !c.value(obj, s) {
		return fmt.Errorf("%w: they would take more than %d MiB of memory", ErrDefaults, maxDefaults>>20)
	}
	return nil
}

// value completes a value, and what was filled in before. It reports whether there was room.
func (c *completion) value(v any, s *structuralschema.Structural) bool {
	if s == nil {
		return true
	}
	switch v := v.(type) {
	case map[string]any:
		return c.object(v, s)
	case []any:
		for i := range v {
			if missing(v[i], s.Items) {
				made, ok := c.copy(s.Items.Default.Object)
				if !ok {
					return false
				}
				v[i] = made
			}
			if !c.value(v[i], s.Items) {
				return false
			}
		}
	}
	return true
}

func (c *completion) object(obj map[string]any, s *structuralschema.Structural) bool {
	for name, prop := range s.Properties {
		if prop.Default.Object == nil {
			continue
		}
		v, found := obj[name]
		if found && !missing(v, &prop) {
			continue
		}
		made, ok := c.copy(prop.Default.Object)
		if !ok || !c.spend(memberBytes) {
			return false
		}
		obj[name] = made
	}
	for name, v := range obj {
		below, known := s.Properties[name]
		if !known {
			if s.AdditionalProperties == nil || s.AdditionalProperties.Structural == nil {
				continue
			}
			below = *s.AdditionalProperties.Structural
			if missing(v, &below) {
				if v, known = c.copy(below.Default.Object); !known {
					return false
				}
				obj[name] = v
			}
		}
		if !c.value(v, &below) {
			return false
		}
	}
	return true
}

// missing reports whether a null stands for a value that is not there.
func missing(v any, s *structuralschema.Structural) bool { return v == nil && s != nil && !s.Nullable }

// copy is a default of its own for an object, if there is room.
func (c *completion) copy(v any) (any, bool) {
	switch v := v.(type) {
	case map[string]any:
		if !c.spend(objectBytes) {
			return nil, false
		}
		out := make(map[string]any, len(v))
		for name, x := range v {
			made, ok := c.copy(x)
			if !ok || !c.spend(memberBytes) {
				return nil, false
			}
			out[name] = made
		}
		return out, true
	case []any:
		if !c.spend(objectBytes + elementBytes*int64(len(v))) {
			return nil, false
		}
		out := make([]any, len(v))
		for i, x := range v {
			made, ok := c.copy(x)
			if !ok {
				return nil, false
			}
			out[i] = made
		}
		return out, true
	}
	return v, c.spend(elementBytes)
}

func (c *completion) spend(bytes int64) bool {
	c.left -= bytes
	return c.left >= 0
}
