package request

import (
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/kinds"
)

// TestVerbs: every verb that kinds have is known to the steps of a request, and nothing else is.
func TestVerbs(t *testing.T) {
	for _, name := range kinds.AllVerbs {
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
	if len(verbs) != len(kinds.AllVerbs) {
		t.Errorf("%d verbs are known, kinds have %d", len(verbs), len(kinds.AllVerbs))
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
