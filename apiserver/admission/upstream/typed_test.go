package upstream

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/quorate/quorate/internal/must"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// TestFollow: only what differs between two objects changes a third one, which stays as it was itself.
func TestFollow(t *testing.T) {
	for _, c := range []struct{ name, v, was, now, want string }{
		{"nothing", `{"a":{"b":1},"m":[1]}`, `{"a":{"b":1}}`, `{"a":{"b":1}}`, `{"a":{"b":1},"m":[1]}`},
		{"a value deep down", `{"a":{"b":1,"m":2}}`, `{"a":{"b":1}}`, `{"a":{"b":3}}`, `{"a":{"b":3,"m":2}}`},
		{"a field that is new", `{"a":{"m":2}}`, `{"a":{}}`, `{"a":{"b":{"c":1}}}`, `{"a":{"m":2,"b":{"c":1}}}`},
		{"a field that is gone", `{"a":{"b":1,"m":2}}`, `{"a":{"b":1}}`, `{"a":{}}`, `{"a":{"m":2}}`},
		{"a value in a list", `{"l":[{"n":1,"m":2},{"n":5}]}`, `{"l":[{"n":1},{"n":5}]}`, `{"l":[{"n":3},{"n":5}]}`, `{"l":[{"n":3,"m":2},{"n":5}]}`},
		{"a longer list", `{"l":[{"n":1,"m":2}]}`, `{"l":[{"n":1}]}`, `{"l":[{"n":1},{"n":2}]}`, `{"l":[{"n":1},{"n":2}]}`},
		{"a list where there was none", `{}`, `{}`, `{"l":[1]}`, `{"l":[1]}`},
		{"a map where there was a null", `{"a":null}`, `{}`, `{"a":{"b":1}}`, `{"a":{"b":1}}`},
		{"an empty value that is left out", `{"a":{"resources":{}}}`, `{"a":{"resources":{},"extra":null}}`, `{"a":{"resources":{},"extra":null}}`, `{"a":{"resources":{}}}`},
	} {
		v := decoded(t, c.v)
		got, err := json.Marshal(follow(v, decoded(t, c.was), decoded(t, c.now)))
		must.OK(t, err)
		want, _ := json.Marshal(decoded(t, c.want))
		if string(got) != string(want) {
			t.Errorf("%s: %s, want %s", c.name, got, want)
		}
		if !reflect.DeepEqual(v, decoded(t, c.v)) {
			t.Errorf("%s: the object itself is %v now", c.name, v)
		}
	}
}

func decoded(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	must.OK(t, utiljson.Unmarshal([]byte(text), &out))
	return out
}
