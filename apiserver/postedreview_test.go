package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/internal/must"
)

// TestReviewsOfWhatIsPosted: plugins see what is posted as upstream's do: mutating ones with what its kind has by default and
// the namespace, validating ones with all that the server fills in.
func TestReviewsOfWhatIsPosted(t *testing.T) {
	e := newAdmittingEnv(t, func(c *apiserver.Config) { c.Tokens = noTokens{} })
	for _, x := range [][2]string{
		{"/api/v1/namespaces/default/serviceaccounts", `{"metadata":{"name":"robot"}}`},
		{"/api/v1/namespaces/default/pods", `{"metadata":{"name":"p"},"spec":{"serviceAccountName":"robot","containers":[{"name":"c","image":"i"}]}}`},
	} {
		if w, answer := e.do("POST", x[0], nil, x[1]); w.StatusCode != 201 {
			t.Fatalf("%s: %d %s", x[0], w.StatusCode, answer)
		}
	}
	_, body := e.do("GET", "/api/v1/namespaces/default/serviceaccounts/robot", nil, "")
	var account tree.Object
	must.OK(t, json.Unmarshal([]byte(body), &account))
	uid := tree.Text(tree.As(account["metadata"]), "uid")
	var seen []string
	see := func(r map[string]any) map[string]any {
		obj := tree.As(r["object"])
		if meta := tree.As(obj["metadata"]); meta["creationTimestamp"] != nil {
			if at, err := time.Parse(time.RFC3339, tree.Text(meta, "creationTimestamp")); err != nil || at.IsZero() {
				t.Errorf("made at %v", meta["creationTimestamp"])
			}
			meta["creationTimestamp"] = "NOW"
		}
		b, err := json.Marshal(map[string]any{"object": obj, "name": r["name"], "namespace": r["namespace"]})
		if err != nil {
			t.Error(err)
		}
		seen = append(seen, strings.ReplaceAll(string(b), uid, "UID"))
		return allow(r)
	}
	mutates, validates := newAdmissionHook(t), newAdmissionHook(t)
	mutates.set(see)
	validates.set(see)
	const all = `,"rules":[{"apiGroups":["*"],"apiVersions":["*"],"operations":["CREATE"],"resources":["serviceaccounts/token","bindings","localsubjectaccessreviews","selfsubjectreviews","namespaces"]}]`
	mutates.configure(e, "Mutating", "m", all)
	validates.configure(e, "Validating", "v", all)
	for _, x := range []struct {
		name, path, body string
		code             int
		seen             []string
	}{
		{"token", "/api/v1/namespaces/default/serviceaccounts/robot/token", `{"spec":{}}`, 201, []string{
			`{"name":"robot","namespace":"default","object":{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","metadata":{"namespace":"default"},"spec":{"audiences":null,"boundObjectRef":null,"expirationSeconds":3600},"status":{"expirationTimestamp":null,"token":""}}}`,
			`{"name":"robot","namespace":"default","object":{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","metadata":{"creationTimestamp":"NOW","name":"robot","namespace":"default","uid":"UID"},"spec":{"audiences":["api"],"boundObjectRef":null,"expirationSeconds":3600},"status":{"expirationTimestamp":null,"token":""}}}`,
		}},
		{"token for another", "/api/v1/namespaces/default/serviceaccounts/robot/token", `{"spec":{"audiences":["vault"],"expirationSeconds":601}}`, 201, []string{
			`{"name":"robot","namespace":"default","object":{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","metadata":{"namespace":"default"},"spec":{"audiences":["vault"],"boundObjectRef":null,"expirationSeconds":601},"status":{"expirationTimestamp":null,"token":""}}}`,
			`{"name":"robot","namespace":"default","object":{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","metadata":{"creationTimestamp":"NOW","name":"robot","namespace":"default","uid":"UID"},"spec":{"audiences":["vault"],"boundObjectRef":null,"expirationSeconds":601},"status":{"expirationTimestamp":null,"token":""}}}`,
		}},
		{"invalid token", "/api/v1/namespaces/default/serviceaccounts/robot/token", `{"spec":{"expirationSeconds":1}}`, 422, []string{
			`{"name":"robot","namespace":"default","object":{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","metadata":{"namespace":"default"},"spec":{"audiences":null,"boundObjectRef":null,"expirationSeconds":1},"status":{"expirationTimestamp":null,"token":""}}}`,
		}},
		{"binding", "/api/v1/namespaces/default/bindings", `{"metadata":{"name":"p"},"target":{"kind":"Node","name":"n"}}`, 201, []string{
			`{"name":"p","namespace":"default","object":{"apiVersion":"v1","kind":"Binding","metadata":{"name":"p","namespace":"default"},"target":{"kind":"Node","name":"n"}}}`,
			`{"name":"p","namespace":"default","object":{"apiVersion":"v1","kind":"Binding","metadata":{"name":"p","namespace":"default"},"target":{"kind":"Node","name":"n"}}}`,
		}},
		{"binding that says what the server sets", "/api/v1/namespaces/default/bindings", `{"metadata":{"name":"q","uid":"u","selfLink":"/"},"target":{"kind":"Node","name":"n"}}`, 404, []string{
			`{"name":"q","namespace":"default","object":{"apiVersion":"v1","kind":"Binding","metadata":{"name":"q","namespace":"default"},"target":{"kind":"Node","name":"n"}}}`,
			`{"name":"q","namespace":"default","object":{"apiVersion":"v1","kind":"Binding","metadata":{"name":"q","namespace":"default"},"target":{"kind":"Node","name":"n"}}}`,
		}},
		{"binding elsewhere", "/api/v1/namespaces/default/bindings", `{"metadata":{"name":"p","namespace":"other"},"target":{"name":"n"}}`, 400, nil},
		{"review in a namespace that it cannot have", "/apis/authentication.k8s.io/v1/selfsubjectreviews", `{"metadata":{"namespace":"default"}}`, 201, []string{
			`{"name":null,"namespace":null,"object":{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview","metadata":{},"status":{"userInfo":{}}}}`,
			`{"name":null,"namespace":null,"object":{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview","metadata":{},"status":{"userInfo":{}}}}`,
		}},
		{"invalid review", "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews", `{"metadata":{"uid":"u","selfLink":"/","managedFields":[{}]},"spec":{"user":"u"}}`, 422, []string{
			`{"name":null,"namespace":"default","object":{"apiVersion":"authorization.k8s.io/v1","kind":"LocalSubjectAccessReview","metadata":{"namespace":"default"},"spec":{"user":"u"},"status":{"allowed":false}}}`,
		}},
	} {
		seen = nil
		if w, answer := e.do("POST", x.path, nil, x.body); w.StatusCode != x.code {
			t.Errorf("%s: %d %s", x.name, w.StatusCode, answer)
		}
		if got, want := strings.Join(seen, "\n"), strings.Join(x.seen, "\n"); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", x.name, got, want)
		}
	}
	for name, body := range map[string]string{"": `{"metadata":{"generateName":"g-"}}`, "n": `{"metadata":{"name":"n"}}`} {
		seen = nil
		if w, answer := e.do("POST", "/api/v1/namespaces", nil, body); w.StatusCode != 201 {
			t.Errorf("%d %s", w.StatusCode, answer)
		}
		for i, got := range seen {
			var r map[string]any
			must.OK(t, json.Unmarshal([]byte(got), &r))
			if text, _ := r["namespace"].(string); text != name {
				t.Errorf("review %d of %s is about the namespace %q", i, body, text)
			}
		}
		if len(seen) != 2 {
			t.Errorf("%d reviews", len(seen))
		}
	}
}

// TestPoliciesOfSubresources: a mutating policy that matches everything changes what only subresources are sent, or is told
// what it cannot do; it does not make them unavailable.
func TestPoliciesOfSubresources(t *testing.T) {
	const (
		policies  = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
		namespace = "/api/v1/namespaces/default"
		patching  = `{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op:'add',path:'/metadata/labels',value:{'a':'b'}}]"}}`
		applying  = `{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{metadata: Object.metadata{labels: {'a':'b'}}}"}}`
	)
	e := newAdmittingEnv(t, func(c *apiserver.Config) { c.Tokens = noTokens{} })
	e.lead()
	do := func(method, path, as, body string, code int) {
		t.Helper()
		if w, got := e.do(method, path, http.Header{"Content-Type": {as}}, body); w.StatusCode != code {
			t.Errorf("%s %s: %d, want %d: %s", method, path, w.StatusCode, code, clip(got))
		}
	}
	do("POST", namespace+"/serviceaccounts", asJSON, `{"metadata":{"name":"a"}}`, 201)
	do("POST", namespace+"/serviceaccounts", asJSON, `{"metadata":{"name":"default"}}`, 201)
	do("POST", namespace+"/pods", asJSON, `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`, 201)
	do("POST", "/apis/apps/v1/namespaces/default/deployments", asJSON, `{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`, 201)
	for i, x := range []struct {
		name, mutation string
		exec           int
	}{
		// Nobody runs a command here: it is the server that says so.
		{"patch", `{"patchType":"JSONPatch","jsonPatch":{"expression":"false ? [JSONPatch{op:'test',path:'/a'}] : []"}}`, 501},
		{"patch-labels", patching, 403},
		// There is no schema of the options of a command.
		{"apply", applying, 403},
	} {
		name := fmt.Sprint("all-", i)
		do("POST", policies, asJSON, `{"metadata":{"name":"`+name+`"},"spec":{"reinvocationPolicy":"Never","matchConstraints":{"resourceRules":[{"apiGroups":["*"],"apiVersions":["*"],"operations":["*"],"resources":["*/*"]}]},"mutations":[`+x.mutation+`]}}`, 201)
		do("POST", "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings", asJSON, `{"metadata":{"name":"`+name+`"},"spec":{"policyName":"`+name+`"}}`, 201)
		do("POST", namespace+"/serviceaccounts/a/token", asJSON, `{"spec":{}}`, 201)
		do("POST", namespace+"/pods/p/eviction?dryRun=All", asJSON, `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"p"}}`, 201)
		do("PATCH", "/apis/apps/v1/namespaces/default/deployments/d/scale", asMerge, `{"spec":{"replicas":3}}`, 200)
		do("POST", namespace+"/pods/p/binding?dryRun=All", asJSON, `{"metadata":{"name":"p"},"target":{"name":"n"}}`, 201)
		do("POST", namespace+"/configmaps?dryRun=All", asJSON, `{"metadata":{"name":"c"}}`, 201)
		do("POST", namespace+"/pods/p/exec?command=x&stdout=true", asJSON, ``, x.exec)
		do("DELETE", "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings/"+name, asJSON, ``, 200)
	}
}
