package quoratev1

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/types/schema"
	"github.com/quorate/quorate/internal/must"
)

// TestModels: the schemas, which are written by hand, have the fields of the types.
func TestModels(t *testing.T) {
	for name, typ := range map[string]reflect.Type{
		"io.quorate.v1.Member":       reflect.TypeFor[Member](),
		"io.quorate.v1.MemberStatus": reflect.TypeFor[MemberStatus](),
	} {
		raw, ok := schema.Raw(name)
		if !ok {
			t.Fatalf("there is no model %s", name)
		}
		var model struct {
			Properties map[string]json.RawMessage `json:"properties"`
		}
		must.OK(t, json.Unmarshal(raw, &model))
		fields := map[string]bool{}
		for i := range typ.NumField() {
			if tag, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ","); tag != "" {
				fields[tag] = true
			} else { // TypeMeta
				fields["kind"], fields["apiVersion"] = true, true
			}
		}
		if got, want := slices.Sorted(maps.Keys(model.Properties)), slices.Sorted(maps.Keys(fields)); !slices.Equal(got, want) {
			t.Errorf("%s has %v, the type %v", name, got, want)
		}
	}
}
