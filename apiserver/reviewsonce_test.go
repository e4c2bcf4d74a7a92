package apiserver_test

import (
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"testing"

	"github.com/quorate/quorate/apiserver/controllers"
)

// TestReviewsAreSentOnce: a webhook is asked once about each Pod, whatever else is written meanwhile that
// no rule of the Pod follows from. What its rules follow from has it asked again.
func TestReviewsAreSentOnce(t *testing.T) {
	const pods, clients = 400, 8
	const clusterRole = `{"metadata":{"name":"r%d"},"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]}`
	for _, x := range []struct {
		name  string
		quota bool
		path  string // of what is written meanwhile
		body  string
		again bool
	}{
		{name: "quiet"},
		{name: "with a quota", quota: true},
		{name: "configmaps", path: maps, body: `{"metadata":{"name":"c%d"}}`},
		{name: "roles elsewhere", path: "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles", body: clusterRole},
		{name: "accounts elsewhere", path: "/api/v1/namespaces/kube-system/serviceaccounts", body: `{"metadata":{"name":"a%d"}}`},
		{name: "namespaces", path: "/api/v1/namespaces", body: `{"metadata":{"name":"n%d"}}`},
		{name: "cluster roles", path: "/apis/rbac.authorization.k8s.io/v1/clusterroles", body: clusterRole, again: true},
	} {
		t.Run(x.name, func(t *testing.T) {
			e := newHookedEnv(t)
			must := func(header http.Header, path, body string) {
				if w, answer := e.do("POST", path, header, body); w.StatusCode != 201 {
					t.Errorf("%s: %d %s", path, w.StatusCode, clip(answer))
				}
			}
			must(nil, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"creator"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"creator"},"subjects":[{"kind":"User","name":"creator"}]}`)
			must(nil, "/apis/rbac.authorization.k8s.io/v1/clusterroles", `{"metadata":{"name":"creator"},"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}`)
			must(nil, "/api/v1/namespaces/default/serviceaccounts", `{"metadata":{"name":"default"}}`)
			if x.quota {
				must(nil, "/api/v1/namespaces/default/resourcequotas", `{"metadata":{"name":"q"},"spec":{"hard":{"pods":"1000"}}}`)
				e.run(controllers.Config{Controllers: []controllers.Name{controllers.ResourceQuotaController}})
			}
			h := newAdmissionHook(t)
			h.set(allow)
			h.configure(e, "Mutating", "m", rule("", "v1", "pods"))
			done := make(chan struct{})
			var others, all sync.WaitGroup
			if x.path != "" {
				others.Go(func() {
					for i := 0; ; i++ {
						select {
						case <-done:
							return
						default:
						}
						if x.again && h.count() < 20*(i+1) { // not so often that a Pod is given up
							runtime.Gosched()
							i--
							continue
						}
						must(nil, x.path, fmt.Sprintf(x.body, i))
					}
				})
			}
			for c := range clients {
				all.Go(func() {
					for i := range pods / clients {
						must(http.Header{"Impersonate-User": {"creator"}}, "/api/v1/namespaces/default/pods",
							fmt.Sprintf(`{"metadata":{"name":"p%d-%d"},"spec":{"containers":[{"name":"c","image":"i"}]}}`, c, i))
					}
				})
			}
			all.Wait()
			close(done)
			others.Wait()
			asked := h.count()
			t.Logf("asked %d times about %d Pods", asked, pods)
			if asked < pods || (asked > pods) != x.again {
				t.Errorf("asked %d times about %d Pods", asked, pods)
			}
		})
	}
}

func (h *admissionHook) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.asked)
}
