package fieldmanager

import (
	"cmp"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The library's way costs as much as all the rest of a write: it parses each
// manager's fields into a set, types both objects, compares them, and writes all sets
// again. Three cases, which are nearly all writes, need none of that:
//
//   - a create: the only manager has set everything that the object has;
//   - an update that gives other values to fields which its manager, and nobody else,
//     owns already, or changes nothing: only the time of one entry changes;
//   - an apply that adds no fields to the object and removes none (quickapply.go).
//
// They work on managedFields as they are stored, decoded JSON. Everything else is left
// to the library, and what is done here is what it would do: the tests compare them. Two
// things differ: sets that another schema has made stay as they are until the library has
// to look at them, and an entry that changes without its object has a new time.

// unmanaged is what of the metadata nobody owns.
var unmanaged = map[string]bool{
	"name": true, "namespace": true, "creationTimestamp": true, "selfLink": true, "uid": true,
	"clusterName": true, "generation": true, "managedFields": true, "resourceVersion": true,
}

// quick tracks a write that is no apply if it is one of these cases. It reports whether it was.
func (m *Manager) quick(live, obj map[string]any, manager string) bool {
	if manager == "" {
		manager = "unknown"
	}
	liveMeta, _ := live["metadata"].(map[string]any)
	meta, ok := obj["metadata"].(map[string]any)
	if !ok {
		return false
	}
	sent, before := meta["managedFields"], liveMeta["managedFields"]
	if uid, _ := liveMeta["uid"].(string); uid == "" {
		return sent == nil && before == nil && m.quickCreate(obj, meta, manager)
	}
	entries, _ := before.([]any)
	if sent != nil && !equal(sent, before) || len(entries) == 0 {
		// An object that nobody has tracked stays so until the first apply.
		return sent == nil
	}
	changed, ok := m.changes(live, obj)
	if !ok {
		return false
	}
	if len(changed) > 0 {
		if entries, ok = m.touch(entries, changed, manager); !ok {
			return false
		}
	}
	meta["managedFields"] = entries
	return true
}

func (m *Manager) quickCreate(obj, meta map[string]any, manager string) bool {
	fields, ok := m.everything(obj)
	if !ok {
		return false
	}
	if fields == nil {
		return true
	}
	entry := m.entry(manager, fields)
	entry["operation"] = string(metav1.ManagedFieldsOperationUpdate)
	meta["managedFields"] = []any{entry}
	return true
}

// entry is a new entry of managedFields, but for its operation: that is a constant of the
// caller's, and so costs no memory.
func (m *Manager) entry(manager string, fields map[string]any) map[string]any {
	entry := map[string]any{
		"manager": manager, "apiVersion": m.apiVersion, "fieldsType": "FieldsV1", "fieldsV1": fields, "time": now(),
	}
	if m.subresource != "" {
		entry["subresource"] = m.subresource
	}
	return entry
}

func now() string { return time.Now().UTC().Format(time.RFC3339) }

// touch renews the entry of the manager that owns all the changed fields. ok is false
// if there is none, or if others own some of them too.
func (m *Manager) touch(entries []any, changed []path, manager string) (out []any, ok bool) {
	mine := -1
	for i, e := range entries {
		entry, _ := e.(map[string]any)
		fields, _ := entry["fieldsV1"].(map[string]any)
		if fields == nil || entry["apiVersion"] != m.apiVersion {
			return nil, false
		}
		if m.isEntry(entry, manager, metav1.ManagedFieldsOperationUpdate) {
			mine = i
		}
		for _, p := range changed {
			if owned, ok := owns(fields, p); !ok || owned != (mine == i) {
				return nil, false
			}
		}
	}
	if mine < 0 {
		return nil, false
	}
	renewed := maps.Clone(entries[mine].(map[string]any))
	renewed["time"] = now()
	out = slices.Clone(entries)
	out[mine] = renewed
	slices.SortFunc(out, byTime)
	return out, true
}

// isEntry reports whether an entry is that of this manager's writes through here.
func (m *Manager) isEntry(entry map[string]any, manager string, op metav1.ManagedFieldsOperationType) bool {
	sub, _ := entry["subresource"].(string)
	return entry["manager"] == manager && entry["operation"] == string(op) && sub == m.subresource
}

// byTime is the library's order of entries.
func byTime(a, b any) int {
	x, y := a.(map[string]any), b.(map[string]any)
	for _, name := range [...]string{"operation", "time", "manager", "apiVersion", "subresource"} {
		p, _ := x[name].(string)
		q, _ := y[name].(string)
		if c := cmp.Compare(p, q); c != 0 { // times: RFC 3339 in UTC, whole seconds
			return c
		}
	}
	return 0
}

// owns reports whether a set of fields, as stored, has a path. Not ok: it has something
// below the path, or the whole of what the path leads into; the schema may have been
// another when it was made, and the library knows what that means.
func owns(fields map[string]any, p path) (owned, ok bool) {
	for _, element := range p {
		below, there := fields[element].(map[string]any)
		if !there {
			return false, len(fields) > 0
		}
		fields = below
	}
	_, itself := fields["."]
	switch {
	case len(fields) == 0:
		return true, true
	case itself:
		return true, len(fields) == 1
	}
	return false, false
}
