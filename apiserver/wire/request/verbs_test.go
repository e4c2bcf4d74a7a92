package request

import (
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/internal/must"
)

// TestVerbs: every verb that kinds have is known to the steps of a request, and nothing else is.
func TestVerbs(t *testing.T) {
	builtin, err := kinds.Builtin()
	must.OK(t, err)
	had := map[string]bool{}
	for _, name := range kinds.AllVerbs {
		had[name] = true
	}
	for _, r := range builtin.All() {
		for _, name := range r.Verbs {
			had[name] = true
		}
	}
	for name := range had {
		v, ok := verbs[name]
		if !ok || v.reported == "" || v.parameters == 0 {
			t.Errorf("%s: %+v", name, v)
		}
		if reads := slices.Contains([]string{"get", "list", "watch"}, name); Mutates(name) == reads {
			t.Errorf("%s changes something: %v", name, !reads)
		}
		if ChangesObject(name) && !Mutates(name) {
			t.Errorf("%s changes an object and nothing", name)
		}
	}
	for name := range verbs {
		if !had[name] {
			t.Errorf("no kind has the verb %s", name)
		}
	}
	if !Mutates("post") || Reported("post") != "" || ChangesObject("post") {
		t.Error("a method is taken for a verb of objects")
	}
}

// TestInPlace: which verbs a collection and an object have.
func TestInPlace(t *testing.T) {
	for _, row := range []string{
		"create collection", "update object", "patch object", "get both", "list both", "watch both", "delete both", "deletecollection both",
	} {
		verb, on, _ := strings.Cut(row, " ")
		if got := (&Info{Verb: verb}).InPlace(); got != (on != "object") {
			t.Errorf("%s of a collection: %v", verb, got)
		}
		if got := (&Info{Verb: verb, Name: "x"}).InPlace(); got != (on != "collection") {
			t.Errorf("%s of an object: %v", verb, got)
		}
	}
}
