package conversion

import (
	"strings"
	"testing"
)

// TestRead: an answer that is no review is refused in upstream's words.
func TestRead(t *testing.T) {
	const group = "apiextensions.k8s.io/"
	for _, c := range []struct{ name, version, body, err string }{
		{"a review", "v1", `{"apiVersion":"` + group + `v1","kind":"ConversionReview","response":{"uid":"a"}}`, ""},
		{"an older one", "v1beta1", `{"apiVersion":"` + group + `v1beta1","kind":"ConversionReview","response":{"uid":"a"}}`, ""},
		{"another version", "v1", `{"apiVersion":"` + group + `v1beta1","kind":"ConversionReview"}`, "converting (v1beta1.ConversionReview) to (v1.ConversionReview): unknown conversion"},
		{"another kind", "v1", `{"apiVersion":"` + group + `v1","kind":"Other"}`, `no kind "Other" is registered for version "apiextensions.k8s.io/v1" in scheme "`},
		{"no kind", "v1", `{"apiVersion":"` + group + `v1"}`, `Object 'Kind' is missing in '{"apiVersion":"apiextensions.k8s.io/v1"}'`},
		{"text", "v1", `this is no JSON`, `couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of type struct`},
	} {
		got, err := read(c.version, []byte(c.body))
		switch {
		case c.err == "" && (err != nil || !got.given || got.uid != "a"):
			t.Errorf("%s: %+v, %v", c.name, got, err)
		case c.err != "" && (err == nil || !strings.HasPrefix(err.Error(), c.err)):
			t.Errorf("%s: %v, want %s", c.name, err, c.err)
		}
	}
}
