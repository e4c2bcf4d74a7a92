package fieldmanager

import (
	"bytes"
	"encoding/json"
	"testing"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/quorate/quorate/apiserver/types/schema"
	"github.com/quorate/quorate/internal/must"
)

// FuzzApply: of any two configurations and any stored fields of their managers, the
// quick way makes what the library makes, or leaves it to the library; and neither
// panics.
func FuzzApply(f *testing.F) {
	m := deployments(f)
	model, err := schema.Lookup("io.k8s.api.apps.v1.Deployment")
	must.OK(f, err)
	s := sample{m: m, model: model}
	const head = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"`
	for _, c := range []struct{ first, second, fields string }{
		{head + `,"labels":{"a":"b"}}}`, head + `,"labels":{"a":"c","d":"e"}}}`, ""},
		{head + `},"spec":{"replicas":1,"template":{"spec":{"containers":[{"name":"x","image":"i","ports":[{"containerPort":80}],"env":[{"name":"A","value":"1"}]}],"tolerations":[{"key":"k"}]}}}}`,
			head + `},"spec":{"replicas":2,"template":{"spec":{"containers":[{"name":"x","image":"j"}]}}}}`, `{"f:spec":{"f:replicas":{}}}`},
		{head + `,"finalizers":["a/b"],"ownerReferences":[{"apiVersion":"v1","kind":"K","name":"n","uid":"u"}]}}`, head + `,"finalizers":["a/b"]}}`, `{"f:metadata":{"f:finalizers":{".":{},"v:\"a/b\"":{}}}}`},
		{head + `},"spec":{"selector":{"matchLabels":{"a":"b"}},"strategy":{}}}`, head + `},"spec":{"strategy":{"rollingUpdate":null}},"status":{}}`, `{"f:metadata":"x",".":{},"f:spec":{"f:strategy":{}}}`},
	} {
		f.Add([]byte(c.first), []byte(c.second), []byte(c.fields), true)
		f.Add([]byte(c.first), []byte(c.second), []byte(c.fields), false)
	}
	f.Fuzz(func(t *testing.T, first, second, fields []byte, force bool) {
		configurations := [2]map[string]any{}
		for i, raw := range [][]byte{first, second} {
			if len(raw) > 4<<10 || json.Unmarshal(raw, &configurations[i]) != nil || configurations[i] == nil {
				return
			}
			if _, ok := configurations[i]["metadata"].(map[string]any); !ok {
				return // refused before
			}
			if unknown, err := model.Fit(configurations[i]); err != nil || len(unknown) > 0 {
				return
			}
		}
		live, err := m.Apply(m.Nothing(), configurations[0], "a", force)
		if err != nil {
			return
		}
		live = copied(t, live)
		meta := live["metadata"].(map[string]any)
		meta["uid"] = "x"
		entries, _ := meta["managedFields"].([]any)
		if own := readable(fields); len(entries) > 0 && own != nil {
			entries[0].(map[string]any)["fieldsV1"] = own
		}
		for _, manager := range []string{"b", "a"} {
			bothApply(t, s, live, configurations[1], manager, force)
		}
	})
}

// readable is a set as it is stored: as the library writes what it could read. nil: it
// could not.
func readable(raw []byte) (fields map[string]any) {
	set := fieldpath.NewSet()
	if set.FromJSON(bytes.NewReader(raw)) != nil {
		return nil
	}
	written, err := set.ToJSON()
	if err != nil || json.Unmarshal(written, &fields) != nil || len(fields) == 0 {
		return nil
	}
	return fields
}
