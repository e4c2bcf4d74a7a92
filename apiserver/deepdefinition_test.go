package apiserver_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestDeepDefinitions: a definition whose schemas are within each other thousands of times is refused,
// however it is written, without a text for each of them.
func TestDeepDefinitions(t *testing.T) {
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	e := newEnv(t, nil)
	const levels = 9000
	deep := strings.Repeat(`{"x":1,"not":`, levels) + `{"type":"string"}` + strings.Repeat("}", levels)
	text := func(schema string) string {
		return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"deeps.example.com"},
			"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"deeps","kind":"Deep"},
			"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":%s}}]}}`, schema)
	}
	if w, answer := e.do(http.MethodPost, definitions, nil, text(`{"type":"object"}`)); w.StatusCode != http.StatusCreated {
		t.Fatal(answer)
	}
	for _, c := range []struct {
		method, path, contentType string
		code                      int
	}{
		{http.MethodPost, definitions, "application/json", http.StatusBadRequest},
		{http.MethodPost, definitions + "?fieldValidation=Strict", "application/json", http.StatusBadRequest},
		{http.MethodPatch, definitions + "/deeps.example.com", "application/merge-patch+json", http.StatusUnprocessableEntity},
		{http.MethodPatch, definitions + "/deeps.example.com?fieldManager=a&force=1", "application/apply-patch+yaml", http.StatusBadRequest},
	} {
		w, answer := e.do(c.method, c.path, http.Header{"Content-Type": {c.contentType}}, text(deep))
		if w.StatusCode != c.code || len(answer) > 1<<20 || !strings.Contains(answer, "exceeded max depth") {
			t.Errorf("%s %s as %s: %d, %d bytes: %s", c.method, c.path, c.contentType, w.StatusCode, len(answer), clip(answer))
		}
	}
}
