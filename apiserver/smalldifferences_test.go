package apiserver_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestAsUpstreamInSmallThings: requests of other projects' reports, and what upstream answers.
func TestAsUpstreamInSmallThings(t *testing.T) {
	e := newEnv(t, nil)
	const services, deployments = "/api/v1/namespaces/default/services", "/apis/apps/v1/namespaces/default/deployments"
	for _, x := range []struct {
		name, method, path, as, body string
		header                       http.Header
		code                         int
		has, lacks, warning          string
	}{
		{"an empty header asks for nothing", "GET", "/api/v1/namespaces/default", "", "", http.Header{"Impersonate-User": {""}}, 200, `"name":"default"`, "", ""},
		{"a group without a user", "GET", "/api/v1/namespaces/default", "", "", http.Header{"Impersonate-User": {""}, "Impersonate-Group": {"g"}}, 400, "without impersonating a user", "", ""},
		{"an address", "POST", services, asJSON, `{"metadata":{"name":"s"},"spec":{"type":"ClusterIP","clusterIP":"None","ports":[{"port":80}]}}`, nil, 201, `"internalTrafficPolicy":"Cluster"`, "", ""},
		{"and none", "PATCH", services + "/s", asMerge, `{"spec":{"type":"ExternalName","externalName":"q.r","clusterIP":null}}`, nil, 200, `"type":"ExternalName"`, "internalTrafficPolicy", ""},
		{"none from the beginning", "POST", services, asJSON, `{"metadata":{"name":"t"},"spec":{"type":"ExternalName","externalName":"q.r","internalTrafficPolicy":"Local"}}`, nil, 201, `"type":"ExternalName"`, "internalTrafficPolicy", ""},
		{"a wrong policy", "POST", services, asJSON, `{"metadata":{"name":"u"},"spec":{"type":"ExternalName","externalName":"q.r","internalTrafficPolicy":"Nearest"}}`, nil, 422, "spec.internalTrafficPolicy", "", ""},
		{"namespaces by name", "GET", "/api/v1/namespaces?fieldSelector=name%3Ddefault", "", "", nil, 400, "field label not supported: name", "", ""},
		{"volumes by name", "GET", "/api/v1/persistentvolumes?fieldSelector=name%3Dp", "", "", nil, 400, "is not a known field selector: only", "", ""},
		{"Pods by their addresses", "GET", "/api/v1/pods?fieldSelector=status.podIPs%3D1.2.3.4", "", "", nil, 200, `"items":[]`, "", ""},
		{"Pods by host", "GET", "/api/v1/pods?fieldSelector=spec.host%3Dh", "", "", nil, 200, `"items":[]`, "", ""},
		{"a template that is warned of", "POST", deployments, asJSON, `{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}],"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"z","whenUnsatisfiable":"DoNotSchedule"}]}}}}`, nil, 201, `"generation":1`, "", "a null labelSelector results in matching no pod"},
		{"annotations of it", "PATCH", deployments + "/d", asMerge, `{"metadata":{"annotations":{"a":"1"}}}`, nil, 200, `"generation":2`, "", "a null labelSelector results in matching no pod"},
		{"an empty list of managers", "PATCH", "/api/v1/namespaces/default/configmaps/c?fieldManager=x", asApply, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","managedFields":[]}}`, nil, 400, "metadata.managedFields must be nil", "", ""},
		{"a Job whose name is too long for a label", "POST", "/apis/batch/v1/namespaces/default/jobs", asJSON, `{"metadata":{"name":"` + strings.Repeat("a", 64) + `"},"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`, nil, 422, `"field":"spec.template.labels"`, "", ""},
		{"a grace period with a fraction", "DELETE", deployments + "/d", asJSON, `{"gracePeriodSeconds":1.0}`, nil, 400, "gracePeriodSeconds", "", ""},
		{"a grace period", "DELETE", deployments + "/d", asJSON, `{"gracePeriodSeconds":1,"dryRun":["All"]}`, nil, 200, "", "", ""},
		{"labels of it", "PATCH", deployments + "/d", asMerge, `{"metadata":{"labels":{"a":"1"}}}`, nil, 200, `"generation":2`, "", "none"},
	} {
		header := x.header.Clone()
		if header == nil {
			header = http.Header{}
		}
		if x.as != "" {
			header.Set("Content-Type", x.as)
		}
		w, body := e.do(x.method, x.path, header, x.body)
		// What was generated for a Job's template is not the Job's when it is validated.
		if strings.Contains(body, `"field":"metadata.labels"`) {
			t.Errorf("%s: %s", x.name, clip(body))
		}
		if w.StatusCode != x.code || !strings.Contains(body, x.has) || x.lacks != "" && strings.Contains(spec(body), x.lacks) {
			t.Errorf("%s: %d %s", x.name, w.StatusCode, clip(body))
		}
		if got := w.Header.Get("Warning"); x.warning == "none" && got != "" || x.warning != "none" && !strings.Contains(got, x.warning) {
			t.Errorf("%s: warned %q", x.name, got)
		}
	}
	// It would not end before the client gives up.
	if w, body := e.do("GET", "/api/v1/namespaces/default/configmaps?watch=true&timeoutSeconds=-1", nil, ""); w.StatusCode != 200 {
		t.Errorf("a watch whose time is over: %d %s", w.StatusCode, body)
	}
}

// spec is an object without what says who owns its fields.
func spec(body string) string {
	_, after, _ := strings.Cut(body, `"spec":{`)
	return after
}
