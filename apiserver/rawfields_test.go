package apiserver_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestRawFields: fields that belong to others come back as they were sent, whatever is written beside them: the order of
// their fields and the texts of their numbers are the client's.
func TestRawFields(t *testing.T) {
	const (
		raw    = `{"b":12345678901234567890,"a":1.0,"c":[1e3,{"z":-0.0,"y":"é"}],"d":null}`
		other  = `{"b":12345678901234567891,"a":1.00}`
		ofApps = "/apis/apps/v1/namespaces/default/controllerrevisions"
		claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
		// What is applied is read as YAML, which sorts fields.
		applied = `{"a":1,"b":12345678901234567890,"c":[1000,{"y":"é","z":-0}],"d":null}`
	)
	e := newEnv(t, nil)
	e.lead()
	for _, x := range []struct{ name, method, path, as, body, want string }{
		{"POST", "POST", ofApps, asJSON, `{"metadata":{"name":"c"},"revision":1,"data":` + raw + `}`, raw},
		{"POST with spaces", "POST", ofApps, asJSON, "{\"metadata\":{\"name\":\"d\"},\"revision\":1,\"data\":" + strings.ReplaceAll(raw, ",", " ,\n ") + "}", raw},
		{"POST of a text that is escaped", "POST", ofApps, asJSON, `{"metadata":{"name":"e"},"revision":1,"data":{"x":"<a>","b":1.50}}`, `{"x":"\u003ca\u003e","b":1.50}`},
		{"merge patch of a label", "PATCH", ofApps + "/c", asMerge, `{"metadata":{"labels":{"a":"b"}}}`, raw},
		{"JSON patch of a label", "PATCH", ofApps + "/c", asJSONPatch, `[{"op":"add","path":"/metadata/labels/b","value":"c"}]`, raw},
		{"strategic patch of the revision", "PATCH", ofApps + "/c", asStrategic, `{"revision":2}`, raw},
		{"PUT", "PUT", ofApps + "/c", asJSON, `{"metadata":{"name":"c"},"revision":3,"data":` + raw + `}`, raw},
		{"apply of a new one", "PATCH", ofApps + "/f?fieldManager=m", asApply, `{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{"name":"f"},"revision":3,"data":` + raw + `}`, applied},
		{"apply of the revision", "PATCH", ofApps + "/f?fieldManager=n", asApply, `{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{"name":"f"},"revision":3}`, applied},
		{"parameters", "POST", claims, asJSON, `{"metadata":{"name":"r"},"spec":{"devices":{"requests":[{"name":"q","exactly":{"deviceClassName":"x"}}],` +
			`"config":[{"opaque":{"driver":"a.b","parameters":` + raw + `}},{"opaque":{"driver":"a.b","parameters":` + other + `}}]}}}`, `"parameters":` + raw + `}},{"opaque":{"driver":"a.b","parameters":` + other},
		{"a label beside them", "PATCH", claims + "/r", asMerge, `{"metadata":{"labels":{"a":"b"}}}`, `"parameters":` + other},
		{"parameters of a class", "POST", "/apis/resource.k8s.io/v1/deviceclasses", asJSON, `{"metadata":{"name":"k"},"spec":{"config":[{"opaque":{"driver":"a.b","parameters":` + raw + `}}]}}`, `"parameters":` + raw},
		{"JSON patch of a part", "PATCH", "/apis/resource.k8s.io/v1/deviceclasses/k?dryRun=All", asJSONPatch, `[{"op":"add","path":"/spec/config/0/opaque/parameters/e","value":0.0},{"op":"remove","path":"/spec/config/0/opaque/parameters/c"}]`, `"parameters":{"a":1.0,"b":12345678901234567890,"d":null,"e":0.0}`},
		{"merge patch", "PATCH", "/apis/resource.k8s.io/v1/deviceclasses/k", asMerge, `{"spec":{"config":[{"opaque":{"driver":"a.b","parameters":{"c":null,"e":0.0,"f":[1e3]}}}]}}`, `"parameters":{"e":0.0,"f":[1e3]}`},
	} {
		w, body := e.do(x.method, x.path, http.Header{"Content-Type": {x.as}}, x.body)
		if w.StatusCode/100 != 2 || !strings.Contains(body, x.want) {
			t.Errorf("%s: %d %s\nwant %s", x.name, w.StatusCode, body, x.want)
		}
	}
	// Another text is another value.
	if w, body := e.do("PUT", ofApps+"/c", http.Header{"Content-Type": {asJSON}}, `{"metadata":{"name":"c"},"revision":3,"data":`+strings.Replace(raw, "1.0", "1", 1)+`}`); w.StatusCode != 422 || !strings.Contains(body, `\"b\":12345678901234567890,\"a\":1,`) {
		t.Errorf("PUT of another text: %d %s", w.StatusCode, body)
	}
	for path, want := range map[string]string{ofApps + "/c": `"data":` + raw, ofApps + "/f": `"data":` + applied, claims + "/r": `"parameters":` + other, ofApps: `"data":` + raw} {
		if w, body := e.do("GET", path, nil, ""); w.StatusCode != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s\nwant %s", path, w.StatusCode, body, want)
		}
	}
}
