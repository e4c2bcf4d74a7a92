package apiserver_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// schemaOf is an object of so many properties in each of so many levels.
func schemaOf(wide, deep int) string {
	if deep == 0 {
		return `{"type":"string","description":"about as long as descriptions are in the mean"}`
	}
	var b strings.Builder
	b.WriteString(`{"type":"object","properties":{`)
	for i := range wide {
		fmt.Fprintf(&b, `"p%d":%s,`, i, schemaOf(wide, deep-1))
	}
	return strings.TrimSuffix(b.String(), ",") + `}}`
}

// TestLargeDefinition: the largest definitions that projects ship, of 11,000 schemas in a megabyte, are
// created, applied and patched. What the body is charged with is bounded. The short form has a
// thousand schemas.
func TestLargeDefinition(t *testing.T) {
	t.Parallel()
	width := 22
	if testing.Short() {
		width = 10
	}
	e := newEnv(t, nil)
	definition := func(name string) string {
		return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"` + name + `s.x.example"},"spec":{"group":"x.example","scope":"Namespaced",
			"names":{"plural":"` + name + `s","kind":"` + name + `"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":` + schemaOf(width, 3) + `}}]}}`
	}
	for _, row := range []struct {
		name, method, path, contentType, body string
		code                                  int
	}{
		{"create", "POST", definitions, asJSON, definition("made"), 201},
		{"apply", "PATCH", definitions + "/applieds.x.example?fieldManager=x", asApply, definition("applied"), 201},
		{"apply again", "PATCH", definitions + "/applieds.x.example?fieldManager=x", asApply, definition("applied"), 200},
		{"patch", "PATCH", definitions + "/mades.x.example", asMerge, `{"metadata":{"labels":{"a":"b"}}}`, 200},
	} {
		w, answer := e.do(row.method, row.path, http.Header{"Content-Type": {row.contentType}}, row.body)
		if w.StatusCode != row.code {
			t.Errorf("%s, %d bytes: %d %.300s", row.name, len(row.body), w.StatusCode, answer)
		}
	}
}
