package kinds

import (
	_ "embed"
	"strings"
	"sync"

	"github.com/quorate/quorate/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Prefixes of the names of tables. No plural and no group has a slash in it, so a
// prefix makes a space of its own, as proto.ClusterTables is.
const (
	builtinTables = "builtin/"
	customTables  = "custom/"
)

//go:embed tables.txt
var plainTables string

// closed are the built-in tables without a prefix.
var closed = sync.OnceValue(func() map[string]bool {
	out := map[string]bool{}
	for line := range strings.Lines(plainTables) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			out[line] = true
		}
	}
	return out
})

// Table is the name of the store's table: "pods", "deployments.apps". All
// versions of a resource share one, and no two resources do:
//
//   - plural.group, if it is one of tables.txt, belongs to the built-in resource of
//     this name; a custom resource that is called the same has "custom/plural.group";
//   - any other plural.group belongs to the custom resource of this name; a built-in
//     one that comes later has "builtin/plural.group".
//
// So a name never changes its owner, whatever is built in one day, and no object that
// is stored has to be moved. It is the only place in which a name that a client has
// chosen becomes a part of a table's name.
func (r *Resource) Table() string {
	if t := r.derived.table.Load(); t != nil {
		return *t
	}
	group := r.Group
	if r.StorageVersion != "" {
		group = r.StorageGroup
	}
	name := schema.GroupResource{Group: group, Resource: r.Plural}.String()
	if closed()[name] == r.Custom {
		if r.Custom {
			name = customTables + name
		} else {
			name = builtinTables + name
		}
	}
	r.derived.table.Store(&name)
	return name
}

// BuiltinTable is the table of a built-in resource. For those of tables.txt it costs no allocation.
func BuiltinTable(gr schema.GroupResource) string {
	if name, ok := closedNames()[gr]; ok {
		return name
	}
	return builtinTables + gr.String()
}

// closedNames are the closed tables by their resources.
var closedNames = sync.OnceValue(func() map[schema.GroupResource]string {
	out := map[schema.GroupResource]string{}
	for name := range closed() {
		resource, group, _ := strings.Cut(name, ".")
		out[schema.GroupResource{Group: group, Resource: resource}] = name
	}
	return out
})

// OfTable is the resource that a table belongs to, in the words of metrics: a custom
// resource that is called like a built-in one is "custom/plural" there. ofAPI is false
// for tables of the cluster itself.
func OfTable(name string) (gr schema.GroupResource, ofAPI bool) {
	if rest, later := strings.CutPrefix(name, builtinTables); later {
		name = rest
	}
	gr.Resource, gr.Group, _ = strings.Cut(name, ".")
	return gr, !strings.HasPrefix(name, proto.ClusterTables)
}

// IsBuiltinVersion reports whether a group version is built in, be it on or off: no
// custom resource is served in it.
func IsBuiltinVersion(gv schema.GroupVersion) bool {
	all, err := Available()
	return err == nil && all.HasGroupVersion(gv)
}

// CodeName is the name under which tables of code know a built-in resource,
// plural.group. Custom resources have none: one that is called like a built-in
// resource has nothing else in common with it.
func (r *Resource) CodeName() string {
	if r.Custom {
		return ""
	}
	return r.GroupResource().String()
}
