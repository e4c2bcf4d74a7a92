package aggregator

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/internal/standins"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
)

var widgetsV1 = []apischema.GroupVersion{{Group: "widgets.example.com", Version: "v1"}}

// document is one of version 2 whose only operation answers with the definition Widget.
func document(definitions, parameters string) string {
	return `{"swagger":"2.0","info":{"title":"x","version":"1"},"paths":{
		"/apis/widgets.example.com/v1/widgets":{"get":{"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/Widget"}}}}},
		"/apis/widgets.example.com/v10/widgets":{"get":{"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/Foreign"}}}}},
		"/api/v1/secrets":{"get":{"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/Foreign"}}}}}},
		"definitions":{"Foreign":{"type":"object"},` + definitions + `},"parameters":{` + parameters + `}}`
}

const widget = `"Widget":{"type":"object","properties":{"self":{"$ref":"#/definitions/Widget"},"$ref":{"type":"string"}}}`

// TestReadV2: of a document is taken what its own group version needs, circles included.
func TestReadV2(t *testing.T) {
	// Unused refers to a definition that is left out with another version, and q is nobody's.
	text := document(widget+`,"Unused":{"$ref":"#/definitions/Foreign"}`, `"p":{"name":"p","in":"query","type":"string"},"q":{"name":"q","in":"body","schema":{"$ref":"#/definitions/Foreign"}}`)
	got, err := readV2([]byte(strings.Replace(text, `"responses"`, `"parameters":[{"$ref":"#/parameters/p"}],"responses"`, 1)), widgetsV1)
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	var doc struct{ Paths, Definitions, Parameters map[string]any }
	must.OK(t, json.Unmarshal(got[widgetsV1[0]].JSON, &doc))
	if len(doc.Paths) != 1 || doc.Paths["/apis/widgets.example.com/v1/widgets"] == nil || len(doc.Definitions) != 1 || doc.Definitions["Widget"] == nil || len(doc.Parameters) != 1 || doc.Parameters["p"] == nil {
		t.Errorf("%s", got[widgetsV1[0]].JSON)
	}
	for _, nothing := range []string{`{}`, `{"swagger":"2.0","paths":{}}`} {
		if got, err := readV2([]byte(nothing), widgetsV1); err != nil || len(got) != 0 {
			t.Errorf("%s: %v %v", nothing, got, err)
		}
	}
}

// TestHostileV2: what would end this process, or keep clients from reading the rest, is refused.
func TestHostileV2(t *testing.T) {
	chain := widget
	for i := range maxMembers {
		chain += fmt.Sprintf(`,"d%d":{"$ref":"#/definitions/d%d"}`, i, i+1)
	}
	for name, c := range map[string]struct{ body, want string }{
		"no JSON":           {"{{{", "OpenAPI v2"},
		"a list":            {"[]", "OpenAPI v2"},
		"nesting":           {strings.Repeat(`{"properties":`, 1_000_000), "nested deeper"},
		"nested lists":      {document(`"Widget":{"enum":`+strings.Repeat("[", 200)+strings.Repeat("]", 200)+`}`, ""), "nested deeper"},
		"many values":       {document(`"Widget":{"enum":[`+strings.Repeat("1,", maxMembers)+`1]}`, ""), "members"},
		"many in many":      {document(`"Widget":{"enum":[`+strings.Repeat("[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],", maxMembers-1)+`1]}`, ""), "values"},
		"a long chain":      {document(chain, ""), "members"},
		"nothing":           {document(`"Other":{}`, ""), `leads nowhere: "#/definitions/Widget"`},
		"somewhere else":    {document(`"Widget":{"$ref":"https://example.com/x"}`, ""), "leads nowhere"},
		"a part of one":     {document(`"Widget":{"$ref":"#/definitions/Widget/properties/a"}`, ""), "leads nowhere"},
		"circle":            {document(widget, `"p":{"$ref":"#/parameters/p"}`), `leads nowhere: "#/parameters/p"`},
		"circle in schema":  {document(widget, `"p":{"name":"p","in":"body","schema":{"allOf":[{"$ref":"#/parameters/p"}]}}`), "leads nowhere"},
		"circle by a model": {document(`"Widget":{"items":{"$ref":"#/parameters/p"}}`, `"p":{"name":"p","in":"body","schema":{"$ref":"#/definitions/Widget"}}`), "leads nowhere"},
		"kinds":             {document(`"Widget":{"x-kubernetes-group-version-kind":"Widget"}`, ""), "are no list"},
		"a kind":            {document(`"Widget":{"x-kubernetes-group-version-kind":["Widget"]}`, ""), "is no object"},
		"a second key":      {document(widget+`,`+widget, ""), "duplicate"},
		"a type":            {document(`"Widget":{"type":7}`, ""), "OpenAPI v2"},
	} {
		if got, err := readV2([]byte(c.body), widgetsV1); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v %.300v, want %s", name, got, err, c.want)
		}
	}
}

// FuzzReadV2: whatever a server says, what is taken of it can be taken again, and is the same.
func FuzzReadV2(f *testing.F) {
	f.Add([]byte(document(widget, `"p":{"name":"p","in":"query","type":"string"}`)))
	f.Add([]byte(document(`"Widget":{"allOf":[{"$ref":"#/definitions/Foreign"}],"additionalProperties":{"type":["string","null"]}}`, `"p":{"$ref":"#/parameters/p"}`)))
	f.Fuzz(func(t *testing.T, body []byte) {
		first, err := readV2(body, widgetsV1)
		if err != nil || len(first) == 0 {
			return
		}
		second, err := readV2(first[widgetsV1[0]].JSON, widgetsV1)
		if err != nil || second[widgetsV1[0]] == nil || second[widgetsV1[0]].Sum != first[widgetsV1[0]].Sum {
			t.Errorf("%s\n%v %s", first[widgetsV1[0]].JSON, err, second[widgetsV1[0]].JSON)
		}
	})
}

// TestEndlessRefusal: what is held of a server's refusal does not grow with it.
func TestEndlessRefusal(t *testing.T) {
	endless := new(standins.Endless)
	err := refusal(http.MethodGet, "/apis", &http.Response{StatusCode: http.StatusForbidden, Body: endless})
	if err == nil || endless.Taken() > 64<<10 {
		t.Errorf("%d bytes were read: %.200v", endless.Taken(), err)
	}
}
