package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// What encoding/json writes of a Go struct, and what it leaves out, is not in
// OpenAPI: whether a field is a pointer, and whether its tag says omitempty.
// written.txt has a line for each model with such fields: its name, then the fields
// that are always written, null standing for those that are nil then, then those that
// are left out when they are zero.
const (
	always  = "+" // of the zero value of its type
	null    = "?" // null
	omitted = "-" // left out when zero or empty
)

// keptEmpty are fields of which an empty list says something that none does not.
var keptEmpty = map[string]bool{"io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta.managedFields": true}

// writtenFields writes DIR/written.txt for the types of a scheme that have models.
func writtenFields(out string, s *runtime.Scheme, models map[string]bool) error {
	w := walker{models: models, lines: map[string]string{}, seen: map[reflect.Type]bool{}}
	for _, t := range s.AllKnownTypes() {
		w.walk(t)
	}
	names := make([]string, 0, len(w.lines))
	for name := range w.lines {
		names = append(names, name)
	}
	sort.Strings(names)
	var b strings.Builder
	for _, name := range names {
		fmt.Fprintf(&b, "%s%s\n", name, w.lines[name])
	}
	return os.WriteFile(filepath.Join(out, "written.txt"), []byte(b.String()), 0o644)
}

type walker struct {
	models map[string]bool
	lines  map[string]string
	seen   map[reflect.Type]bool
}

// modelName is k8s.io/api/core/v1.Pod as io.k8s.api.core.v1.Pod.
func modelName(t reflect.Type) string {
	host, rest, _ := strings.Cut(t.PkgPath(), "/")
	parts := strings.Split(host, ".")
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return strings.Join(parts, ".") + "." + strings.ReplaceAll(rest, "/", ".") + "." + t.Name()
}

func (w *walker) walk(t reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		w.walk(t.Elem())
		return
	case reflect.Struct:
	default:
		return
	}
	if w.seen[t] {
		return
	}
	w.seen[t] = true
	name, fields := modelName(t), []string{}
	w.fields(t, name, &fields)
	if w.models[name] && len(fields) > 0 {
		sort.Strings(fields)
		w.lines[name] = " " + strings.Join(fields, " ")
	}
}

// fields collects those of a struct and of the structs that are inlined in it.
func (w *walker) fields(t reflect.Type, model string, out *[]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, tagged := f.Tag.Lookup("json")
		name, options, _ := strings.Cut(tag, ",")
		switch {
		case !tagged || name == "-" || !f.IsExported():
			continue
		case name == "" && f.Anonymous:
			if f.Type.Name() != "TypeMeta" { // kind and apiVersion are the codec's
				w.fields(f.Type, model, out)
			}
			continue
		}
		w.walk(f.Type)
		if how := written(f.Type, options); how != "" && !keptEmpty[model+"."+name] {
			*out = append(*out, how+name)
		}
	}
}

// written says what becomes of a field without a value.
func written(t reflect.Type, options string) string {
	empty, zero := has(options, "omitempty"), has(options, "omitzero")
	switch t.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !empty && !zero {
			return null
		}
		return ""
	case reflect.Struct:
		if zero {
			return ""
		}
		return always // omitempty does nothing here
	case reflect.Slice, reflect.Map:
		if empty {
			return omitted
		}
		return null
	}
	if empty || zero {
		return omitted
	}
	return always
}

func has(options, name string) bool {
	for _, o := range strings.Split(options, ",") {
		if o == name {
			return true
		}
	}
	return false
}
