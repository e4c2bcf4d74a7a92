package crd

import (
	"encoding/json"
	"reflect"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

// Changed makes of an object that is stored in this version what has changed between two that show it as another version
// has it: what that does not show stays. Items of lists are those that have the keys of their list; of lists without keys
// they are those that are as they were, unless a webhook converts, which may give them another order. The result may
// share with all three.
func (v *Version) Changed(now, before, stored map[string]any) (map[string]any, error) {
	c, err := v.compilation()
	if err != nil {
		return nil, err
	}
	m := merger{ordered: v.definition.webhook == nil}
	out, _ := m.changed(now, before, stored, c.structural).(map[string]any)
	return out, nil
}

// merger is how Changed goes about it.
type merger struct {
	ordered bool // items of lists are shown where they are stored
}

func (m merger) changed(now, before, stored any, s *structuralschema.Structural) any {
	if reflect.DeepEqual(now, before) {
		return stored
	}
	switch now := now.(type) {
	case map[string]any:
		was, ok := before.(map[string]any)
		kept, ok2 := stored.(map[string]any)
		if ok && ok2 {
			return m.fields(now, was, kept, s)
		}
	case []any:
		was, ok := before.([]any)
		kept, ok2 := stored.([]any)
		if ok && ok2 {
			return m.items(now, was, kept, s)
		}
	}
	return now
}

func (m merger) fields(now, before, stored map[string]any, s *structuralschema.Structural) map[string]any {
	out := make(map[string]any, len(now))
	for k, v := range stored {
		if _, shown := before[k]; !shown {
			out[k] = v
		}
	}
	for k, v := range now {
		if was, ok := before[k]; ok && stored[k] != nil {
			v = m.changed(v, was, stored[k], fieldOf(s, k))
		}
		out[k] = v
	}
	return out
}

func (m merger) items(now, before, stored []any, s *structuralschema.Structural) []any {
	var items *structuralschema.Structural
	var keys []string
	if s != nil {
		items = s.Items
		if t := s.XListType; t != nil && *t == "map" {
			keys = s.XListMapKeys
		}
	}
	if len(keys) == 0 && (!m.ordered || len(before) != len(stored)) {
		return now
	}
	was := placesOf(before, keys)
	kept := was // what is shown of stored[i] is before[i]
	if len(keys) > 0 {
		kept = placesOf(stored, keys)
	}
	out := make([]any, len(now))
	for j, x := range now {
		name := nameOf(x, keys)
		out[j] = x
		if len(was[name]) > 0 && len(kept[name]) > 0 {
			out[j] = m.changed(x, before[was[name][0]], stored[kept[name][0]], items)
			// One that is there twice is shown by another one the next time.
			was[name] = was[name][1:]
			if len(keys) > 0 {
				kept[name] = kept[name][1:]
			}
		}
	}
	return out
}

// placesOf is where items are in a list, by their names.
func placesOf(list []any, keys []string) map[string][]int {
	places := make(map[string][]int, len(list))
	for i, x := range list {
		name := nameOf(x, keys)
		places[name] = append(places[name], i)
	}
	return places
}

// nameOf is what an item of a list is known by: the values of its keys, or all of it.
func nameOf(item any, keys []string) string {
	if fields, ok := item.(map[string]any); ok && len(keys) > 0 {
		values := make([]any, len(keys))
		for i, k := range keys {
			values[i] = fields[k]
		}
		item = values
	}
	text, _ := json.Marshal(item) // of a tree it cannot fail
	return string(text)
}

// fieldOf is the schema of a field or an entry; nil if there is none.
func fieldOf(s *structuralschema.Structural, name string) *structuralschema.Structural {
	if s == nil {
		return nil
	}
	if p, ok := s.Properties[name]; ok {
		return &p
	}
	if s.AdditionalProperties != nil {
		return s.AdditionalProperties.Structural
	}
	return nil
}
