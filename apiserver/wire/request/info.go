package request

import (
	"net/http"
	"strings"

	namecontent "k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Info is what a path and a method ask for, in the words of RBAC.
type Info struct {
	// IsResource is false for everything outside /api/VERSION/... and
	// /apis/GROUP/VERSION/...; only Path and Verb (the method in lower case)
	// are set then.
	IsResource bool
	Path       string
	// Verb is get, list, watch, create, update, patch, delete or
	// deletecollection.
	Verb        string
	Group       string
	Version     string
	Resource    string // plural, as in the path
	Subresource string
	Namespace   string
	Name        string
	// Selected is the name to which the field selector of a list or a watch restricts
	// it; empty if it does not. Permissions are asked for with it. It is read once it is
	// known who asks.
	Selected string
	// FieldSelector are the requirements of the field selector of a list, a watch or a
	// deletion of a collection. It is read with Selected.
	FieldSelector fields.Requirements
	// legacyWatch marks /api/v1/watch/... paths.
	legacyWatch bool
	// trailing holds segments after the subresource (proxy paths).
	trailing string
	// OwnNamespace marks the path of a namespace itself, whose Namespace is its
	// own name.
	OwnNamespace bool
	// ObjectNamespace is the namespace that keys carry: Namespace, but empty for a
	// Namespace itself. It is set once the resource is known.
	ObjectNamespace string
}

// Parse reads a request's method, path and the few query parameters that
// decide the verb. It allocates nothing for ordinary paths. It returns false for a
// path that no resource can have (an empty segment, ".."). It fills an empty Info in
// place: it is large, and copies of it on the stack of each request make that grow.
func (i *Info) Parse(r *http.Request) bool {
	i.Path = r.URL.Path
	rest, isResource := i.groupVersion(i.Path)
	if !isResource {
		i.Verb = strings.ToLower(r.Method)
		return true
	}
	i.IsResource = true
	if !i.segments(rest) {
		return false
	}
	i.Verb = verbOfRequest(r, i)
	return true
}

// FieldName and FieldNamespace can be selected by in every resource.
const (
	FieldName      = "metadata.name"
	FieldNamespace = "metadata.namespace"
)

// ReadSelector reads the field selector of a query, as far as permissions follow from it. The
// selector counts as it stands here: a second one that says something else is
// refused with the query. Paths below /watch/ name their object themselves.
func (i *Info) ReadSelector(query string) {
	i.Selected, i.FieldSelector = "", nil
	if i.Name != "" || i.legacyWatch || query == "" {
		return
	}
	collection := i.Verb == "deletecollection"
	if i.Verb != "list" && i.Verb != "watch" && !collection {
		return
	}
	value, ok := Parameter(query, "fieldSelector")
	if !ok {
		return
	}
	selector, err := fields.ParseSelector(value)
	if err != nil {
		return
	}
	i.FieldSelector = selector.Requirements()
	if name, ok := selector.RequiresExactMatch(FieldName); ok && !collection && len(namecontent.IsPathSegmentName(name)) == 0 {
		i.Selected = name
	}
}

// groupVersion cuts /api/V/ or /apis/G/V/ off. A group version without
// anything behind it is discovery, not a resource.
func (i *Info) groupVersion(path string) (rest string, ok bool) {
	switch {
	case strings.HasPrefix(path, "/api/"):
		i.Version, rest, _ = strings.Cut(path[len("/api/"):], "/")
	case strings.HasPrefix(path, "/apis/"):
		var tail string
		if i.Group, tail, _ = strings.Cut(path[len("/apis/"):], "/"); i.Group != "" {
			i.Version, rest, _ = strings.Cut(tail, "/")
		}
	}
	if rest == "" || i.Version == "" {
		i.Group, i.Version = "", ""
		return "", false
	}
	return rest, true
}

// segments reads what follows the group version:
//
//	[watch/] RESOURCE[/NAME[/SUBRESOURCE[/...]]]
//	[watch/] namespaces/NS/RESOURCE[/NAME[/SUBRESOURCE[/...]]]
//
// "namespaces/NS/status" and "namespaces/NS/finalize" are subresources of a
// namespace; no resource has these names.
func (i *Info) segments(rest string) bool {
	if strings.HasPrefix(rest, "watch/") {
		i.legacyWatch = true
		rest = rest[len("watch/"):]
	}
	first, tail, _ := strings.Cut(rest, "/")
	if first != "namespaces" || tail == "" {
		return i.object(first, tail)
	}
	ns, inner, _ := strings.Cut(tail, "/")
	if !validSegment(ns) {
		return false
	}
	i.Namespace = ns
	resource, tail, _ := strings.Cut(inner, "/")
	if inner == "" || namespaceSubresource(resource) {
		// Permissions on a namespace are those of its own namespace.
		i.Resource, i.Name, i.OwnNamespace = first, ns, true
		i.Subresource, i.trailing = resource, tail
		return true
	}
	return i.object(resource, tail)
}

func namespaceSubresource(s string) bool { return s == "status" || s == "finalize" }

// object reads RESOURCE, and NAME[/SUBRESOURCE[/...]] from tail. One trailing
// slash is forgiven.
func (i *Info) object(resource, tail string) bool {
	if !validSegment(resource) {
		return false
	}
	i.Resource = resource
	if tail == "" {
		return true
	}
	name, sub, _ := strings.Cut(tail, "/")
	if !validSegment(name) {
		return false
	}
	i.Name = name
	if sub == "" {
		return true
	}
	i.Subresource, i.trailing, _ = strings.Cut(sub, "/")
	return validSegment(i.Subresource)
}

// Trailing is what the path has behind the subresource.
func (i *Info) Trailing() string { return i.trailing }

func validSegment(s string) bool { return s != "" && s != "." && s != ".." }

// GVR is the resource as the path names it.
func (i *Info) GVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: i.Group, Version: i.Version, Resource: i.Resource}
}

// ObjectPath is the path by which a client would name the object.
func (i *Info) ObjectPath() string {
	path := "/apis/" + i.Group + "/" + i.Version
	if i.Group == "" {
		path = "/api/" + i.Version
	}
	if i.Namespace != "" {
		path += "/namespaces/" + i.Namespace
	}
	return path + "/" + i.Resource + "/" + i.Name
}
