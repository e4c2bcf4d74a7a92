package request

import (
	"net/http"
)

// verb is what the steps of a request know of a verb. What it does is its own file's.
type verb struct {
	// parameters are the bits of the query parameters that it understands.
	parameters uint32
	// reported is what metrics call it.
	reported string
	// reads: it changes nothing.
	reads bool
	// on says which paths have it besides those that verbOfRequest gives it for.
	on place
	// changes: what its body says becomes one with the object that is there, which is decoded too.
	changes bool
}

// place is what a path names.
type place int

const (
	anywhere place = iota
	collections
	objects
)

var verbs = map[string]verb{
	"get":              {parameters: getParameters, reported: "GET", reads: true},
	"list":             {parameters: listParameters, reported: "LIST", reads: true},
	"watch":            {parameters: watchParameters, reported: "WATCH", reads: true},
	"create":           {parameters: modifyParameters, reported: "POST", on: collections},
	"update":           {parameters: modifyParameters, reported: "PUT", on: objects, changes: true},
	"patch":            {parameters: patchParameters, reported: "PATCH", on: objects, changes: true},
	"delete":           {parameters: deleteParameters, reported: "DELETE"},
	"deletecollection": {parameters: listParameters | deleteParameters, reported: "DELETE"}, // upstream reports the method
}

// verbOf returns what is known of a verb. What is none, such as the method of a request for
// something else than objects, writes, and understands what an update does.
func verbOf(name string) verb {
	v, ok := verbs[name]
	if !ok {
		return verb{parameters: modifyParameters}
	}
	return v
}

// Mutates reports whether a verb may change something.
func Mutates(name string) bool { return !verbOf(name).reads }

// Reported is what metrics call a verb of resources. Empty: it is none.
func Reported(name string) string { return verbOf(name).reported }

// ChangesObject reports whether a verb makes something of its body and the object that is
// there.
func ChangesObject(name string) bool { return verbOf(name).changes }

// InPlace reports whether what a path names, a collection or an object, can have its verb: POST
// goes to a collection, PUT and PATCH go to an object.
func (i *Info) InPlace() bool {
	switch verbOf(i.Verb).on {
	case collections:
		return i.Name == ""
	case objects:
		return i.Name != ""
	}
	return true
}

// verbOfRequest derives the verb. A watch is a list with watch=1 or a legacy path;
// watch on a named object's own path means nothing.
func verbOfRequest(r *http.Request, i *Info) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead: // HEAD is refused, but by the same permissions
		switch {
		case i.legacyWatch:
			return "watch"
		case i.Name != "":
			return "get"
		case isWatch(r.URL.RawQuery):
			return "watch"
		}
		return "list"
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		if i.Name != "" {
			return "delete"
		}
		return "deletecollection"
	}
	return ""
}

// isWatch reports whether a query has watch=1 or watch=true.
func isWatch(query string) bool {
	value, ok := Parameter(query, "watch")
	return ok && *Truth(value)
}
