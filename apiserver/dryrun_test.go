package apiserver_test

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// stateHash is a digest of everything that is stored, with the index of the last
// entry: no entry, no side effect.
func (e *env) stateHash() string {
	e.t.Helper()
	state := e.store.State()
	h := fnv.New64a()
	for name, table := range state.Tables() { // in the order of their names
		page, err := table.Range(mvcc.Query{At: state.Applied()})
		must.OK(e.t, err)
		for _, v := range page.Versions {
			fmt.Fprintf(h, "%s %s %d %s\n", name, v.Key, v.Revision, v.Value())
		}
	}
	return fmt.Sprintf("%d/%x", state.Applied(), h.Sum64())
}

// Every modifying request of every kind is answered in a dry run as it would be
// for real, and leaves nothing behind: the state and the log are what they were.
func TestDryRunStoresNothing(t *testing.T) {
	e := newEnv(t, nil)
	all := samples(t)
	for _, s := range all {
		e.populate(s)
	}
	before := e.stateHash()
	try := func(s *sample, want int, method, path, contentType, body string) string {
		t.Helper()
		header := http.Header{}
		if contentType != "" {
			header.Set("Content-Type", contentType)
		}
		w, answer := e.do(method, path, header, body)
		if w.StatusCode != want {
			t.Errorf("%s: %s %s: %d, want %d\n%s", s.id(), method, path, w.StatusCode, want, clip(answer))
		}
		if after := e.stateHash(); after != before {
			t.Fatalf("%s: %s %s changed the state: %s, before %s", s.id(), method, path, after, before)
		}
		return answer
	}
	const all1 = "?dryRun=All"
	for _, s := range all {
		fresh := s.renamed(t, "dry")
		if s.res.HasVerb("create") && s.res.Plural != "ipaddresses" && s.res.Plural != "apiservices" { // their names follow from their specs
			answer := try(s, http.StatusCreated, http.MethodPost, s.collection()+all1, "", fresh)
			if uid, _ := field(t, answer, "metadata", "uid").(string); uid == "" {
				t.Errorf("%s: a dry run has no uid", s.id())
			}
			if rv := field(t, answer, "metadata", "resourceVersion"); rv != nil && rv != "" {
				t.Errorf("%s: the dry run of a create has resourceVersion %v", s.id(), rv)
			}
			try(s, http.StatusUnprocessableEntity, http.MethodPost, s.collection()+"?dryRun=Some", "", fresh)
		}
		w, current := e.do(http.MethodGet, s.path(), nil, "")
		if w.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", s.id(), current)
		}
		if s.res.HasVerb("create") {
			try(s, http.StatusConflict, http.MethodPost, s.collection()+all1, "", s.renamed(t, s.name))
		}
		answer := try(s, http.StatusOK, http.MethodPut, s.path()+all1, "", strings.Replace(current, `"metadata":{`, `"metadata":{"labels":{"dry":"run"},`, 1))
		if got, want := field(t, answer, "metadata", "resourceVersion"), field(t, current, "metadata", "resourceVersion"); got != want {
			t.Errorf("%s: the dry run of an update has resourceVersion %v, want %v", s.id(), got, want)
		}
		const label = `{"metadata":{"labels":{"dry":"run"}}}`
		for contentType, body := range map[string]string{
			"application/merge-patch+json":           label,
			"application/strategic-merge-patch+json": label,
			"application/json-patch+json":            `[{"op":"add","path":"/metadata/annotations","value":{"dry":"run"}}]`,
		} {
			answer := try(s, http.StatusOK, http.MethodPatch, s.path()+all1, contentType, body)
			if !strings.Contains(answer, `"dry":"run"`) {
				t.Errorf("%s: %s: the dry run does not show the change: %s", s.id(), contentType, clip(answer))
			}
		}
		for _, sub := range s.res.Subresources {
			path := s.path() + "/" + sub.Name + all1
			switch {
			case sub.Name == "status" && !slices.Contains(sub.Verbs, "patch"):
				try(s, http.StatusMethodNotAllowed, http.MethodPatch, path, "application/merge-patch+json", label)
				try(s, http.StatusMethodNotAllowed, http.MethodPut, path, "", current)
			case sub.Name == "status":
				try(s, http.StatusOK, http.MethodPatch, path, "application/merge-patch+json", label)
				try(s, http.StatusOK, http.MethodPut, path, "", current)
			case sub.Name == "scale":
				try(s, http.StatusOK, http.MethodPatch, path, "application/merge-patch+json", `{"spec":{"replicas":9}}`)
			case sub.Name == "finalize":
				try(s, http.StatusOK, http.MethodPut, path, "", current)
			}
		}
		try(s, http.StatusOK, http.MethodDelete, s.path()+all1, "", "")
		try(s, http.StatusOK, http.MethodDelete, s.path(), "", `{"kind":"DeleteOptions","apiVersion":"v1","dryRun":["All"]}`)
		try(s, http.StatusOK, http.MethodDelete, s.path(), "application/yaml", "dryRun: [All]\npropagationPolicy: Orphan\n")
		try(s, http.StatusUnprocessableEntity, http.MethodDelete, s.path(), "", `{"dryRun":["Some"]}`)
		try(s, http.StatusUnprocessableEntity, http.MethodDelete, s.path()+"?dryRun=", "", "")
		if s.res.HasVerb("deletecollection") {
			answer := try(s, http.StatusOK, http.MethodDelete, s.collection()+all1, "", "")
			if items, _ := field(t, answer, "items").([]any); len(items) == 0 {
				t.Errorf("%s: the dry run of a deletecollection shows nothing", s.id())
			}
		}
	}
	// In a namespace that is not there, as for real.
	w, answer := e.do(http.MethodPost, "/api/v1/namespaces/nowhere/configmaps"+all1, nil, `{"metadata":{"name":"a"}}`)
	if w.StatusCode != http.StatusNotFound {
		t.Errorf("create in no namespace: %d %s", w.StatusCode, answer)
	}
	if w, answer = e.do(http.MethodPut, "/apis/coordination.k8s.io/v1/namespaces/nowhere/leases/a"+all1, nil, `{"metadata":{"name":"a"}}`); w.StatusCode != http.StatusNotFound {
		t.Errorf("create on update in no namespace: %d %s", w.StatusCode, answer)
	}
	w, answer = e.do(http.MethodPost, "/api/v1/namespaces/default/configmaps"+all1, nil, `{"metadata":{"generateName":"a-"}}`)
	if name, _ := field(t, answer, "metadata", "name").(string); w.StatusCode != http.StatusCreated || !strings.HasPrefix(name, "a-") || len(name) != 7 {
		t.Errorf("generated name in a dry run: %d %s", w.StatusCode, answer)
	}
	if after := e.stateHash(); after != before {
		t.Errorf("the state is %s, before %s", after, before)
	}
}

// renamed is the sample's body under another name, without what only one object
// may have.
func (s *sample) renamed(t *testing.T, name string) string {
	t.Helper()
	b, err := json.Marshal(s.object)
	must.OK(t, err)
	var obj map[string]any
	must.OK(t, json.Unmarshal(b, &obj))
	obj["metadata"].(map[string]any)["name"] = name
	if spec, ok := obj["spec"].(map[string]any); ok {
		delete(spec, "clusterIP")
		if names, ok := spec["names"].(map[string]any); ok && name != s.name {
			// A definition is called after its resource.
			names["plural"], names["kind"] = name, strings.ToUpper(name)
			obj["metadata"].(map[string]any)["name"] = fmt.Sprint(name, ".", spec["group"])
		}
		if ports, ok := spec["ports"].([]any); ok {
			for _, p := range ports {
				delete(p.(map[string]any), "nodePort")
			}
		}
	}
	b, err = json.Marshal(obj)
	must.OK(t, err)
	return string(b)
}
