package node

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// serving is a node that serves, and what asks it as its administrator: the answer's status and body.
// What is behind the path, each "NAME: VALUE", are headers.
func serving(t *testing.T, settings ...func(*Config)) func(method, path, body string, headers ...string) (int, string) {
	t.Helper()
	c := alone(t)
	for _, set := range settings {
		set(&c)
	}
	n := open(t, c)
	ran := make(chan error, 1)
	go func() { ran <- n.Run(t.Context()) }() // ends with Close
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
	if err := n.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := n.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return func(method, path, body string, headers ...string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, n.URL()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		for _, h := range headers {
			name, value, _ := strings.Cut(h, ": ")
			r.Header.Add(name, value)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, strings.Join(resp.Header["Warning"], " ") + string(data)
	}
}

const (
	suspensionsPath = "/quorate/v1/admission/suspensions"
	policiesPath    = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
)

// TestSuspensionOfAnObject: what is suspended is the object that had the name, no later one, and only
// while it is there it is listed and clients that write are warned. It names who has suspended it, and
// only masters may.
func TestSuspensionOfAnObject(t *testing.T) {
	t.Parallel()
	ask := serving(t)
	must := func(method, path, body string, want int) string {
		t.Helper()
		code, text := ask(method, path, body)
		if code != want {
			t.Fatalf("%s %s: %d: %s", method, path, code, text)
		}
		return text
	}
	policy := `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"x"},"spec":{` +
		`"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]},` +
		`"validations":[{"expression":"false"}]}}`
	writes := 0
	check := func(suspended bool) {
		t.Helper()
		writes++
		answer := must("POST", "/api/v1/namespaces/default/configmaps", fmt.Sprintf(`{"metadata":{"name":"c%d"}}`, writes), 201)
		if got := strings.Contains(answer, "is suspended"); got != suspended {
			t.Errorf("warned: %v, want %v: %s", got, suspended, answer)
		}
		var report AdmissionReport
		if err := json.Unmarshal([]byte(must("GET", "/quorate/v1/admission", "", 200)), &report); err != nil {
			t.Fatal(err)
		}
		if got := len(report.Suspensions) > 0; got != suspended {
			t.Errorf("in force: %v, want %v", report.Suspensions, suspended)
		}
		for _, r := range report.Rules {
			if got := r.SuspendedUntil != nil; r.Configuration == "x" && got != suspended {
				t.Errorf("listed as suspended: %v, want %v", got, suspended)
			}
		}
	}
	must("POST", policiesPath, policy, 201)
	check(false)
	before := time.Now()
	var made struct{ Until time.Time }
	if err := json.Unmarshal([]byte(must("POST", suspensionsPath, `{"name":"x","seconds":600}`, 200)), &made); err != nil {
		t.Fatal(err)
	}
	if d := made.Until.Sub(before); d < 600*time.Second {
		t.Errorf("it lasts for %v", d)
	}
	check(true)
	must("DELETE", policiesPath+"/x", "", 200)
	check(false)
	must("POST", policiesPath, policy, 201)
	check(false)
	must("DELETE", suspensionsPath+"/-/x", "", 404)
	must("POST", suspensionsPath, `{"name":"x","seconds":600}`, 200)
	check(true)
	must("DELETE", suspensionsPath+"/-/x", "", 200)
	check(false)
	must("PUT", suspensionsPath, "", 405)

	for _, row := range []struct {
		name, group, want string
		code              int
	}{
		{"carol", "system:masters", `"by":"carol (impersonated by `, 200},
		{"carol", "devs", `"code":"Forbidden"`, 403},
	} {
		// devs may do everything else: it is not the authorizer that refuses.
		must("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"`+strings.ReplaceAll(row.group, ":", "-")+`"},
			"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},
			"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"`+row.group+`"}]}`, 201)
		code, answer := ask("POST", suspensionsPath, `{"name":"x","seconds":1}`, "Impersonate-User: "+row.name, "Impersonate-Group: "+row.group)
		if code != row.code || !strings.Contains(answer, row.want) {
			t.Errorf("%s of %s: %d: %s, want %d and %s", row.name, row.group, code, answer, row.code, row.want)
		}
	}
}

// TestPeriod: a suspension is never shorter than was asked for.
func TestPeriod(t *testing.T) {
	second := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	for past, want := range map[time.Duration]time.Duration{
		0: 10 * time.Second, 1: 11 * time.Second, time.Millisecond: 11 * time.Second, time.Second - 1: 11 * time.Second, time.Second: 11 * time.Second,
	} {
		since, until := period(second.Add(past).In(time.FixedZone("there", 3600)), 10*time.Second)
		if until.Sub(second) != want || until.Location() != time.UTC || since != second.Add(past).Truncate(time.Second) {
			t.Errorf("%v after the second: from %v until %v, want %v later", past, since, until, want)
		}
	}
}
