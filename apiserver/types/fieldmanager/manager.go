package fieldmanager

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// Version is one version of a resource.
type Version struct {
	GVK   apischema.GroupVersionKind
	Model string // of package schema, or the name of Schema
	// Schema is that of a kind that package schema does not have; it may refer to the
	// models of that package.
	Schema *spec.Schema
}

// Config describes what a Manager manages.
type Config struct {
	// Versions are all served versions of the resource; the first is that of the
	// requests.
	Versions []Version
	// Subresource is "" or the name of one whose writes are tracked: status, scale.
	Subresource string
	// Reset are the fields, dotted paths, that writes through here cannot set, and so
	// nobody comes to own by them: status on the resource, spec on its status.
	Reset []string
	// Convert leads between versions. It may be nil if there is one.
	Convert Convert
	// Zero returns an object of which nothing is set; see schema.Model.Zero.
	Zero func() map[string]any
	// Default fills in defaults, in place. A caller that tracks an object also completes it, and is told
	// of an error then.
	Default func(obj map[string]any) error
}

// Manager keeps metadata.managedFields of the objects of one resource, as written
// through one path. It is safe for concurrent use.
type Manager struct {
	fields *managedfields.FieldManager // nil: made for each use, by library
	made   func(versions) (*managedfields.FieldManager, error)
	// convert is that of With.
	convert Convert
	types   types
	empty   creater
	of      apischema.GroupVersionKind

	// For quick.
	schema      *smdschema.Schema
	root        smdschema.TypeRef
	apiVersion  string
	subresource string
	reset       map[string]bool // fields of the object
	resetMeta   map[string]bool // fields of its metadata
	slow        bool            // others are reset, too: it is always the library's
	zero        map[string]any
}

// New returns the Manager of a resource. The first one compiles the schemas of all
// models, which takes some ten milliseconds.
func New(cfg Config) (*Manager, error) {
	t, err := typesOf(cfg.Versions)
	if err != nil {
		return nil, err
	}
	of := cfg.Versions[0].GVK
	reset := map[fieldpath.APIVersion]fieldpath.Filter{}
	if len(cfg.Reset) > 0 {
		set := fieldpath.NewSet()
		for _, name := range cfg.Reset {
			set.Insert(pathOf(name))
		}
		for _, v := range cfg.Versions {
			reset[fieldpath.APIVersion(v.GVK.GroupVersion().String())] = fieldpath.NewExcludeSetFilter(set)
		}
	}
	convert := cfg.Convert
	if convert == nil {
		convert = func(_ []map[string]any, _, to apischema.GroupVersion) ([]map[string]any, error) {
			return nil, runtime.NewNotRegisteredErrForKind("this server", to.WithKind(of.Kind))
		}
	}
	// The form for custom resources goes through one version, not through one of each
	// group: events are in two groups.
	empty := creater{cfg.Zero, cfg.Versions[0].Schema != nil}
	library := func(v versions) (*managedfields.FieldManager, error) {
		return managedfields.NewDefaultCRDFieldManager(t, v, defaulter(cfg.Default), empty, of, of.GroupVersion(), cfg.Subresource, reset)
	}
	m, err := library(versions{convert: convert})
	if err != nil {
		return nil, fmt.Errorf("field manager of %s: %w", of, err)
	}
	made := &Manager{
		fields: m, made: library, types: t, empty: empty, of: of, schema: t[of].Schema, root: t[of].TypeRef,
		apiVersion: of.GroupVersion().String(), subresource: cfg.Subresource, reset: map[string]bool{}, resetMeta: map[string]bool{},
	}
	for _, name := range cfg.Reset {
		first, rest, nested := strings.Cut(name, ".")
		switch {
		case !nested:
			made.reset[first] = true
		case first == "metadata" && !strings.Contains(rest, "."):
			made.resetMeta[rest] = true
		default:
			made.slow = true
		}
	}
	made.zero = made.Nothing()
	if made.zero["metadata"] == nil {
		made.zero["metadata"] = map[string]any{} // nobody owns the metadata as a whole
	}
	return made, nil
}

// pathOf is a dotted path as the library has it.
func pathOf(dotted string) fieldpath.Path {
	var parts []any
	for name := range strings.SplitSeq(dotted, ".") {
		parts = append(parts, name)
	}
	return fieldpath.MakePathOrDie(parts...)
}

// With is the manager with other conversions: those of one operation, where each costs a call of
// a webhook and what has been converted is to be had again. It converts the object that a write
// makes together with the one before, in one call.
func (m *Manager) With(convert Convert) *Manager {
	own := *m
	own.fields, own.convert = nil, convert
	return &own
}

// merged is what the library's Apply will make of an object before it looks at who owns what, and
// convert beside that object; nil if that does not matter, or is for the library to refuse.
func (m *Manager) merged(live, patch map[string]any) map[string]any {
	if m.fields != nil {
		return nil
	}
	a, err := m.types.ObjectToTyped(&unstructured.Unstructured{Object: live}, typed.AllowDuplicates)
	if err != nil {
		return nil
	}
	b, err := m.types.ObjectToTyped(&unstructured.Unstructured{Object: patch})
	if err != nil {
		return nil
	}
	c, err := a.Merge(b)
	if err != nil {
		return nil
	}
	out, _ := c.AsValue().Unstructured().(map[string]any)
	return out
}

// library is upstream's manager. beside is what it will convert besides what it begins with.
func (m *Manager) library(beside map[string]any) (*managedfields.FieldManager, error) {
	if m.fields != nil {
		return m.fields, nil
	}
	return m.made(versions{m.convert, beside})
}

// Nothing is the live object where there is none.
func (m *Manager) Nothing() map[string]any {
	u, _ := m.empty.New(m.of) // never fails
	return u.(*unstructured.Unstructured).Object
}

// Update tracks a write that is no apply: live is the object before (without a uid:
// there was none), obj the object after, complete with defaults. It returns obj with
// new managedFields; obj's metadata is changed, live is not.
func (m *Manager) Update(live, obj map[string]any, manager string) (map[string]any, error) {
	if !m.slow && m.quick(live, obj, manager) {
		return obj, nil
	}
	// The library takes the managedFields out of obj before it converts it, so this is what it asks for.
	fields, err := m.library(obj)
	if err != nil {
		return nil, err
	}
	live, obj, times := ageAncient(live, obj)
	out, err := fields.Update(&unstructured.Unstructured{Object: live}, &unstructured.Unstructured{Object: obj}, manager)
	if err != nil {
		return nil, fmt.Errorf("track fields: %w", err)
	}
	obj = out.(*unstructured.Unstructured).Object
	restoreAncient(obj, times)
	return obj, nil
}

// Apply merges a configuration into the live object (without a uid: there is none)
// and tracks it. The errors are API errors: 409 with the conflicts, 400 for a
// configuration that is none. live and patch are not changed; the result shares
// parts with live, and has its managedFields where nothing changes.
func (m *Manager) Apply(live, patch map[string]any, manager string, force bool) (map[string]any, error) {
	if !m.slow {
		if out, ok := m.quickApply(live, patch, manager, force); ok {
			return out, nil
		}
	}
	fields, err := m.library(m.merged(live, patch))
	if err != nil {
		return nil, err
	}
	out, err := fields.Apply(&unstructured.Unstructured{Object: live}, &unstructured.Unstructured{Object: runtime.DeepCopyJSON(patch)}, manager, force)
	if err != nil {
		return nil, err
	}
	return out.(*unstructured.Unstructured).Object, nil
}

// beforeFirstApply is the manager that the library makes for what objects without managers have when they are first applied to.
const beforeFirstApply = "before-first-apply"

// BeforeFirstApply returns live with a manager for the field at a dotted path, if it has none: that of what was there
// before anybody applied. The library does so for whole objects; one that shows a single field of another, as a Scale does,
// has no managers while nobody owns that field. live is not changed.
func (m *Manager) BeforeFirstApply(live map[string]any, dotted string) map[string]any {
	meta, _ := live["metadata"].(map[string]any)
	entries, _ := meta["managedFields"].([]any)
	var field path
	for name := range strings.SplitSeq(strings.TrimPrefix(dotted, "."), ".") {
		field = append(field, "f:"+name)
	}
	for _, e := range entries {
		entry, _ := e.(map[string]any)
		if fields, _ := entry["fieldsV1"].(map[string]any); covers(fields, field) {
			return live
		}
	}
	fields := map[string]any{}
	for _, element := range slices.Backward(field) {
		fields = map[string]any{element: fields}
	}
	entry := m.entry(beforeFirstApply, fields)
	entry["operation"] = string(metav1.ManagedFieldsOperationUpdate)
	live, meta = maps.Clone(live), maps.Clone(meta)
	meta["managedFields"] = append(slices.Clip(entries), entry)
	live["metadata"] = meta
	return live
}

// covers reports whether a set of fields, as stored, has a path, or anything below it.
func covers(fields map[string]any, p path) bool {
	for _, element := range p {
		below, there := fields[element].(map[string]any)
		if !there {
			return false
		}
		fields = below
	}
	return true
}

// defaulter is the runtime.ObjectDefaulter of one resource.
type defaulter func(obj map[string]any) error

func (d defaulter) Default(in runtime.Object) {
	if u, ok := in.(*unstructured.Unstructured); ok && d != nil {
		_ = d(u.Object) // see Config.Default
	}
}

// creater is the runtime.ObjectCreater of one resource.
type creater struct {
	zero   func() map[string]any
	custom bool // upstream's object has no metadata until it is given some
}

func (c creater) New(kind apischema.GroupVersionKind) (runtime.Object, error) {
	obj := map[string]any{}
	if c.zero != nil {
		obj = c.zero()
	}
	if !c.custom && obj["metadata"] == nil {
		obj["metadata"] = map[string]any{}
	}
	u := &unstructured.Unstructured{Object: obj}
	u.SetGroupVersionKind(kind)
	return u, nil
}
