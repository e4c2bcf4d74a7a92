package apiserver_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestEphemeralPaths: an ephemeral container mounts volumes as a whole, so that no path leads out of one.
func TestEphemeralPaths(t *testing.T) {
	e := newEnv(t, nil)
	if w, answer := e.do(http.MethodPost, podsPath, nil, `{"metadata":{"name":"p"},"spec":{"volumes":[{"name":"v","emptyDir":{}}],"containers":[{"name":"c","image":"x"}]}}`); w.StatusCode != http.StatusCreated {
		t.Fatalf("%d %s", w.StatusCode, answer)
	}
	strategic := http.Header{"Content-Type": {asStrategic}}
	for _, row := range []struct {
		more, says string
		code       int
	}{
		{`,"subPath":"../.."`, "spec.ephemeralContainers[0].volumeMounts[0].subPath: Forbidden: cannot be set for an Ephemeral Container", http.StatusUnprocessableEntity},
		{`,"subPathExpr":"$(X)"`, "volumeMounts[0].subPathExpr: Forbidden", http.StatusUnprocessableEntity},
		{"", `"ephemeralContainers"`, http.StatusOK},
	} {
		body := `{"spec":{"ephemeralContainers":[{"name":"d","image":"x","volumeMounts":[{"name":"v","mountPath":"/v"` + row.more + `}]}]}}`
		w, answer := e.do(http.MethodPatch, podsPath+"/p/ephemeralcontainers", strategic, body)
		if w.StatusCode != row.code || !strings.Contains(answer, row.says) {
			t.Errorf("%s: %d %s", row.more, w.StatusCode, answer)
		}
	}
}
