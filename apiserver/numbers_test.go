package apiserver_test

import (
	"strings"
	"testing"
)

// TestNumbersAreWhatWasSent: of a number that is no 64-bit integer the field decides what becomes of it, by the text that was
// sent, whatever sends it. Integers have no fraction, quantities lose no digits.
func TestNumbersAreWhatWasSent(t *testing.T) {
	e := newEnv(t, nil)
	const quotas = "/api/v1/namespaces/default/resourcequotas"
	ways := map[string]struct{ method, path, as, body string }{
		"create":     {"POST", quotas, asJSON, `{"metadata":{"name":"q"},"spec":{"hard":{"example.com/x":N}}}`},
		"YAML":       {"POST", quotas, "application/yaml", "metadata: {name: q}\nspec: {hard: {example.com/x: N}}\n"},
		"put":        {"PUT", quotas + "/q", asJSON, `{"metadata":{"name":"q"},"spec":{"hard":{"example.com/x":N}}}`},
		"merge":      {"PATCH", quotas + "/q", asMerge, `{"spec":{"hard":{"example.com/x":N}}}`},
		"JSON patch": {"PATCH", quotas + "/q", asJSONPatch, `[{"op":"replace","path":"/spec/hard/example.com~1x","value":N}]`},
		"strategic":  {"PATCH", quotas + "/q", asStrategic, `{"spec":{"hard":{"example.com/x":N}}}`},
		"apply":      {"PATCH", quotas + "/q?fieldManager=x&force=true", asApply, `{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"q"},"spec":{"hard":{"example.com/x":N}}}`},
	}
	for _, x := range []struct{ number, want, read string }{ // read: by who reads numbers before he knows of what
		{"18446744073709551615", "18446744073709551615", ""},
		{"9223372036854775808", "9223372036854775808", ""},
		{"1E3", "1E3", "1k"},
		{"1.5e9", "1500e6", "1500M"},
		{"1.0", "1", ""},
		{"1e21", "1e21", "1e+21"},
		{"-0", "0", ""},
	} {
		for name, way := range ways {
			t.Run(x.number+"/"+name, func(t *testing.T) {
				e.do("DELETE", quotas+"/q", nil, "")
				if way.method != "POST" {
					if w, body := e.do("POST", quotas, nil, `{"metadata":{"name":"q"},"spec":{"hard":{"example.com/x":"7"}}}`); w.StatusCode != 201 {
						t.Fatalf("%d %s", w.StatusCode, body)
					}
				}
				want := x.want
				if (name == "YAML" || name == "apply" || name == "strategic" && x.number != "1e21") && x.read != "" {
					want = x.read
				}
				w, body := e.do(way.method, way.path, typed(way.as), strings.ReplaceAll(way.body, "N", x.number))
				if w.StatusCode/100 != 2 || !strings.Contains(body, `"example.com/x":"`+want+`"`) {
					t.Errorf("%d %s, want %s", w.StatusCode, clip(body), want)
				}
			})
		}
	}
}

// TestNumbersOfOtherTypes: numbers that do not fit their field, and those of fields of any type.
func TestNumbersOfOtherTypes(t *testing.T) {
	e := newEnv(t, nil)
	e.lead()
	e.define(narrow, narrowV1)
	e.define(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"anys.stable.example.com"},
"spec":{"group":"stable.example.com","scope":"Namespaced","names":{"plural":"anys","kind":"Any"},
"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","additionalProperties":{"type":"number"}}}}}}]}}`,
		"/apis/stable.example.com/v1/namespaces/default/anys")
	const budgets, widgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets", narrowV1
	budget := func(n string) string {
		return `{"metadata":{"name":"b"},"spec":{"minAvailable":` + n + `,"selector":{}}}`
	}
	service := func(n string) string {
		return `{"metadata":{"name":"s"},"spec":{"clusterIP":"None","ports":[{"port":` + n + `}]}}`
	}
	const services = "/api/v1/namespaces/default/services"
	for _, x := range []struct {
		name, method, path, as, body string
		code                         int
		answer                       string
	}{
		{"minAvailable", "POST", budgets, asJSON, budget("1.0"), 400, "cannot unmarshal number 1.0 into Go"},
		{"minAvailable of 1", "POST", budgets, asJSON, budget("1"), 201, `"minAvailable":1`},
		{"port", "POST", services, asJSON, service("1.0"), 400, "cannot unmarshal number 1.0 into Go struct field ServicePort.spec.ports.port of type int32"},
		{"large port", "POST", services, asJSON, service("4294967296"), 400, "cannot unmarshal number 4294967296 into Go"},
		{"port with an exponent", "POST", services, asJSON, service("1e2"), 400, "cannot unmarshal number 1e2 into Go"},
		{"whole port in YAML", "POST", services, "application/yaml", "metadata: {name: s}\nspec: {clusterIP: None, ports: [{port: 80.0}]}\n", 201, `"port":80`},
		{"port by a merge patch", "PATCH", services + "/s", asMerge, `{"spec":{"ports":[{"port":81.0}]}}`, 422, "cannot unmarshal number 81.0 into Go"},
		{"port by a strategic merge patch", "PATCH", services + "/s", asStrategic, `{"spec":{"ports":[{"port":82.0,"name":"b"},{"port":80,"name":"a"}]}}`, 200, `"port":82`},
		{"half a port by a strategic merge patch", "PATCH", services + "/s", asStrategic, `{"spec":{"ports":[{"port":82.5}]}}`, 422, "cannot convert float64 to int32"},
		{"port by a JSON patch", "PATCH", services + "/s", asJSONPatch, `[{"op":"add","path":"/spec/ports/0/port","value":83.0}]`, 422, "cannot unmarshal number 83.0 into Go"},
		{"unknown field", "POST", services + "?fieldValidation=Ignore&dryRun=All", asJSON, `{"metadata":{"name":"t"},"x":1E400,"spec":{"clusterIP":"None","ports":[{"port":80}]}}`, 201, `"port":80`},
		{"text", "POST", services, asJSON, `{"metadata":{"name":1.5}}`, 400, "cannot unmarshal number into Go struct field"},
		{"any", "POST", "/apis/apps/v1/namespaces/default/controllerrevisions", asJSON, `{"metadata":{"name":"r"},"revision":1,"data":{"a":1.0,"b":2.5,"c":1e3}}`, 201, `"data":{"a":1.0,"b":2.5,"c":1e3}`},
		{"custom", "POST", widgets, asJSON, `{"apiVersion":"stable.example.com/v1","kind":"Narrow","metadata":{"name":"n"},"spec":{"r":1.0}}`, 201, `"r":1`},
		{"minus nothing", "POST", "/apis/stable.example.com/v1/namespaces/default/anys", asJSON, `{"apiVersion":"stable.example.com/v1","kind":"Any","metadata":{"name":"n"},"spec":{"n":-0.0,"m":-0}}`, 201, `"spec":{"m":0,"n":0}`},
	} {
		w, body := e.do(x.method, x.path, typed(x.as), x.body)
		if w.StatusCode != x.code || !strings.Contains(body, x.answer) {
			t.Errorf("%s: %d %s, want %d %s", x.name, w.StatusCode, clip(body), x.code, x.answer)
		}
	}
}
