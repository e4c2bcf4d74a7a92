package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/internal/must"
)

// narrow is a definition of which v1 is stored, and v1alpha1 knows less and has a default of its own.
const narrow = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"narrows.stable.example.com"},
"spec":{"group":"stable.example.com","scope":"Namespaced","names":{"plural":"narrows","kind":"Narrow"},
"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"}},
 "schema":{"openAPIV3Schema":{"type":"object","properties":{
  "spec":{"type":"object","properties":{"r":{"type":"integer"},"a":{"type":"string"},"b":{"type":"string"},"c":{"type":"object","properties":{"d":{"type":"string"},"e":{"type":"string"}}},"o":{"type":"object","additionalProperties":{"type":"string"}},"d":{"type":"string"},"replicas":{"type":"integer"}}},
  "more":{"type":"object","properties":{"x":{"type":"string"}}},
  "status":{"type":"object","properties":{"p":{"type":"string"},"q":{"type":"string"},"replicas":{"type":"integer"}}}}}}},
 {"name":"v1alpha1","served":true,"storage":false,"subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"}},
 "schema":{"openAPIV3Schema":{"type":"object","properties":{
  "spec":{"type":"object","properties":{"r":{"type":"integer"},"a":{"type":"string"},"c":{"type":"object","properties":{"e":{"type":"string"}}},"d":{"type":"string","default":"D"},"replicas":{"type":"integer"}}},
  "status":{"type":"object","properties":{"p":{"type":"string"},"replicas":{"type":"integer"}}}}}}}]}}`

const (
	narrowV1    = "/apis/stable.example.com/v1/namespaces/default/narrows"
	narrowAlpha = "/apis/stable.example.com/v1alpha1/namespaces/default/narrows"
	narrowSpec  = `"spec":{"a":"A","b":"B","c":{"d":"CD","e":"CE"},"o":{"k":"v"},"r":1},"more":{"x":"X"}`
)

// shownOf is what of an object is compared: all but the metadata, without the object's name.
func shownOf(t *testing.T, body string) string {
	t.Helper()
	var obj tree.Object
	if err := json.Unmarshal([]byte(body), &obj); err != nil {
		t.Fatalf("%v: %s", err, clip(body))
	}
	for _, name := range []string{"metadata", "kind", "apiVersion"} {
		delete(obj, name)
	}
	b, err := json.Marshal(obj)
	must.OK(t, err)
	return string(b)
}

// withRevision is a body that names the resourceVersion of an object.
func withRevision(body, of string) string {
	_, rest, _ := strings.Cut(of, `"resourceVersion":"`)
	rv, _, _ := strings.Cut(rest, `"`)
	return strings.ReplaceAll(body, `"RV"`, `"`+rv+`"`)
}

func typed(contentType string) http.Header { return http.Header{"Content-Type": {contentType}} }

// TestAdmissionInAnotherVersion: what is admitted in a version that knows less of an object loses nothing by that, whoever
// admits and however it is written. Plugins are shown all of it.
func TestAdmissionInAnotherVersion(t *testing.T) {
	const add = `[{"op":"add","path":"/metadata/labels","value":{"h":"1"}}]`
	policy := func(patch string) string {
		return `{"metadata":{"name":"p"},"spec":{"failurePolicy":"Fail","reinvocationPolicy":"Never","matchConstraints":{"resourceRules":[{"apiGroups":["stable.example.com"],"apiVersions":["v1alpha1"],"operations":["*"],"resources":["narrows","narrows/status"]}]},"mutations":[` + patch + `]}}`
	}
	const binding = `{"metadata":{"name":"p"},"spec":{"policyName":"p"}}`
	const alsoStatus = `,"rules":[{"apiGroups":["stable.example.com"],"apiVersions":["v1alpha1"],"operations":["*"],"resources":["narrows","narrows/status"]}]`
	for _, admits := range []string{"webhook", "webhook that changes nothing", "policy"} {
		t.Run(admits, func(t *testing.T) {
			e := newHookedEnv(t)
			e.lead()
			e.define(narrow, narrowV1)
			hook := newAdmissionHook(t)
			var shown []string
			label := `"h":"1"`
			switch admits {
			case "policy":
				for _, x := range [][2]string{{"mutatingadmissionpolicies", policy(`{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: 'add', path: '/metadata/labels', value: {'h': '1'}}]"}}`)}, {"mutatingadmissionpolicybindings", binding}} {
					if w, body := e.do("POST", "/apis/admissionregistration.k8s.io/v1/"+x[0], nil, x[1]); w.StatusCode != 201 {
						t.Fatalf("%d %s", w.StatusCode, body)
					}
				}
			default:
				answer := patched(add)
				if admits != "webhook" {
					answer, label = allow, ""
				}
				hook.set(func(r map[string]any) map[string]any {
					obj, old := r["object"].(tree.Object), tree.As(r["oldObject"])
					shown = append(shown, fmt.Sprint(tree.Lookup(obj, "spec.b"), " ", tree.Lookup(obj, "spec.c.d"), " ", obj["apiVersion"], " ", tree.Lookup(old, "spec.b")))
					return answer(r)
				})
				hook.configure(e, "Mutating", "m", alsoStatus)
			}
			for i, x := range []struct {
				name, method, path, body string
				as                       string
				old                      string // spec.b of oldObject
			}{
				{"create", "POST", narrowV1, `{"apiVersion":"stable.example.com/v1","kind":"Narrow","metadata":{"name":"n"},` + narrowSpec + `}`, asJSON, "<nil>"},
				{"put", "PUT", narrowV1 + "/n", `{"apiVersion":"stable.example.com/v1","kind":"Narrow","metadata":{"name":"n","resourceVersion":"RV","annotations":{"n":"1"}},` + narrowSpec + `}`, asJSON, "B"},
				{"merge", "PATCH", narrowV1 + "/n", `{"metadata":{"annotations":{"n":"2"}}}`, asMerge, "B"},
				{"json", "PATCH", narrowV1 + "/n", `[{"op":"add","path":"/metadata/annotations/n","value":"3"}]`, asJSONPatch, "B"},
				{"apply", "PATCH", narrowV1 + "/n?fieldManager=x", `{"apiVersion":"stable.example.com/v1","kind":"Narrow","metadata":{"name":"n","annotations":{"m":"4"}},"spec":{"b":"B"}}`, asApply, "B"},
				{"status", "PATCH", narrowV1 + "/n/status", `{"status":{"p":"P","q":"Q"}}`, asMerge, "B"},
			} {
				_, before := e.do("GET", narrowV1+"/n", nil, "")
				shown = nil
				w, body := e.do(x.method, x.path, typed(x.as), withRevision(x.body, before))
				if w.StatusCode/100 != 2 {
					t.Fatalf("%s: %d %s", x.name, w.StatusCode, clip(body))
				}
				_, now := e.do("GET", narrowV1+"/n", nil, "")
				want := `{"more":{"x":"X"},"spec":{"a":"A","b":"B","c":{"d":"CD","e":"CE"},"o":{"k":"v"},"r":1}}`
				if label != "" { // what a patch has made is completed in the version that it is of
					want = strings.Replace(want, `"o":`, `"d":"D","o":`, 1)
				}
				if x.name == "status" {
					want = strings.TrimSuffix(want, "}") + `,"status":{"p":"P","q":"Q"}}`
				}
				if got := shownOf(t, body); got != want {
					t.Errorf("%s: answered %s", x.name, got)
				}
				if got := shownOf(t, now); got != want || !strings.Contains(now, label) {
					t.Errorf("%s: stored %s", x.name, clip(now))
				}
				if want := "[B CD stable.example.com/v1alpha1 " + x.old + "]"; admits != "policy" && fmt.Sprint(shown) != want {
					t.Errorf("%s (%d): the webhook was shown %v, want %s", x.name, i, shown, want)
				}
			}
		})
	}
}

// TestWritesInAnotherVersion: a write of a subresource in a version that knows less, or has defaults of its own, changes
// nothing but that; one of the object is one in that version, and its generation and owners say so.
func TestWritesInAnotherVersion(t *testing.T) {
	e := newEnv(t, nil)
	e.lead()
	e.define(narrow, narrowV1)
	const whole = `"more":{"x":"X"},"spec":{"a":"A","b":"B","c":{"d":"CD","e":"CE"},"o":{"k":"v"},"r":1`
	const alphaSpec = `{"apiVersion":"stable.example.com/v1alpha1","kind":"Narrow","metadata":{"name":"n","resourceVersion":"RV"},"spec":{"a":"other"},"status":{"p":"P"}}`
	const alphaScale = `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"n","namespace":"default"},"spec":{"replicas":3}}`
	for _, x := range []struct {
		name, method, path, body string
		as                       string
		want                     string
		generation               int64
	}{
		{"merge of status", "PATCH", "/n/status", `{"status":{"p":"P"}}`, asMerge, `{` + whole + `},"status":{"p":"P","q":"Q"}}`, 1},
		{"JSON patch of status", "PATCH", "/n/status", `[{"op":"replace","path":"/status/p","value":"P"}]`, asJSONPatch, `{` + whole + `},"status":{"p":"P","q":"Q"}}`, 1},
		{"apply of status", "PATCH", "/n/status?fieldManager=x&force=true", strings.Replace(alphaSpec, `,"resourceVersion":"RV"`, "", 1), asApply, `{` + whole + `},"status":{"p":"P","q":"Q"}}`, 1},
		{"PUT of status", "PUT", "/n/status", alphaSpec, asJSON, `{` + whole + `},"status":{"p":"P","q":"Q"}}`, 1},
		{"PUT of an empty status", "PUT", "/n/status", strings.Replace(alphaSpec, `"p":"P"`, ``, 1), asJSON, `{` + whole + `},"status":{"q":"Q"}}`, 1},
		{"merge of scale", "PATCH", "/n/scale", `{"spec":{"replicas":3}}`, asMerge, `{` + whole + `,"replicas":3},"status":{"p":"before","q":"Q"}}`, 2},
		{"PUT of scale", "PUT", "/n/scale", alphaScale, asJSON, `{` + whole + `,"replicas":3},"status":{"p":"before","q":"Q"}}`, 2},
		{"apply of scale", "PATCH", "/n/scale?fieldManager=x&force=true", alphaScale, asApply, `{` + whole + `,"replicas":3},"status":{"p":"before","q":"Q"}}`, 2},
	} {
		t.Run(x.name, func(t *testing.T) {
			for _, r := range []struct {
				method, path, body string
				as                 string
			}{
				{"DELETE", narrowV1 + "/n", "", asJSON},
				{"POST", narrowV1, `{"apiVersion":"stable.example.com/v1","kind":"Narrow","metadata":{"name":"n"},` + narrowSpec + `}`, asJSON},
				{"PATCH", narrowV1 + "/n/status", `{"status":{"p":"before","q":"Q"}}`, asMerge},
			} {
				if w, body := e.do(r.method, r.path, typed(r.as), r.body); w.StatusCode/100 != 2 && r.method != "DELETE" {
					t.Fatalf("%s: %d %s", r.method, w.StatusCode, body)
				}
			}
			for _, dry := range []string{"dryRun=All", ""} {
				sep := "?"
				if strings.Contains(x.path, "?") {
					sep = "&"
				}
				_, before := e.do("GET", narrowV1+"/n", nil, "")
				w, body := e.do(x.method, narrowAlpha+x.path+sep+dry, typed(x.as), withRevision(x.body, before))
				if w.StatusCode != 200 {
					t.Fatalf("%d %s", w.StatusCode, body)
				}
			}
			_, now := e.do("GET", narrowV1+"/n", nil, "")
			if got := shownOf(t, now); got != x.want {
				t.Errorf("stored %s, want %s", got, x.want)
			}
			var obj tree.Object
			must.OK(t, json.Unmarshal([]byte(now), &obj))
			if g, _ := tree.Int(tree.Lookup(obj, "metadata.generation")); g != x.generation {
				t.Errorf("generation %d, want %d", g, x.generation)
			}
		})
	}
}

// TestListsInAnotherVersion: items of a list keep what the version of a write does not know, if they are known by their
// keys, or are as they were.
func TestListsInAnotherVersion(t *testing.T) {
	e := newEnv(t, nil)
	e.lead()
	const (
		of    = "/apis/stable.example.com/v1/namespaces/default/listers"
		alpha = "/apis/stable.example.com/v1alpha1/namespaces/default/listers"
		item  = `{"type":"object","required":["type"],"properties":{"type":{"type":"string"},"status":{"type":"string"}EXTRA}}`
		lists = `{"type":"object","properties":{"conds":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["type"],"items":` + item + `},"plain":{"type":"array","items":` + item + `}}}`
	)
	version := func(name, stored, extra string) string {
		return `{"name":"` + name + `","served":true,"storage":` + stored + `,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","properties":{"status":` + strings.ReplaceAll(lists, "EXTRA", extra) + `}}}}`
	}
	e.define(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"listers.stable.example.com"},"spec":{"group":"stable.example.com","scope":"Namespaced","names":{"plural":"listers","kind":"Lister"},"versions":[`+
		version("v1", "true", `,"extra":{"type":"string"}`)+","+version("v1alpha1", "false", "")+`]}}`, of)
	const (
		a, b   = `{"extra":"ea","status":"1","type":"A"}`, `{"extra":"eb","status":"1","type":"B"}`
		before = `{"conds":[` + a + `,` + b + `],"plain":[` + a + `,` + b + `]}`
		asB    = `{"status":"2","type":"B"}`
		b2     = `{"extra":"eb","status":"2","type":"B"}`
		shownA = `{"type":"A","status":"1"}`
	)
	for i, x := range []struct{ name, method, as, query, body, want string }{
		{"JSON patch of one", "PATCH", asJSONPatch, "", `[{"op":"replace","path":"/status/conds/1/status","value":"2"}]`, `{"conds":[` + a + `,` + b2 + `],"plain":[` + a + `,` + b + `]}`},
		{"merge patch of the list", "PATCH", asMerge, "", `{"status":{"conds":[` + asB + `,` + shownA + `]}}`, `{"conds":[` + b2 + `,` + a + `],"plain":[` + a + `,` + b + `]}`},
		{"one goes", "PATCH", asMerge, "", `{"status":{"conds":[` + asB + `]}}`, `{"conds":[` + b2 + `],"plain":[` + a + `,` + b + `]}`},
		{"one comes", "PATCH", asMerge, "", `{"status":{"conds":[{"type":"C","status":"1"},` + shownA + `]}}`, `{"conds":[{"status":"1","type":"C"},` + a + `],"plain":[` + a + `,` + b + `]}`},
		{"apply of one", "PATCH", asApply, "?fieldManager=m&force=true", `{"apiVersion":"stable.example.com/v1alpha1","kind":"Lister","metadata":{"name":"NAME"},"status":{"conds":[` + asB + `]}}`, `{"conds":[` + a + `,` + b2 + `],"plain":[` + a + `,` + b + `]}`},
		{"a list without keys", "PATCH", asMerge, "", `{"status":{"plain":[{"type":"N"},` + shownA + `,` + asB + `]}}`, `{"conds":[` + a + `,` + b + `],"plain":[{"type":"N"},` + a + `,{"status":"2","type":"B"}]}`},
	} {
		name := fmt.Sprint("n", i)
		if w, body := e.do("POST", of, typed(asJSON), `{"apiVersion":"stable.example.com/v1","kind":"Lister","metadata":{"name":"`+name+`"}}`); w.StatusCode != 201 {
			t.Fatal(body)
		}
		if w, body := e.do("PATCH", of+"/"+name+"/status", typed(asMerge), `{"status":`+before+`}`); w.StatusCode != 200 {
			t.Fatal(body)
		}
		if w, body := e.do(x.method, alpha+"/"+name+"/status"+x.query, typed(x.as), strings.ReplaceAll(x.body, "NAME", name)); w.StatusCode != 200 {
			t.Errorf("%s: %d %s", x.name, w.StatusCode, body)
		}
		if _, body := e.do("GET", of+"/"+name, nil, ""); !strings.Contains(body, `"status":`+x.want) {
			t.Errorf("%s: %s\nwant %s", x.name, body, x.want)
		}
	}
}

// TestFirstVersionOfARule: a rule that names several versions gets the first of them in the order of the definition.
func TestFirstVersionOfARule(t *testing.T) {
	e := newHookedEnv(t)
	e.lead()
	const version = `{"name":%q,"served":true,"storage":%v,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}`
	e.define(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"manys.stable.example.com"},"spec":{"group":"stable.example.com","scope":"Cluster","names":{"plural":"manys","kind":"Many"},"versions":[`+
		fmt.Sprintf(version, "v1alpha1", false)+","+fmt.Sprintf(version, "v1beta1", false)+","+fmt.Sprintf(version, "v1", true)+`]}}`, "/apis/stable.example.com/v1/manys")
	hook := newAdmissionHook(t)
	hook.set(allow)
	hook.configure(e, "Validating", "v", `,"rules":[{"apiGroups":["stable.example.com"],"apiVersions":["v1","v1alpha1"],"operations":["*"],"resources":["manys"]}]`)
	for _, x := range []struct{ sent, seen string }{{"v1beta1", "v1alpha1"}, {"v1", "v1"}, {"v1alpha1", "v1alpha1"}} {
		hook.set(allow)
		w, body := e.do("POST", "/apis/stable.example.com/"+x.sent+"/manys?dryRun=All", nil, `{"apiVersion":"stable.example.com/`+x.sent+`","kind":"Many","metadata":{"name":"m"}}`)
		if w.StatusCode != 201 || fmt.Sprint(hook.asked) != "[CREATE manys."+x.seen+"/ m]" {
			t.Errorf("sent in %s: %d, the webhook was asked %v; %s", x.sent, w.StatusCode, hook.asked, clip(body))
		}
	}
}

// TestMetadataInAnotherVersion: a patch in a version completes the object in it, and what was there before is not changed by
// that: its generation rises, whoever patches owns what came, and plugins see both.
func TestMetadataInAnotherVersion(t *testing.T) {
	for _, x := range []struct{ as, patch string }{
		{asMerge, `{"metadata":{"labels":{"l":"1"}}}`},
		{asJSONPatch, `[{"op":"add","path":"/metadata/labels","value":{"l":"1"}}]`},
	} {
		e := newHookedEnv(t)
		e.lead()
		e.define(narrow, narrowV1)
		if w, body := e.do("POST", narrowV1, nil, `{"apiVersion":"stable.example.com/v1","kind":"Narrow","metadata":{"name":"n"},"spec":{"r":1}}`); w.StatusCode != 201 {
			t.Fatalf("%d %s", w.StatusCode, body)
		}
		hook := newAdmissionHook(t)
		var seen []string
		hook.set(func(r map[string]any) map[string]any {
			seen = append(seen, fmt.Sprint(tree.Field(tree.As(r["oldObject"]), "spec"), tree.Field(tree.As(r["object"]), "spec")))
			return allow(r)
		})
		hook.configure(e, "Validating", "v", rule("stable.example.com", "v1alpha1", "narrows"))
		if w, body := e.do("PATCH", narrowAlpha+"/n?fieldManager=patcher", typed(x.as), x.patch); w.StatusCode != 200 {
			t.Fatalf("%d %s", w.StatusCode, body)
		}
		_, now := e.do("GET", narrowV1+"/n", nil, "")
		for _, want := range []string{`"spec":{"d":"D","r":1}`, `"generation":2`, `"f:spec":{"f:d":{}}},"manager":"patcher"`} {
			if !strings.Contains(now, want) {
				t.Errorf("%s: no %s in %s", x.as, want, now)
			}
		}
		if want := "[map[r:1] map[d:D r:1]]"; fmt.Sprint(seen) != want {
			t.Errorf("%s: the webhook has seen %v, want %s", x.as, seen, want)
		}
	}
}

// TestNullsOfWebhooks: what a webhook has made null, and cannot be, is refused.
func TestNullsOfWebhooks(t *testing.T) {
	e := newHookedEnv(t)
	e.lead()
	e.define(narrow, narrowV1)
	hook := newAdmissionHook(t)
	hook.set(patched(`[{"op":"add","path":"/spec/a","value":null}]`))
	hook.configure(e, "Mutating", "m", rule("stable.example.com", "v1", "narrows"))
	w, body := e.do("POST", narrowV1, nil, `{"apiVersion":"stable.example.com/v1","kind":"Narrow","metadata":{"name":"n"},"spec":{"r":1}}`)
	if w.StatusCode != 422 || !strings.Contains(body, `spec.a in body must be of type string: \"null\"`) {
		t.Errorf("%d %s", w.StatusCode, body)
	}
}

// TestNullsOfApply: a null in a field of which the schema names no type is gone at once, as that of a POST is, and not
// with the next write of anything.
func TestNullsOfApply(t *testing.T) {
	e := newEnv(t, nil)
	e.lead()
	loose := strings.NewReplacer("Narrow", "Loose", "narrow", "loose").Replace(narrow)
	const of = "/apis/stable.example.com/v1/namespaces/default/looses"
	loose = strings.ReplaceAll(loose, `"r":{"type":"integer"}`, `"r":{"type":"integer"},"any":{"x-kubernetes-preserve-unknown-fields":true}`)
	e.define(loose, of)
	for _, x := range []struct {
		name, method, path, as, body string
	}{
		{"apply of a new one", "PATCH", "/n?fieldManager=x", asApply, `{"apiVersion":"stable.example.com/v1","kind":"Loose","metadata":{"name":"n"},"spec":{"r":1,"any":null}}`},
		{"apply", "PATCH", "/n?fieldManager=x", asApply, `{"apiVersion":"stable.example.com/v1","kind":"Loose","metadata":{"name":"n"},"spec":{"any":null}}`},
		{"POST", "POST", "", asJSON, `{"apiVersion":"stable.example.com/v1","kind":"Loose","metadata":{"name":"o"},"spec":{"r":1,"any":null}}`},
		{"merge patch", "PATCH", "/o", asMerge, `{"spec":{"any":null}}`},
		{"JSON patch", "PATCH", "/o", "application/json-patch+json", `[{"op":"add","path":"/spec/any","value":null}]`},
	} {
		w, body := e.do(x.method, of+x.path, http.Header{"Content-Type": {x.as}}, x.body)
		if w.StatusCode/100 != 2 || strings.Contains(body, `"any"`) {
			t.Errorf("%s: %d %s", x.name, w.StatusCode, clip(body))
		}
	}
	// Nulls that have a type are refused of an apply, and stay where they are allowed.
	w, body := e.do("PATCH", of+"/p?fieldManager=x", http.Header{"Content-Type": {asApply}}, `{"apiVersion":"stable.example.com/v1","kind":"Loose","metadata":{"name":"p"},"spec":{"r":null}}`)
	if w.StatusCode != 422 {
		t.Errorf("a null of a type: %d %s", w.StatusCode, clip(body))
	}
}
