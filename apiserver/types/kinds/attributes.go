package kinds

import (
	"sort"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/proto"
)

// derived is what a resource works out once, on first use.
type derived struct {
	table atomic.Pointer[string]

	attributesOnce sync.Once
	attributes     []attribute
}

// attribute says where the value of a stored field comes from.
type attribute struct {
	name     string
	from     [][]string // the first path that is not empty counts
	fallback string
}

// Attributes returns the labels of an object and the values of its selectable
// fields as they are stored beside it, each sorted by name. Its name and namespace
// are not among them: selectors find these in its key. obj
// is in the form of r's own version. The results are fresh.
func (r *Resource) Attributes(obj map[string]any) (labels, fields []*proto.Attribute) {
	metadata, _ := obj["metadata"].(map[string]any)
	if m, _ := metadata["labels"].(map[string]any); len(m) > 0 {
		block := make([]proto.Attribute, len(m))
		labels = make([]*proto.Attribute, 0, len(m))
		for name, v := range m {
			a := &block[len(labels)]
			a.Name, a.Value = name, tree.Scalar(v)
			labels = append(labels, a)
		}
		if len(labels) > 1 {
			sort.Slice(labels, func(i, j int) bool { return labels[i].Name < labels[j].Name })
		}
	}
	sources := r.attributes()
	block := make([]proto.Attribute, len(sources))
	fields = make([]*proto.Attribute, len(sources))
	for i := range sources {
		s := &sources[i]
		block[i].Name, block[i].Value = s.name, s.value(obj)
		fields[i] = &block[i]
	}
	return labels, fields
}

// attributes are the resource's selectable fields, sorted by stored name.
func (r *Resource) attributes() []attribute {
	r.derived.attributesOnce.Do(func() {
		var all []attribute
		if r.StorageForm != "" {
			all = append(all, attribute{name: FormAttribute, fallback: r.StorageForm})
		}
		for _, f := range r.SelectableFields {
			a := attribute{name: f.StoredName(), fallback: f.Default}
			from := f.From
			if from == "" {
				from = f.Path
			}
			for _, path := range strings.Split(from, "|") {
				a.from = append(a.from, strings.Split(strings.TrimPrefix(path, "."), "."))
			}
			all = append(all, a)
		}
		sort.Slice(all, func(i, j int) bool { return all[i].name < all[j].name })
		r.derived.attributes = all
	})
	return r.derived.attributes
}

// FormAttribute is the name under which StorageForm is stored. No field is called so.
const FormAttribute = ".form"

// StoredName is the name under which the field's value is stored: what a
// selector that names Path has to look for.
func (f SelectableField) StoredName() string {
	if f.Attribute != "" {
		return f.Attribute
	}
	return f.Path
}

// FieldAttribute returns the stored name of a field that selectors may name,
// metadata.name and metadata.namespace included. ok is false for fields that
// the resource cannot be selected by.
func (r *Resource) FieldAttribute(path string) (name string, ok bool) {
	switch path {
	case "metadata.name":
		return path, true
	case "metadata.namespace":
		return path, r.Namespaced
	}
	for i := range r.SelectableFields {
		if f := &r.SelectableFields[i]; f.Named(path) {
			return f.StoredName(), true
		}
	}
	return "", false
}

func (a *attribute) value(obj map[string]any) string {
	for _, path := range a.from {
		if v := tree.Scalar(tree.Field(obj, path...)); v != "" {
			return v
		}
	}
	return a.fallback
}
