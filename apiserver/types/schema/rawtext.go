package schema

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	kjson "sigs.k8s.io/json"
)

// rawModel is the type of fields that belong to others, as the data of a ControllerRevision. Upstream keeps the bytes
// that were sent; a tree keeps neither the order of fields nor the texts of numbers, so the texts are kept beside it.
const rawModel = "io.k8s.apimachinery.pkg.runtime.RawExtension"

// RawText is what was sent of one field that is kept as it is.
type RawText struct {
	path  string // of the field, with the indexes of lists
	value string // what the text means, however it is written
	text  json.RawMessage
}

// HasRaw reports whether objects may have fields that are kept as they are sent.
func (m *Model) HasRaw() bool { return m.root.raw }

// RawTexts returns those fields of a document in JSON. Of one that is not an object of the model it returns what it
// finds.
func (m *Model) RawTexts(doc []byte) []RawText {
	if !m.root.raw {
		return nil
	}
	return m.root.rawTexts(nil, "", doc)
}

func (n *node) rawTexts(to []RawText, path string, doc json.RawMessage) []RawText {
	switch {
	case n.model == rawModel:
		var v any
		if kjson.UnmarshalCaseSensitivePreserveInts(doc, &v) == nil && v != nil {
			to = append(to, RawText{path, meaning(v), doc})
		}
	case n.shape == shapeStruct:
		var fields map[string]json.RawMessage
		if json.Unmarshal(doc, &fields) != nil {
			return to
		}
		for _, f := range n.sorted {
			if text, ok := fields[f.name]; ok && f.node.raw {
				to = f.node.rawTexts(to, path+"."+f.name, text)
			}
		}
	case n.shape == shapeMap:
		var entries map[string]json.RawMessage
		if json.Unmarshal(doc, &entries) != nil {
			return to
		}
		for _, key := range slices.Sorted(maps.Keys(entries)) {
			to = n.elem.rawTexts(to, path+"."+key, entries[key])
		}
	case n.shape == shapeList:
		var items []json.RawMessage
		if json.Unmarshal(doc, &items) != nil {
			return to
		}
		for i, text := range items {
			to = n.elem.rawTexts(to, path+"["+strconv.Itoa(i)+"]", text)
		}
	}
	return to
}

// WithinRaw reports whether a path, with the indexes of lists, leads into a field that is kept as it is sent: upstream does
// not look into those.
func (m *Model) WithinRaw(path string) bool {
	n := m.root
	for n != nil && n.raw && n.model != rawModel {
		end := strings.IndexAny(path, ".[")
		if end < 0 {
			return false
		}
		if n = n.child(path[:end]); n == nil {
			return false
		}
		path = path[end:]
		for n.shape == shapeList && path != "" && path[0] == '[' {
			_, path, _ = strings.Cut(path, "]")
			n = n.elem
		}
		path = strings.TrimPrefix(path, ".")
	}
	return n != nil && n.model == rawModel
}

// meaning is a value as one text. Maps have sorted keys in it.
func meaning(v any) string {
	b, _ := json.Marshal(v) // of a tree it cannot fail, and an empty one is like no other
	return string(b)
}

// WithRaw returns an object with the texts of its fields that are kept as they are sent, as json.RawMessage, for an
// encoder: of each the first text that means the same, and of those one of the same place before others. Without any, it
// is obj; obj is not changed.
func (m *Model) WithRaw(obj map[string]any, texts []RawText) map[string]any {
	if !m.root.raw || len(texts) == 0 {
		return obj
	}
	if out, ok := m.root.withRaw("", obj, texts).(map[string]any); ok {
		return out
	}
	return obj
}

// withRaw is v, or a copy of it with texts; what has none is shared.
func (n *node) withRaw(path string, v any, texts []RawText) any {
	if n.model == rawModel {
		return textOf(path, v, texts)
	}
	switch v := v.(type) {
	case map[string]any:
		out := maps.Clone(v)
		for key, x := range v {
			if child := n.child(key); child != nil && child.raw {
				out[key] = child.withRaw(path+"."+key, x, texts)
			}
		}
		return out
	case []any:
		if n.shape != shapeList || !n.elem.raw {
			return v
		}
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = n.elem.withRaw(path+"["+strconv.Itoa(i)+"]", x, texts)
		}
		return out
	}
	return v
}

// child is the node of a field or an entry, nil if there is none.
func (n *node) child(key string) *node {
	switch n.shape {
	case shapeStruct:
		if f := n.fields[key]; f != nil {
			return f.node
		}
	case shapeMap:
		return n.elem
	}
	return nil
}

func textOf(path string, v any, texts []RawText) any {
	if v == nil {
		return nil
	}
	means, found := meaning(v), -1
	for i := range texts {
		if texts[i].value != means {
			continue
		}
		if texts[i].path == path {
			return texts[i].text
		}
		if found < 0 {
			found = i
		}
	}
	if found < 0 {
		return v
	}
	return texts[found].text
}
