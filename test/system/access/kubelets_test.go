package access

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

const (
	mergePatch = "application/merge-patch+json"
	applyPatch = "application/apply-patch+yaml"
	jsonPatch  = "application/json-patch+json"
)

// asKubelet sends a request as the kubelet of a node.
func asKubelet(t *testing.T, n *cluster.Node, node, method, path, contentType, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, n.API+path, strings.NewReader(body))
	must.OK(t, err)
	r.Header.Set("Impersonate-User", "system:node:"+node)
	r.Header.Set("Impersonate-Group", "system:nodes")
	if body != "" {
		r.Header.Set("Content-Type", contentType)
	}
	answer, err := n.HTTP(t).Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer.StatusCode, string(text)
}

// certificateRequest is a PEM request in base64.
func certificateRequest(t *testing.T, commonName string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.OK(t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: commonName, Organization: []string{"system:nodes"}}}, key)
	must.OK(t, err)
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

// podOn is a Pod on a node that names what is called as it is.
func podOn(name, node string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"nodeName":%q,"serviceAccountName":%[1]q,"containers":[{"name":"c","image":"i"}],"volumes":[
		{"name":"s","secret":{"secretName":%[1]q}},{"name":"c","configMap":{"name":%[1]q}},{"name":"v","persistentVolumeClaim":{"claimName":%[1]q}},
		{"name":"t","projected":{"sources":[{"serviceAccountToken":{"path":"t","audience":"bank"}}]}}]}}`, name, node)
}

// prepareNodes makes Nodes a and b with all that is theirs, and in the namespace what Pods name.
func prepareNodes(t *testing.T, n *cluster.Node, namespace string, names ...string) {
	t.Helper()
	create := func(path, body string) {
		t.Helper()
		n.Must(t, http.StatusCreated, http.MethodPost, path, "application/json", body)
	}
	create("/api/v1/namespaces", `{"metadata":{"name":"`+namespace+`"}}`)
	for _, node := range []string{"a", "b"} {
		create("/api/v1/nodes", `{"metadata":{"name":"`+node+`","labels":{"node-restriction.kubernetes.io/team":"x"}}}`)
		create("/apis/storage.k8s.io/v1/csinodes", `{"metadata":{"name":"`+node+`"},"spec":{"drivers":[]}}`)
		create("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", `{"metadata":{"name":"`+node+`"}}`)
		create("/apis/storage.k8s.io/v1/volumeattachments", `{"metadata":{"name":"`+node+`"},"spec":{"attacher":"x","nodeName":"`+node+`","source":{"persistentVolumeName":"`+node+`"}}}`)
		create("/apis/resource.k8s.io/v1/resourceslices", `{"metadata":{"name":"`+node+`"},"spec":{"driver":"example.com","nodeName":"`+node+`","pool":{"name":"p","generation":1,"resourceSliceCount":1}}}`)
	}
	for _, name := range names {
		in := "/api/v1/namespaces/" + namespace
		for _, resource := range []string{"secrets", "configmaps", "serviceaccounts"} {
			create(in+"/"+resource, `{"metadata":{"name":"`+name+`"}}`)
		}
		create(in+"/persistentvolumeclaims", `{"metadata":{"name":"`+name+`"},"spec":{"accessModes":["ReadWriteOnce"],"storageClassName":"","resources":{"requests":{"storage":"1Gi"}}}}`)
		create("/api/v1/persistentvolumes", `{"metadata":{"name":"`+name+`"},"spec":{"accessModes":["ReadWriteOnce"],"capacity":{"storage":"1Gi"},"claimRef":{"namespace":"`+namespace+`","name":"`+name+`"},"csi":{"driver":"d","volumeHandle":"h"}}}`)
	}
}

// TestStolenKubelet: who has the credential of node a's kubelet reads, writes and signs nothing of
// node b, by no verb, through no node, also not through one that lags, and not for a moment after a
// Pod has gone from a and come back on b.
func TestStolenKubelet(t *testing.T) {
	c := cluster.Start(t, 3)
	admin := c.Leader(t)
	late, link := c.JoinNonvoter(t, "n4")
	prepareNodes(t, admin, "work", "mine", "theirs", "roams")
	for name, node := range map[string]string{"mine": "a", "theirs": "b"} {
		admin.Must(t, http.StatusCreated, http.MethodPost, "/api/v1/namespaces/work/pods", "application/json", podOn(name, node))
	}
	uid := func(path string) string {
		var o struct{ Metadata struct{ UID string } }
		if err := json.Unmarshal(admin.MustGet(t, path), &o); err != nil || o.Metadata.UID == "" {
			t.Fatal(path, err)
		}
		return o.Metadata.UID
	}
	theirs, mine, node := uid("/api/v1/namespaces/work/pods/theirs"), uid("/api/v1/namespaces/work/pods/mine"), uid("/api/v1/nodes/b")
	cluster.Await(t, 20*time.Second, "n4 has the Pods", func() string {
		if code, text := asKubelet(t, late, "a", http.MethodGet, "/api/v1/namespaces/work/pods/mine?resourceVersion=0", "", ""); code != http.StatusOK {
			return text
		}
		return ""
	})
	work := "/api/v1/namespaces/work"
	token := func(pod, uid string) string {
		return `{"spec":{"audiences":["bank"],"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"` + pod + `","uid":"` + uid + `"}}}`
	}
	label := `{"metadata":{"labels":{"stolen":"yes"}}}`
	mirror := func(on, owner, uid string) string {
		return `{"metadata":{"name":"m","annotations":{"kubernetes.io/config.mirror":"x"},"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"` + owner + `","uid":"` + uid + `","controller":true}]},"spec":{"nodeName":"` + on + `","containers":[{"name":"c","image":"i"}]}}`
	}
	request := func(name, signer string) string {
		return `{"metadata":{"name":"r"},"spec":{"signerName":"` + signer + `","usages":["digital signature","client auth"],"request":"` + certificateRequest(t, name) + `"}}`
	}
	type try struct{ method, path, contentType, body string }
	var tries []try
	add := func(method, path, contentType, body string) {
		tries = append(tries, try{method, path, contentType, body})
	}
	for _, path := range []string{
		work + "/secrets/theirs", work + "/configmaps/theirs", work + "/persistentvolumeclaims/theirs", work + "/serviceaccounts/theirs", work + "/pods/theirs", "/api/v1/persistentvolumes/theirs",
		"/api/v1/nodes/b", "/apis/storage.k8s.io/v1/csinodes/b", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/b", "/apis/storage.k8s.io/v1/volumeattachments/b", "/apis/resource.k8s.io/v1/resourceslices/b",
	} {
		slash := strings.LastIndex(path, "/")
		collection, name := path[:slash], path[slash+1:]
		selected := collection + "?fieldSelector=metadata.name%3D" + name
		for _, query := range []string{"", "?resourceVersion=0"} {
			add(http.MethodGet, path+query, "", "")
		}
		for _, list := range []string{collection, collection + "?resourceVersion=0", selected, collection + "?watch=1&timeoutSeconds=1", selected + "&watch=1&timeoutSeconds=1",
			strings.Replace(strings.Replace(path, "/v1/", "/v1/watch/", 1), "//", "/", -1) + "?timeoutSeconds=1", collection + "?fieldSelector=spec.nodeName%3Db", collection + "?labelSelector=a",
			collection + "?fieldSelector=spec.nodeName%3Db&watch=1&timeoutSeconds=1", collection + "?fieldSelector=spec.nodeName%21%3Da", collection + "?limit=1&continue=x"} {
			add(http.MethodGet, list, "", "")
		}
		for _, part := range []string{"", "/status", "/scale", "/finalize", "/resize", "/ephemeralcontainers", "/approval"} {
			add(http.MethodGet, path+part+"?x=y", "", "")
			add(http.MethodPatch, path+part, mergePatch, label)
			add(http.MethodPatch, path+part, jsonPatch, `[{"op":"add","path":"/metadata/labels","value":{"stolen":"yes"}}]`)
			add(http.MethodPatch, path+part+"?fieldManager=x&force=true", applyPatch, `{"metadata":{"name":"`+name+`","labels":{"stolen":"yes"}}}`)
			add(http.MethodPut, path+part, "application/json", `{"metadata":{"name":"`+name+`","labels":{"stolen":"yes"}}}`)
			add(http.MethodDelete, path+part, "", "")
		}
		for _, query := range []string{"", "?fieldSelector=metadata.name%3D" + name, "?fieldSelector=spec.nodeName%3Db", "?labelSelector=a"} {
			add(http.MethodDelete, collection+query, "", "")
		}
	}
	add(http.MethodPost, work+"/pods/theirs/eviction", "application/json", `{"metadata":{"name":"theirs"}}`)
	add(http.MethodPost, work+"/pods/mine/eviction", "application/json", `{"metadata":{"name":"theirs"}}`)
	add(http.MethodPost, work+"/pods/theirs/binding", "application/json", `{"metadata":{"name":"theirs"},"target":{"kind":"Node","name":"a"}}`)
	for _, part := range []string{"exec?command=x", "attach", "portforward", "log", "proxy"} {
		add(http.MethodPost, work+"/pods/theirs/"+part, "", "")
		add(http.MethodGet, work+"/pods/theirs/"+part, "", "")
	}
	add(http.MethodGet, "/api/v1/nodes/b/proxy/pods", "", "")
	add(http.MethodPost, work+"/serviceaccounts/theirs/token", "application/json", token("theirs", theirs))
	add(http.MethodPost, work+"/serviceaccounts/theirs/token", "application/json", token("mine", mine))
	add(http.MethodPost, work+"/serviceaccounts/mine/token", "application/json", token("theirs", theirs))
	add(http.MethodPost, work+"/serviceaccounts/mine/token", "application/json", `{"spec":{"boundObjectRef":{"apiVersion":"v1","kind":"Node","name":"b","uid":"`+node+`"}}}`)
	add(http.MethodPost, work+"/serviceaccounts/mine/token", "application/json", `{"spec":{}}`)
	for _, x := range [][3]string{{"b", "a", node}, {"b", "b", node}, {"a", "b", node}, {"a", "a", node}} {
		add(http.MethodPost, work+"/pods", "application/json", mirror(x[0], x[1], x[2]))
	}
	add(http.MethodPost, work+"/pods", "application/json", podOn("theirs", "a"))
	add(http.MethodPost, work+"/pods", "application/json", podOn("new", "b"))
	add(http.MethodPost, "/api/v1/nodes", "application/json", `{"metadata":{"name":"c"}}`)
	add(http.MethodPost, "/apis/storage.k8s.io/v1/csinodes", "application/json", `{"metadata":{"name":"c"},"spec":{"drivers":[]}}`)
	add(http.MethodPost, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", "application/json", `{"metadata":{"name":"c"}}`)
	add(http.MethodPost, "/apis/coordination.k8s.io/v1/namespaces/work/leases", "application/json", `{"metadata":{"name":"a"}}`)
	add(http.MethodPost, "/apis/resource.k8s.io/v1/resourceslices", "application/json", `{"metadata":{"name":"c"},"spec":{"driver":"example.com","nodeName":"b","pool":{"name":"p","generation":1,"resourceSliceCount":1}}}`)
	for _, signer := range []string{"kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"} {
		for _, name := range []string{"system:node:b", "system:node:", "system:node:a ", "admin"} {
			add(http.MethodPost, "/apis/certificates.k8s.io/v1/certificatesigningrequests", "application/json", request(name, signer))
		}
	}
	add(http.MethodPatch, "/api/v1/nodes/a", mergePatch, `{"metadata":{"labels":{"node-restriction.kubernetes.io/team":"y"}}}`)
	add(http.MethodPatch, "/api/v1/nodes/a/status", mergePatch, `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`)
	add(http.MethodPatch, "/api/v1/nodes/a", mergePatch, `{"spec":{"taints":[{"key":"x","effect":"NoSchedule"}]}}`)
	add(http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", "application/json", `{"metadata":{"name":"x"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"kind":"Group","apiGroup":"rbac.authorization.k8s.io","name":"system:nodes"}]}`)

	before := admin.MustGet(t, "/api/v1/nodes?limit=100")
	pods := admin.MustGet(t, work+"/pods")
	count := 0
	for i, x := range tries {
		for _, n := range []*cluster.Node{c.Nodes()[i%3], late} {
			code, text := asKubelet(t, n, "a", x.method, x.path, x.contentType, x.body)
			if count++; code < 400 {
				t.Errorf("%s: %s %s %s: %d %.300s", n.Name, x.method, x.path, x.body, code, text)
			}
		}
	}
	if now := admin.MustGet(t, work+"/pods"); !bytes.Equal(items(t, now), items(t, pods)) {
		t.Errorf("Pods have changed:\n%s\n%s", pods, now)
	}
	if now := admin.MustGet(t, "/api/v1/nodes?limit=100"); !bytes.Equal(items(t, now), items(t, before)) {
		t.Errorf("Nodes have changed:\n%s\n%s", before, now)
	}

	// A Pod of a is deleted, and one of the same name runs on b: n4 has not heard of it.
	link.Delayed(t, 200*time.Millisecond)
	remove := func() {
		admin.Must(t, http.StatusOK, http.MethodDelete, work+"/pods/roams?gracePeriodSeconds=0", "", "")
	}
	run := func(node string) {
		admin.Must(t, http.StatusCreated, http.MethodPost, work+"/pods", "application/json", podOn("roams", node))
	}
	for _, x := range []try{
		{http.MethodPatch, work + "/persistentvolumeclaims/roams/status", mergePatch, `{"status":{"capacity":{"storage":"9Gi"}}}`},
		{http.MethodPatch, work + "/pods/roams/status", mergePatch, `{"status":{"message":"stolen"}}`},
		{http.MethodGet, work + "/secrets/roams", "", ""},
		{http.MethodGet, work + "/secrets?fieldSelector=metadata.name%3Droams", "", ""},
		{http.MethodPost, work + "/serviceaccounts/roams/token", "application/json", ""},
		{http.MethodPost, work + "/pods/roams/eviction", "application/json", `{"metadata":{"name":"roams"}}`},
		{http.MethodDelete, work + "/pods/roams", "", ""},
	} {
		run("a")
		if was := uid(work + "/pods/roams"); strings.HasSuffix(x.path, "/token") {
			x.body = token("roams", was)
		}
		awaitOn(t, late, "a")
		remove()
		run("b")
		if code, text := asKubelet(t, late, "a", x.method, x.path, x.contentType, x.body); code < 400 {
			t.Errorf("after it has moved: %s %s: %d %.300s", x.method, x.path, code, text)
		}
		count++
		remove()
	}
	t.Logf("%d requests were refused", count)
}

// awaitOn waits until a node lets a kubelet read the Pod that roams.
func awaitOn(t *testing.T, n *cluster.Node, node string) {
	t.Helper()
	cluster.Await(t, 20*time.Second, n.Name+" has the Pod on "+node, func() string {
		if code, text := asKubelet(t, n, node, http.MethodGet, "/api/v1/namespaces/work/pods/roams?resourceVersion=0", "", ""); code != http.StatusOK {
			return text
		}
		return ""
	})
}

func items(t *testing.T, list []byte) []byte {
	t.Helper()
	var l struct{ Items json.RawMessage }
	must.OK(t, json.Unmarshal(list, &l))
	return l.Items
}
