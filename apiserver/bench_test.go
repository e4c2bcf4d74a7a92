package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/internal/cputime"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// discard is a ResponseWriter that keeps nothing.
type discard struct {
	header http.Header
	code   int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(code int)        { d.code = code }

var kib = strings.Repeat("x", 1024)

func serve(b *testing.B, e *env, want int, method, path, contentType, body string) {
	b.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	w := &discard{header: http.Header{}}
	e.api.ServeHTTP(w, r)
	if w.code != want {
		b.Fatalf("%s %s: %d", method, path, w.code)
	}
}

func fill(b *testing.B, e *env, n int) {
	b.Helper()
	for i := range n {
		serve(b, e, 201, http.MethodPost, maps, "application/json", object(i))
	}
}

func object(i int) string {
	return fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"cm-%d","labels":{"app":"bench","shard":"1"}},"data":{"k":"%s"}}`, i, kib)
}

const deployments = "/apis/apps/v1/namespaces/default/deployments"

func deployment(i int) string {
	return fmt.Sprintf(`{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"d-%d","labels":{"app":"bench"}},"spec":{"replicas":3,
		"selector":{"matchLabels":{"app":"bench"}},"template":{"metadata":{"labels":{"app":"bench"}},"spec":{"containers":[
		{"name":"web","image":"nginx:1.27","ports":[{"containerPort":80}],"env":[{"name":"A","value":"b"}],"volumeMounts":[{"name":"v","mountPath":"/v"}]},
		{"name":"side","image":"side:2"}],"volumes":[{"name":"v","emptyDir":{}}]}}}}`, i)
}

const (
	leasePath = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l"
	lease     = `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"l"},"spec":{"holderIdentity":"n1","leaseDurationSeconds":40,"renewTime":"2026-01-02T03:04:05.000000Z"}}`
)

func pod(i int) string {
	return fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p-%d","labels":{"app":"bench"}},"spec":{"nodeName":"n1","containers":[
		{"name":"web","image":"nginx:1.27","ports":[{"containerPort":80}],"env":[{"name":"A","value":"b"}],"volumeMounts":[{"name":"v","mountPath":"/v"}]},
		{"name":"side","image":"side:2","resources":{"requests":{"cpu":"100m","memory":"64Mi"}}}],"volumes":[{"name":"v","emptyDir":{}}]}}`, i)
}

// deploymentMessage is that of deployment in protobuf.
func deploymentMessage(i int) string {
	var d appsv1.Deployment
	if err := json.Unmarshal([]byte(deployment(i)), &d); err != nil {
		panic(err)
	}
	raw, err := d.Marshal()
	if err != nil {
		panic(err)
	}
	u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, Raw: raw}
	if raw, err = u.Marshal(); err != nil {
		panic(err)
	}
	return "k8s\x00" + string(raw)
}

// BenchmarkServe is the whole path but for TLS, HTTP framing and Raft.
func BenchmarkServe(b *testing.B) {
	run := func(name string, objects, want int, method string, path func(i int) string, contentType string, body func(i int) string) {
		b.Run(name, func(b *testing.B) {
			e := newEnv(b, nil)
			fill(b, e, objects)
			serve(b, e, 201, http.MethodPost, strings.TrimSuffix(leasePath, "/l"), "application/json", lease)
			serve(b, e, 201, http.MethodPost, podsPath, "application/json", strings.Replace(pod(0), "p-0", "p", 1))
			cputime.PerOp(b)
			for i := 0; b.Loop(); i++ {
				serve(b, e, want, method, path(i), contentType, body(i))
			}
		})
	}
	at := func(p string) func(int) string { return func(int) string { return p } }
	run("create", 0, 201, http.MethodPost, at(maps), "application/json", object)
	run("get", 100, 200, http.MethodGet, at(maps+"/cm-7"), "", at(""))
	run("get-any", 100, 200, http.MethodGet, at(maps+"/cm-7?resourceVersion=0"), "", at(""))
	run("list-10000", 10000, 200, http.MethodGet, at(maps+"?resourceVersion=0"), "", at(""))
	run("list-500-of-10000", 10000, 200, http.MethodGet, at(maps+"?limit=500"), "", at(""))
	run("update", 100, 200, http.MethodPut, at(maps+"/cm-7"), "application/json", func(i int) string {
		return strings.Replace(object(7), `"k":"xx`, fmt.Sprintf(`"k":"%d`, i), 1)
	})
	run("create-deployment", 0, 201, http.MethodPost, at(deployments), "application/json", deployment)
	run("create-deployment-protobuf", 0, 201, http.MethodPost, at(deployments), codec.Protobuf, deploymentMessage)
	run("create-pod", 0, 201, http.MethodPost, at(podsPath), "application/json", pod)
	run("update-pod", 0, 200, http.MethodPut, at(podsPath+"/p"), "application/json", func(i int) string {
		return strings.NewReplacer("p-0", "p", "bench", fmt.Sprintf("b%d", i)).Replace(pod(0))
	})
	run("merge-patch-lease", 0, 200, http.MethodPatch, at(leasePath), "application/merge-patch+json", func(i int) string {
		return fmt.Sprintf(`{"spec":{"renewTime":"2026-01-02T03:%02d:%02d.%06dZ"}}`, i/60_000_000%60, i/1_000_000%60, i%1_000_000)
	})
	run("merge-patch", 100, 200, http.MethodPatch, at(maps+"/cm-7"), "application/merge-patch+json", func(i int) string {
		return fmt.Sprintf(`{"data":{"n":"%d"}}`, i)
	})
	run("apply", 100, 200, http.MethodPatch, at(maps+"/cm-7?fieldManager=bench&force=true"), "application/apply-patch+yaml", func(i int) string {
		return strings.Replace(object(7), `"shard":"1"`, fmt.Sprintf(`"shard":"%d"`, i), 1)
	})
}
