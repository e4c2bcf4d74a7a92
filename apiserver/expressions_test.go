package apiserver_test

import (
	"fmt"
	"net/http"
	"path"
	"strings"
	"testing"

	"github.com/quorate/quorate/proto"
)

// TestExpressionsAreBounded: what would take seconds and hundreds of megabytes to compile, on
// every node, is refused without being compiled. What is stored already can be updated.
func TestExpressionsAreBounded(t *testing.T) {
	const rules = "/apis/admissionregistration.k8s.io/v1/"
	e := newEnv(t, nil)
	list := func(n int, element string) string {
		var b strings.Builder
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(strings.ReplaceAll(element, "N", fmt.Sprint(i)))
		}
		return "[" + b.String() + "]"
	}
	validating := func(name, spec string) string {
		return `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"` + name + `"},"spec":{"failurePolicy":"Fail","matchConstraints":{"matchPolicy":"Equivalent","namespaceSelector":{},"objectSelector":{},"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]},` + spec + `}}`
	}
	const variable, validation, condition = `{"name":"vN","expression":"1"}`, `{"expression":"true","messageExpression":"'a'"}`, `{"name":"cN","expression":"true"}`
	webhooks := func(n int) string {
		return `{"metadata":{"name":"w"},"webhooks":` + list(n, `{"name":"wN.example.com","clientConfig":{"url":"https://a"},"sideEffects":"None","admissionReviewVersions":["v1"],"matchConditions":`+strings.ReplaceAll(list(50, condition), "N", "x")+`}`) + `}`
	}
	definitionOf := func(properties string) string {
		return `{"metadata":{"name":"ys.e.com"},"spec":{"group":"e.com","scope":"Namespaced","names":{"plural":"ys","kind":"Y"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":` + properties + `}}}]}}`
	}
	definition := func(n int) string {
		return `{"metadata":{"name":"xs.e.com"},"spec":{"group":"e.com","scope":"Namespaced","names":{"plural":"xs","kind":"X"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"a":{"type":"integer"}},"x-kubernetes-validations":` + list(n, `{"rule":"self.a >= N"}`) + `}}}}}]}}`
	}
	const definitions = "../../apiextensions.k8s.io/v1/customresourcedefinitions"
	const claims = "../../resource.k8s.io/v1/namespaces/default/resourceclaims"
	claim := func(requests, ways, selectors int) string {
		selector := strings.ReplaceAll(list(selectors, `{"cel":{"expression":"true"}}`), "N", "0")
		way := list(ways, `{"name":"wN",CLASS,"selectors":SELECTORS}`)
		request := list(requests, `{"name":"rN","firstAvailable":WAYS}`)
		return `{"metadata":{"name":"claim"},"spec":{"devices":{"requests":` + strings.NewReplacer("SELECTORS", selector, "CLASS", `"deviceClassName":"c"`).Replace(strings.ReplaceAll(request, "WAYS", way)) + `}}}`
	}
	for _, x := range []struct {
		name, path, body string
		code             int
		answer           string
	}{
		{"variables", "validatingadmissionpolicies", validating("a", `"variables":`+list(1000, variable)+`,"validations":[{"expression":"true"}]`), 422, "spec: Forbidden: has 1001 expressions, at most 1000"},
		{"many small ones", "validatingadmissionpolicies", validating("b", `"validations":`+list(500, validation)), 201, ""},
		{"one more", "validatingadmissionpolicies", validating("c", `"validations":`+list(501, validation)), 422, "spec: Forbidden: has 1002 expressions"},
		{"mutations", "mutatingadmissionpolicies", strings.Replace(validating("d", `"reinvocationPolicy":"Never","mutations":`+list(1001, `{"patchType":"JSONPatch","jsonPatch":{"expression":"[]"}}`)), "ValidatingA", "MutatingA", 1), 422, "spec: Forbidden: has 1001 expressions"},
		{"conditions of webhooks", "validatingwebhookconfigurations", webhooks(21), 422, "webhooks: Forbidden: has 1050 expressions"},
		{"conditions of mutating webhooks", "mutatingwebhookconfigurations", webhooks(21), 422, "webhooks: Forbidden: has 1050 expressions"},
		{"selectors of a claim", claims, claim(32, 8, 4), 422, "spec: Forbidden: has 1024 expressions"},
		{"selectors of a template", strings.Replace(claims, "claims", "claimtemplates", 1), strings.Replace(claim(32, 8, 4), `"spec":{`, `"spec":{"spec":{`, 1) + "}", 422, "spec: Forbidden: has 1024 expressions"},
		{"fewer selectors", claims, claim(2, 8, 4), 201, ""},
		{"a wrong selector", claims, strings.Replace(claim(1, 1, 1), "true", "1 +", 1), 422, "Syntax error"},
		{"rules of a definition", definitions, definition(2001), 422, "spec.versions: Forbidden: have 2001 rules"},
		{"rules of a property that is called like them", definitions, definitionOf(`{"x-kubernetes-validations":{"type":"object","properties":{"a":{"type":"integer"}},"x-kubernetes-validations":` + list(2001, `{"rule":"self.a >= N"}`) + `}}`), 422, "spec.versions: Forbidden: have 2001 rules"},
		{"rules with messages", definitions, definitionOf(`{"spec":{"type":"object","properties":{"a":{"type":"integer"}},"x-kubernetes-validations":` + list(1001, `{"rule":"self.a >= N","messageExpression":"'N'"}`) + `}}`), 422, "spec.versions: Forbidden: have 2002 rules"},
		{"fewer", definitions, definition(20), 201, ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			if w, answer := e.do(http.MethodPost, path.Join(rules, x.path), nil, x.body); w.StatusCode != x.code || !strings.Contains(answer, x.answer) {
				t.Errorf("%d %s, want %d %s", w.StatusCode, clip(answer), x.code, x.answer)
			}
		})
	}
	stored := validating("old", `"validations":`+list(600, validation))
	before, after, _ := strings.Cut(strings.Replace(stored, `"name":"old"`, `"name":"old","uid":"u","resourceVersion":"*"`, 1), "*")
	if _, err := e.mem.Propose(t.Context(), &proto.Write{Table: "validatingadmissionpolicies.admissionregistration.k8s.io", Key: "old", Op: proto.Op_OP_PUT, Uid: "u", Value: []byte(before + after), RevisionOffset: uint32(len(before))}); err != nil {
		t.Fatal(err)
	}
	merge := http.Header{"Content-Type": {"application/merge-patch+json"}}
	if w, answer := e.do(http.MethodPatch, rules+"validatingadmissionpolicies/old", merge, `{"metadata":{"labels":{"a":"b"}}}`); w.StatusCode != 200 {
		t.Errorf("what was there before: %d %s", w.StatusCode, clip(answer))
	}
	if w, answer := e.do(http.MethodPatch, rules+"validatingadmissionpolicies/old", merge, `{"spec":{"variables":[{"name":"one","expression":"1"}]}}`); w.StatusCode != 422 {
		t.Errorf("one more: %d %s", w.StatusCode, clip(answer))
	}
}

// TestExpressionsAreBoundedTogether: what all policies and configurations of webhooks take compiled is bounded, because
// each node keeps it. What is there already can be updated, and deleted.
func TestExpressionsAreBoundedTogether(t *testing.T) {
	const rules = "/apis/admissionregistration.k8s.io/v1/"
	e := newEnv(t, nil)
	body := func(name string, expressions int) string {
		return `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"` + name + `"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]},"validations":[` +
			strings.Repeat(`{"expression":"true"},`, expressions-1) + `{"expression":"true"}]}}`
	}
	webhooks := func(name string, conditions int) string {
		var list []string
		for i := range conditions {
			list = append(list, fmt.Sprintf(`{"name":"c%d","expression":"true"}`, i))
		}
		var hooks []string
		for i := 0; len(list) > 0; i++ {
			n := min(64, len(list))
			hooks = append(hooks, fmt.Sprintf(`{"name":"w%d.example.com","clientConfig":{"url":"https://a"},"sideEffects":"None","admissionReviewVersions":["v1"],"matchConditions":[%s]}`, i, strings.Join(list[:n], ",")))
			list = list[n:]
		}
		return `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"` + name + `"},"webhooks":[` + strings.Join(hooks, ",") + `]}`
	}
	stored := func(resource, name, body string) {
		t.Helper()
		before, after, _ := strings.Cut(strings.Replace(body, `"metadata":{`, `"metadata":{"uid":"u","resourceVersion":"*",`, 1), "*")
		if _, err := e.mem.Propose(t.Context(), &proto.Write{Table: resource + ".admissionregistration.k8s.io", Key: name, Op: proto.Op_OP_PUT, Uid: "u", Value: []byte(before + after), RevisionOffset: uint32(len(before))}); err != nil {
			t.Fatal(err)
		}
	}
	// 54 KiB and some for each of 4,854: 256 MiB.
	for i := range 4 {
		stored("validatingadmissionpolicies", fmt.Sprint("p", i), body(fmt.Sprint("p", i), 950))
	}
	stored("mutatingwebhookconfigurations", "w", webhooks("w", 950))
	const refusal = "take 5418 KiB compiled, those of all other policies and configurations of webhooks 257390 KiB: at most 262144 KiB are kept"
	for _, x := range []struct {
		name, resource, body string
		code                 int
		answer               string
	}{
		{"a policy", "validatingadmissionpolicies", body("more", 100), 422, "spec: Forbidden: the expressions " + refusal},
		{"a configuration", "validatingwebhookconfigurations", webhooks("more", 100), 422, "webhooks: Forbidden: the expressions "},
		{"a small one", "validatingadmissionpolicies", body("small", 50), 201, ""},
		{"one without expressions", "validatingwebhookconfigurations", webhooks("none", 0), 201, ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			if w, answer := e.do(http.MethodPost, rules+x.resource, nil, x.body); w.StatusCode != x.code || !strings.Contains(answer, x.answer) {
				t.Errorf("%d %s, want %d %s", w.StatusCode, clip(answer), x.code, x.answer)
			}
		})
	}
	stored("validatingadmissionpolicies", "old", body("old", 999)) // as from before there was a bound
	merge := http.Header{"Content-Type": {"application/merge-patch+json"}}
	if w, answer := e.do(http.MethodPatch, rules+"validatingadmissionpolicies/old", merge, `{"metadata":{"labels":{"a":"b"}},"spec":{"validations":[{"expression":"true"}]}}`); w.StatusCode != 200 {
		t.Errorf("a smaller one: %d %s", w.StatusCode, clip(answer))
	}
	if w, answer := e.do(http.MethodPatch, rules+"validatingadmissionpolicies/small", merge, `{"spec":{"variables":[{"name":"one","expression":"1"}]}}`); w.StatusCode != 200 {
		t.Errorf("there is room again: %d %s", w.StatusCode, clip(answer))
	}
}
