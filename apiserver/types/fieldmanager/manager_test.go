package fieldmanager

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/quorate/quorate/apiserver/types/schema"
	"github.com/quorate/quorate/internal/must"
)

// TestUpdateLeavesLive: what is stored is shared by all readers.
func TestUpdateLeavesLive(t *testing.T) {
	m := deployments(t)
	live, err := m.Update(m.Nothing(), tree(t, nginx), "one")
	must.OK(t, err)
	live["metadata"].(map[string]any)["uid"] = "x"
	before := copied(t, live)
	changed := tree(t, strings.Replace(nginx, "1.14.2", "1.15", 1))
	if _, err := m.Update(live, changed, "two"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Apply(live, tree(t, nginx), "three", true); err != nil {
		t.Fatal(err)
	}
	if !equal(live, before) {
		t.Errorf("the live object has changed:\n%v\nwas\n%v", live, before)
	}
}

// TestOtherVersion: what is managed in a version that is not served, or in another group, is forgotten,
// and does not keep anybody from writing.
func TestOtherVersion(t *testing.T) {
	m := deployments(t)
	for _, version := range []string{"apps/v1beta1", "extensions/v1beta1"} {
		live, err := m.Update(m.Nothing(), tree(t, nginx), "one")
		must.OK(t, err)
		meta := live["metadata"].(map[string]any)
		meta["uid"] = "x"
		meta["managedFields"].([]any)[0].(map[string]any)["apiVersion"] = version
		out, err := m.Apply(live, tree(t, strings.Replace(nginx, "1.14.2", "1.15", 1)), "two", false)
		if err != nil {
			t.Fatalf("%s: %v", version, err)
		}
		entries := out["metadata"].(map[string]any)["managedFields"].([]any)
		if len(entries) != 1 || entries[0].(map[string]any)["manager"] != "two" {
			t.Errorf("%s: managers: %v, want only two", version, entries)
		}
	}
}

// TestVersionsOfOneResource: a field that has another name in another version is the
// same field.
func TestVersionsOfOneResource(t *testing.T) {
	of := func(version string) Version {
		return Version{GVK: apischema.GroupVersionKind{Group: "apps", Version: version, Kind: "Deployment"}, Model: "io.k8s.api.apps.v1.Deployment"}
	}
	// What is minReadySeconds in v1 is revisionHistoryLimit in v2, and the other way.
	swap := func(obj map[string]any, from, to apischema.GroupVersion) map[string]any {
		if from.Version == to.Version {
			return obj
		}
		out := runtime.DeepCopyJSON(obj)
		spec := out["spec"].(map[string]any)
		a, b := "revisionHistoryLimit", "minReadySeconds"
		spec[a], spec[b] = spec[b], spec[a]
		for _, name := range []string{a, b} {
			if spec[name] == nil {
				delete(spec, name)
			}
		}
		out["apiVersion"] = to.String()
		return out
	}
	convert := func(objs []map[string]any, from, to apischema.GroupVersion) (out []map[string]any, err error) {
		for _, obj := range objs {
			out = append(out, swap(obj, from, to))
		}
		return out, nil
	}
	model, err := schema.Lookup("io.k8s.api.apps.v1.Deployment")
	must.OK(t, err)
	manager := func(first, second string) *Manager {
		m, err := New(Config{Versions: []Version{of(first), of(second)}, Convert: convert, Zero: model.Zero, Default: func(map[string]any) error { return nil }})
		must.OK(t, err)
		return m
	}
	v1, v2 := manager("v1", "v2"), manager("v2", "v1")
	applied := func(version, field string, value int64) map[string]any {
		obj := tree(t, nginx)
		obj["apiVersion"] = "apps/" + version
		obj["spec"].(map[string]any)[field] = value
		return obj
	}
	live, err := v1.Apply(v1.Nothing(), applied("v1", "minReadySeconds", 3), "one", false)
	must.OK(t, err)
	live["metadata"].(map[string]any)["uid"] = "x"
	inV2 := swap(live, apischema.GroupVersion{Group: "apps", Version: "v1"}, apischema.GroupVersion{Group: "apps", Version: "v2"})
	if _, err := v2.Apply(inV2, applied("v2", "revisionHistoryLimit", 4), "two", false); err == nil || !strings.Contains(err.Error(), `conflict with "one"`) {
		t.Errorf("another value of a field that somebody owns in another version: %v, want a conflict", err)
	}
	if _, err := v2.Apply(inV2, applied("v2", "minReadySeconds", 4), "two", false); err != nil {
		t.Errorf("a field that is free in this version: %v", err)
	}

	// Who updates in another version has an entry of that version, though the names are in the one before.
	obj := applied("v1", "minReadySeconds", 3)
	obj["spec"].(map[string]any)["revisionHistoryLimit"] = int64(5)
	if live, err = v1.Update(v1.Nothing(), obj, "one"); err != nil {
		t.Fatal(err)
	}
	live["metadata"].(map[string]any)["uid"] = "x"
	inV2 = swap(live, apischema.GroupVersion{Group: "apps", Version: "v1"}, apischema.GroupVersion{Group: "apps", Version: "v2"})
	obj = copied(t, inV2)
	obj["spec"].(map[string]any)["minReadySeconds"] = int64(6)
	out, err := v2.Update(inV2, obj, "one")
	must.OK(t, err)
	if managed := managedOf(t, out); !strings.Contains(managed, `{"apiVersion":"apps/v2","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:minReadySeconds":{}}},"manager":"one","operation":"Update"}`) {
		t.Errorf("after an update in another version: %s", managed)
	}
}

// TestAncientChanges: managers whose names come before that of the oldest changes, and who wrote in the same second, take
// none of their fields away.
func TestAncientChanges(t *testing.T) {
	m := deployments(t)
	for _, first := range []string{"aa", "zz"} {
		live, err := m.Update(m.Nothing(), tree(t, nginx), ancientManager)
		must.OK(t, err)
		meta := live["metadata"].(map[string]any)
		meta["uid"] = "x"
		entries := meta["managedFields"].([]any)
		labels := map[string]any{"app": "nginx"}
		const second = "2026-01-01T00:00:00Z"
		entries[0].(map[string]any)["time"] = second
		for i := range mostUpdates - 1 {
			name, label := fmt.Sprint("m", i), fmt.Sprint("l", i)
			if i == 0 {
				name = first
			}
			labels[label] = "v"
			entries = append(entries, map[string]any{
				"manager": name, "operation": "Update", "apiVersion": "apps/v1", "fieldsType": "FieldsV1", "time": second,
				"fieldsV1": map[string]any{"f:metadata": map[string]any{"f:labels": map[string]any{"f:" + label: map[string]any{}}}},
			})
		}
		meta["managedFields"], meta["labels"] = entries, labels
		obj := copied(t, live)
		obj["metadata"].(map[string]any)["labels"].(map[string]any)["new"] = "v"
		out, err := m.Update(live, obj, "last")
		must.OK(t, err)
		owned := map[string]bool{}
		var times []any
		for _, e := range out["metadata"].(map[string]any)["managedFields"].([]any) {
			entry := e.(map[string]any)
			times = append(times, entry["time"])
			of, _ := entry["fieldsV1"].(map[string]any)["f:metadata"].(map[string]any)["f:labels"].(map[string]any)
			for name := range of {
				owned[name] = true
			}
			if entry["manager"] == ancientManager && entry["fieldsV1"].(map[string]any)["f:spec"] == nil {
				t.Errorf("%s: the oldest changes are %v", first, entry)
			}
		}
		if len(owned) != len(labels)+2 || len(times) != mostUpdates { // f:. and f:new
			t.Errorf("%s: %d managers own %v", first, len(times), owned)
		}
		if slices.Contains(times, any(beforeAll)) {
			t.Errorf("%s: times %v", first, times)
		}
	}
}

// TestCustomCreatedWithManagers: a custom resource that is made has its metadata then, so nobody who is
// named in what was sent owns them as a whole.
func TestCustomCreatedWithManagers(t *testing.T) {
	m := things(t, "")
	entry := func(fields map[string]any) map[string]any {
		return map[string]any{"manager": "other", "operation": "Update", "apiVersion": "example.com/v1", "fieldsType": "FieldsV1", "fieldsV1": fields}
	}
	for _, row := range []struct {
		fields map[string]any
		stays  bool
	}{
		{map[string]any{"f:metadata": map[string]any{}}, false},
		{map[string]any{"f:status": map[string]any{}}, true},
	} {
		obj := map[string]any{
			"apiVersion": "example.com/v1", "kind": "Thing", "spec": map[string]any{"s": "a"},
			"metadata": map[string]any{"name": "n", "managedFields": []any{entry(row.fields)}},
		}
		out, err := m.Update(m.Nothing(), obj, "m")
		must.OK(t, err)
		if got := strings.Contains(managedOf(t, out), `"manager":"other"`); got != row.stays {
			t.Errorf("%v: %s", row.fields, managedOf(t, out))
		}
	}
}
