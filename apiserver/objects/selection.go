package objects

import (
	"strings"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/apiserver/wire/request"
	"github.com/quorate/quorate/apiserver/wire/status"
	"github.com/quorate/quorate/raftstore/mvcc"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	operator "k8s.io/apimachinery/pkg/selection"
)

// Selection is which objects of a table a list or a watch is about. It is for
// one goroutine: matching reuses one view of a version's attributes.
type Selection struct {
	custom bool
	prefix string // keys of the namespace, or all
	key    string // the one key, if only one can match
	labels labels.Selector
	fields fields.Selector
	view   attributeView
	// shown are versions that a webhook has converted, in whose place they are looked
	// at.
	shown map[*mvcc.Version]*mvcc.Version
}

// Select reads the path and the selectors of a request. Errors are 400.
func (r *reader) Select() (*Selection, error) {
	s := &Selection{}
	namespace := r.Info.ObjectNamespace
	if r.Options.LabelSelector != "" {
		parsed, err := labels.Parse(r.Options.LabelSelector)
		if err != nil {
			return nil, status.BadRequest("%v", err)
		}
		if !parsed.Empty() {
			s.labels = parsed
		}
	}
	name := r.Info.Name
	if r.Options.FieldSelector != "" {
		parsed, err := fields.ParseSelector(r.Options.FieldSelector)
		if err != nil {
			return nil, status.BadRequest("%v", err)
		}
		if err := r.checkFields(parsed); err != nil {
			return nil, err
		}
		if parsed, err = parsed.Transform(r.storedField); err != nil {
			return nil, status.BadRequest("%v", err)
		}
		if exact, ok := parsed.RequiresExactMatch(request.FieldName); ok {
			if name != "" && name != exact {
				return nil, status.BadRequest("fieldSelector metadata.name doesn't match requested name")
			}
			name = exact
		}
		if exact, ok := parsed.RequiresExactMatch(request.FieldNamespace); ok && namespace == "" && r.Resource.Namespaced {
			namespace = exact
		}
		if !parsed.Empty() {
			s.fields = parsed
		}
	}
	if r.Resource.Namespaced && namespace != "" {
		s.prefix = namespace + "/"
	}
	if name != "" && (namespace != "" || !r.Resource.Namespaced) {
		s.key = r.Resource.Key(namespace, name)
	}
	s.view.namespaced, s.custom = r.Resource.Namespaced, r.Resource.Custom
	if r.Resource.Custom {
		s.view.res = r.Resource
	}
	return s, nil
}

// checkFields refuses fields that the resource does not index.
func (o *reader) checkFields(sel fields.Selector) error {
requirements:
	for _, r := range sel.Requirements() {
		if r.Field == request.FieldName || r.Field == request.FieldNamespace && o.namespaceSelects() {
			continue
		}
		for i := range o.Resource.SelectableFields {
			if o.Resource.SelectableFields[i].Named(r.Field) {
				continue requirements
			}
		}
		if len(o.Resource.SelectableFields) == 0 && !o.Resource.Custom {
			// The words of upstream's default for kinds without fields of their own.
			return status.BadRequest("%q is not a known field selector: only %q, %q", r.Field, request.FieldName, request.FieldNamespace)
		}
		return status.BadRequest("field label not supported: %s", r.Field)
	}
	return nil
}

// namespaceSelects reports whether selectors may name the namespace: of built-in kinds also where there is none, unless
// upstream lists what they may name.
func (r *reader) namespaceSelects() bool {
	return r.Resource.Namespaced || !r.Resource.Custom && len(r.Resource.SelectableFields) == 0
}

// storedField renames a field of a selector to what its value is stored under:
// versions of a resource may name the same field differently.
func (r *reader) storedField(field, value string) (string, string, error) {
	if stored, ok := r.Resource.FieldAttribute(field); ok {
		field = stored
	}
	return field, value, nil
}

// Interest is what a watch need be woken for: as much of the selection as the
// store can look up.
func (s *Selection) Interest() mvcc.Interest {
	only := mvcc.Interest{Key: s.key, Prefix: s.prefix}
	if s.fields == nil || s.custom {
		// What custom resources are selected by changes with their definition: what is
		// stored beside an object says what it was when that was written.
		return only
	}
	for _, r := range s.fields.Requirements() {
		exact := r.Operator == operator.Equals || r.Operator == operator.DoubleEquals
		// Names and namespaces are matched by the key, not by what is stored as a field.
		if exact && r.Field != request.FieldName && r.Field != request.FieldNamespace {
			only.Field = mvcc.Pair{Name: r.Field, Value: r.Value}
			break
		}
	}
	return only
}

// all reports whether every object of the prefix is meant.
func (s *Selection) all() bool { return s.key == "" && s.labels == nil && s.fields == nil }

// Covers reports whether a key may be meant at all.
func (s *Selection) Covers(key string) bool {
	if s.key != "" {
		return key == s.key
	}
	return strings.HasPrefix(key, s.prefix)
}

// matches reports whether a version that is covered is meant.
func (s *Selection) matches(v *mvcc.Version) bool {
	if !s.HasSelectors() {
		return true
	}
	s.view.version = s.Converted(v)
	if s.labels != nil && !s.labels.Matches((*labelView)(&s.view)) {
		return false
	}
	return s.fields == nil || s.fields.Matches((*fieldView)(&s.view))
}

// HasSelectors reports whether labels or fields decide which objects are meant.
func (s *Selection) HasSelectors() bool { return s.labels != nil || s.fields != nil }

// SetConverted says what is shown of some versions: what a webhook has made of them. It
// replaces what was said before.
func (s *Selection) SetConverted(versions, shown []*mvcc.Version) {
	s.shown = make(map[*mvcc.Version]*mvcc.Version, len(versions))
	for i, v := range versions {
		s.shown[v] = shown[i]
	}
}

// Converted is what is shown of a version.
func (s *Selection) Converted(v *mvcc.Version) *mvcc.Version {
	if x := s.shown[v]; x != nil {
		return x
	}
	return v
}

// attributeView shows a version's attributes to apimachinery's selectors without
// a map.
type attributeView struct {
	version    *mvcc.Version
	namespaced bool
	// res is set for custom resources, of which fields are the fields that were worked
	// out of a version last.
	res    *kinds.Resource
	of     *mvcc.Version
	fields map[string]string
}

type labelView attributeView

// Has implements labels.Labels.
func (l *labelView) Has(name string) bool { return l.version.Labels.Has(name) }

// Get implements labels.Labels.
func (l *labelView) Get(name string) string {
	v, _ := l.version.Labels.Get(name)
	return v
}

// Lookup implements labels.Labels.
func (l *labelView) Lookup(name string) (string, bool) { return l.version.Labels.Get(name) }

type fieldView attributeView

// Has implements fields.Fields.
func (f *fieldView) Has(name string) bool {
	if name == request.FieldName || name == request.FieldNamespace || f.version.Fields.Has(name) {
		return true
	}
	_, ok := f.computedFields()[name]
	return ok
}

// Get implements fields.Fields.
func (f *fieldView) Get(name string) string {
	switch name {
	case request.FieldName, request.FieldNamespace:
		namespace, object, ok := strings.Cut(f.version.Key, "/")
		if !ok || !f.namespaced {
			namespace, object = "", f.version.Key
		}
		if name == request.FieldName {
			return object
		}
		return namespace
	}
	if v, ok := f.version.Fields.Get(name); ok && (f.res == nil || codec.FormOf(f.version) == f.res.StorageForm) {
		return v
	}
	return f.computedFields()[name]
}

// computedFields are the fields of a custom resource that was written under another
// definition: in another version, by another schema, or when other fields could be
// selected by.
func (f *fieldView) computedFields() map[string]string {
	if f.res == nil || f.of == f.version {
		return f.fields
	}
	f.of, f.fields = f.version, nil
	obj, err := codec.DecodeStored(f.res, f.version)
	if err != nil {
		// It is not selected; what reads it says why.
		return nil
	}
	_, fields := f.res.Attributes(obj)
	f.fields = make(map[string]string, len(fields))
	for _, a := range fields {
		f.fields[a.Name] = a.Value
	}
	return f.fields
}

// Event says how a covered version looks through the selectors: an object that
// begins to match is ADDED, one that ceases to match is DELETED with its
// previous content. An empty event means that it never matched.
func (s *Selection) Event(v *mvcc.Version) (event string, content *mvcc.Version, err error) {
	if s.labels == nil && s.fields == nil {
		switch {
		case v.Deleted:
			return "DELETED", v, nil
		case v.Created():
			return "ADDED", v, nil
		}
		return "MODIFIED", v, nil
	}
	var before *mvcc.Version
	if !v.Created() {
		if before = v.Prev(); before == nil {
			// Only the floor cuts the chain: what the object was is forgotten.
			return "", nil, mvcc.ErrCompacted
		}
	}
	was := before != nil && !before.Deleted && s.matches(before)
	is := !v.Deleted && s.matches(v)
	switch {
	case is && was:
		return "MODIFIED", v, nil
	case is:
		return "ADDED", v, nil
	case was && v.Deleted:
		return "DELETED", v, nil
	case was:
		return "DELETED", before, nil
	}
	return "", nil, nil
}
