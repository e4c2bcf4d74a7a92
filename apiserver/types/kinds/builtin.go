package kinds

import (
	"embed"
	"fmt"
	"sort"
	"strings"
	"sync"

	"github.com/quorate/quorate/apiserver/types/tree"
	"sigs.k8s.io/yaml"
)

// leftOutFile lists the kinds that are not resources, with reasons.
const leftOutFile = "left-out.yaml"

//go:embed data/*.yaml
var dataFiles embed.FS

// file is one of data/*.yaml: the resources of one group version. The loader
// is strict: a key that no field has is an error.
type file struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	// Package is the prefix of the names of the group version's models.
	Package   string      `json:"package"`
	Resources []*Resource `json:"resources"`
}

// AllVerbs are what every kind has that does not say otherwise, custom ones included. Not to be
// changed.
var AllVerbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

var available = sync.OnceValues(func() (*Registry, error) {
	entries, err := dataFiles.ReadDir("data")
	if err != nil {
		return nil, fmt.Errorf("kinds: embedded data: %w", err)
	}
	var all []*Resource
	for _, e := range entries {
		if e.Name() == leftOutFile {
			continue
		}
		b, err := dataFiles.ReadFile("data/" + e.Name())
		if err != nil {
			return nil, fmt.Errorf("kinds: embedded data: %w", err)
		}
		resources, err := parse(b)
		if err != nil {
			return nil, fmt.Errorf("kinds: %s: %w", e.Name(), err)
		}
		all = append(all, resources...)
	}
	return NewRegistry(all), nil
})

var builtin = sync.OnceValues(func() (*Registry, error) {
	all, err := Available()
	if err != nil {
		return nil, err
	}
	return Enablement(nil).Apply(all, nil)
})

// Available returns all built-in resources from the embedded files, those that are
// off by default (Enablement) included. The registry is made once and shared.
func Available() (*Registry, error) { return available() }

// Builtin returns the built-in resources that are on by default. The registry is
// made once and shared.
func Builtin() (*Registry, error) { return builtin() }

// parse reads one file and fills in what the files leave out because it
// follows from the rest.
func parse(b []byte) ([]*Resource, error) {
	var f file
	if err := yaml.UnmarshalStrict(b, &f); err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	for _, r := range f.Resources {
		complete(&f, r)
		if err := check(r); err != nil {
			return nil, fmt.Errorf("%s: %w", r.Plural, err)
		}
	}
	return f.Resources, nil
}

func complete(f *file, r *Resource) {
	r.Group, r.Version = f.Group, f.Version
	if r.Singular == "" {
		r.Singular = strings.ToLower(r.Kind)
	}
	if r.Model == "" {
		r.Model = f.Package + "." + r.Kind
	}
	if r.Verbs == nil {
		r.Verbs = AllVerbs
	}
	sort.Strings(r.Verbs)
	r.Deprecation = deprecationOf(r.GVK())
	for i := range r.Subresources {
		s := &r.Subresources[i]
		if s.Verbs == nil {
			s.Verbs = []string{"get", "patch", "update"}
		}
		if s.Name == "scale" {
			s.Group, s.Version, s.Kind = "autoscaling", "v1", "Scale"
			s.Model = "io.k8s.api.autoscaling.v1.Scale"
		}
	}
	for i := range r.Columns {
		completeColumn(&r.Columns[i])
	}
}

// completeColumn gives Name and Age their meaning and a built-in column the
// zero value of its type for absent fields, as a Go struct would have it.
func completeColumn(c *Column) {
	if c.JSONPath == "" && c.CEL == "" {
		priority := c.Priority
		switch c.Name {
		case "Name":
			*c = nameColumn
		case "Age":
			*c = ageColumn
		}
		c.Priority = priority
	}
	if c.Type == "" {
		c.Type = "string"
	}
	if f, ok := c.Default.(float64); ok {
		c.Default = int64(f) // JSON has only one kind of number, cells have two
	}
	if c.JSONPath != "" && c.Default == nil {
		switch c.Type {
		case "integer":
			c.Default = int64(0)
		case "boolean":
			c.Default = false
		default:
			c.Default = ""
		}
	}
}

// check refuses what the rest of the server could not work with.
func check(r *Resource) error {
	switch {
	case r.Kind == "" || r.Plural == "" || r.Version == "":
		return fmt.Errorf("kind, plural and version are required")
	case r.NameRule != tree.NameSubdomain && r.NameRule != tree.NameLabel && r.NameRule != tree.NameLabel1035 && r.NameRule != tree.NamePath:
		return fmt.Errorf("unknown name rule %q", r.NameRule)
	case r.Dependents != DependentsDeleted && r.Dependents != DependentsOrphaned && r.Dependents != DependentsUnsupported:
		return fmt.Errorf("unknown rule for dependents %q", r.Dependents)
	case r.StorageVersion == "" && r.Converts():
		return fmt.Errorf("moves and a conversion need a storageVersion")
	case r.Conversion != "" && conversions[r.Conversion].ToStored == nil:
		return fmt.Errorf("unknown conversion %q", r.Conversion)
	case r.Conversion != "" && len(r.Moves) > 0:
		return fmt.Errorf("moves and a conversion exclude each other: the code can say what moves say")
	case (r.Conversion == "") != (r.StorageModel == ""):
		return fmt.Errorf("a conversion has a storageModel, and nothing else has")
	}
	for i := range r.Moves {
		m := &r.Moves[i]
		if f, ok := m.Empty.(float64); ok { // as trees have whole numbers
			m.Empty = int64(f)
		}
		if (m.Empty == nil) != (m.EmptyIn == "") || m.EmptyIn != "" && m.EmptyIn != EmptyInThis && m.EmptyIn != EmptyInStored {
			return fmt.Errorf("move of %s: empty and emptyIn (%s or %s) belong together", m.From, EmptyInThis, EmptyInStored)
		}
	}
	for i := range r.Columns {
		c := &r.Columns[i]
		if (c.JSONPath == "") == (c.CEL == "") {
			return fmt.Errorf("column %s: exactly one of jsonPath and cel is required", c.Name)
		}
	}
	for _, s := range r.Subresources {
		if s.Name == "scale" && (s.SpecReplicas == "" || s.StatusReplicas == "") {
			return fmt.Errorf("subresource scale: the paths of replicas are required")
		}
	}
	return nil
}
