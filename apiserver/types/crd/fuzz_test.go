package crd_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/types/crd"
	"github.com/quorate/quorate/internal/must"
)

// FuzzSchema: whatever schema a definition has and whatever object is held against it,
// nothing panics, and it ends soon. An object that was completed stays as it is when
// it is completed again.
func FuzzSchema(f *testing.F) {
	const object = `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a"},"spec":{"a":1,"list":[{"k":"x"}],"m":{"y":{}}}}`
	for _, schema := range []string{
		`{"type":"object"}`,
		`{"type":"object","x-kubernetes-preserve-unknown-fields":true}`,
		`{"type":"object","properties":{"spec":{"type":"object","required":["a"],"properties":{"a":{"x-kubernetes-int-or-string":true},"list":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object","required":["k"],"properties":{"k":{"type":"string"},"d":{"type":"integer","default":1}}}},"m":{"type":"object","additionalProperties":{"type":"object","nullable":true,"properties":{"z":{"type":"string","default":"q"}}}}},"x-kubernetes-validations":[{"rule":"has(self.a)","message":"a"}]}}}`,
		`{"type":"object","properties":{"spec":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}}}`,
		`{"type":"object","properties":{"spec":{"type":"object","properties":{"a":{"type":"integer","x-kubernetes-validations":[{"rule":"self == oldSelf"}]}}}}}`,
		`{"type":"object","properties":{"spec":{"type":"array","items":[{"type":"string"}]}}}`,
		`{"type":"object","anyOf":[{"not":{"required":["spec"]}}],"properties":{"spec":{"type":"string","pattern":"("}}}`,
		`7`,
	} {
		f.Add(schema, object)
	}
	w := newWorld(f)
	f.Fuzz(func(t *testing.T, schema, object string) {
		began := time.Now()
		defer func() {
			//wall: the fuzzer reports an input that takes seconds where others take microseconds
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("took %v", took)
			}
		}()
		if len(schema)+len(object) > 64<<10 || !json.Valid([]byte(schema)) {
			return
		}
		var definition, obj map[string]any
		text := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
			"names":{"plural":"things","kind":"Thing"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":` + schema + `}}]}}`
		if json.Unmarshal([]byte(text), &definition) != nil || json.Unmarshal([]byte(object), &obj) != nil || obj == nil {
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if crd.Default(definition) != nil || crd.PrepareStatus(definition, true) != nil {
			return
		}
		if errs, err := crd.ValidateDefinition(ctx, definition, nil, false); err != nil || len(errs) > 0 {
			return
		}
		// It was accepted: from here on nothing may fail.
		definition["status"] = accepted
		stored, err := json.Marshal(definition)
		must.OK(t, err)
		in := *w
		in.t = t
		in.put("things.example.com", string(stored))
		res := w.Current().Lookup(gvr("example.com", "things"))
		if res == nil {
			t.Fatal("an accepted definition is not served")
		}
		v := crd.Of(res)
		model, err := v.Model()
		if err != nil {
			t.Fatalf("an accepted schema cannot be used: %v", err)
		}
		for _, v2 := range []bool{true, false} {
			if _, err := v.Schema(v2); err != nil {
				t.Fatalf("an accepted schema cannot be shown: %v", err)
			}
		}
		if _, err := model.Fit(obj); err != nil {
			return
		}
		if model.Default(obj) != nil {
			return // too large
		}
		once, err := json.Marshal(obj)
		must.OK(t, err)
		if err := v.Complete(obj); err != nil {
			t.Fatalf("an object that fits cannot be read: %v", err)
		}
		if again, _ := json.Marshal(obj); string(again) != string(once) {
			t.Fatalf("completed twice:\n%s\nonce:\n%s", again, once)
		}
		if _, err := v.Validate(ctx, obj, nil, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := v.Validate(ctx, obj, obj, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := v.ValidateStatus(ctx, obj, obj, nil); err != nil {
			t.Fatal(err)
		}
	})
}

var accepted = map[string]any{
	"acceptedNames":  map[string]any{"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
	"storedVersions": []any{"v1"},
	"conditions":     []any{map[string]any{"type": "Established", "status": "True", "reason": "InitialNamesAccepted"}},
}
