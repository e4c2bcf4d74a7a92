package fieldmanager

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ancientManager is what the library merges the oldest updates into when an object has more than
// mostUpdates.
const (
	ancientManager = "ancient-changes"
	mostUpdates    = 10
)

// beforeAll is before every other time, that of entries without one included.
const beforeAll = "1969-12-31T23:59:59Z"

// ageAncient makes the entries of ancientManager older than all others. The library sorts updates by
// seconds and then by manager. When it finds such an entry behind another one of the same version, it
// merges it into itself and deletes it, and the fields of the oldest managers have no owner any more
// (capmanagers.go of apimachinery 0.36). times are those that were replaced, by API version. live is
// not changed.
func ageAncient(live, obj map[string]any) (_, _ map[string]any, times map[string]any) {
	for _, o := range [...]*map[string]any{&live, &obj} {
		meta, _ := (*o)["metadata"].(map[string]any)
		entries, _ := meta["managedFields"].([]any)
		if len(entries) < mostUpdates || !slices.ContainsFunc(entries, func(e any) bool { return ancientEntry(e) != nil }) {
			continue
		}
		aged := slices.Clone(entries)
		for i := range aged {
			if entry := ancientEntry(aged[i]); entry != nil {
				version, _ := entry["apiVersion"].(string)
				if times == nil {
					times = map[string]any{}
				}
				times[version] = entry["time"]
				entry = maps.Clone(entry)
				entry["time"] = beforeAll
				aged[i] = entry
			}
		}
		meta = maps.Clone(meta)
		meta["managedFields"] = aged
		*o = maps.Clone(*o)
		(*o)["metadata"] = meta
	}
	return live, obj, times
}

// restoreAncient gives entries of ancientManager their times back, unless updates were merged into them.
func restoreAncient(obj map[string]any, times map[string]any) {
	if times == nil {
		return
	}
	meta, _ := obj["metadata"].(map[string]any)
	entries, _ := meta["managedFields"].([]any)
	for _, e := range entries {
		entry := ancientEntry(e)
		if entry == nil || entry["time"] != beforeAll {
			continue
		}
		version, _ := entry["apiVersion"].(string)
		if was, ok := times[version]; ok && was != nil {
			entry["time"] = was
		} else {
			delete(entry, "time")
		}
	}
	slices.SortStableFunc(entries, byTime)
}

// ancientEntry returns an entry of ancientManager, nil if it is another's.
func ancientEntry(e any) map[string]any {
	entry, _ := e.(map[string]any)
	sub, _ := entry["subresource"].(string)
	if entry["manager"] != ancientManager || entry["operation"] != string(metav1.ManagedFieldsOperationUpdate) || sub != "" {
		return nil
	}
	return entry
}
