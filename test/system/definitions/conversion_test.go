package definitions

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// TestConversionWebhook: a custom resource in two versions with different fields, on
// three nodes. The webhook is named by a Service, which is at another place than its
// certificate says; it is right, then down, then there again.
func TestConversionWebhook(t *testing.T) {
	c := cluster.Shared(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const group, namespace, converter = "converted.example.com", "default", "host-converter"
	hook := newHostHook(t, converter+"."+namespace+".svc")
	n1, n2, n3 := c.Nodes()[0], c.Nodes()[1], c.Nodes()[2]
	create := func(gvr schema.GroupVersionResource, namespace, object string) *unstructured.Unstructured {
		t.Helper()
		u := &unstructured.Unstructured{}
		must.OK(t, json.Unmarshal([]byte(object), &u.Object))
		out, err := n1.Dynamic(t).Resource(gvr).Namespace(namespace).Create(ctx, u, metav1.CreateOptions{})
		must.OK(t, err)
		return out
	}
	services := schema.GroupVersionResource{Version: "v1", Resource: "services"}
	create(services, namespace, fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","metadata":{"name":%q},"spec":{"type":"ExternalName","externalName":"127.0.0.1"}}`, converter))
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	const open = `"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}`
	create(definitions, "", fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"routes.%[1]s"},
		"spec":{"group":%[1]q,"scope":"Namespaced","names":{"plural":"routes","kind":"Route"},"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],
		"clientConfig":{"service":{"namespace":%[2]q,"name":%[3]q,"port":%[4]s,"path":"/convert"},"caBundle":%[5]q}}},
		"versions":[{"name":"v1","served":true,"storage":true,%[6]s},{"name":"v1beta1","served":true,"storage":false,%[6]s}]}}`,
		group, namespace, converter, hook.port, hook.ca, open))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		_ = n1.Dynamic(t).Resource(definitions).Delete(ctx, "routes."+group, metav1.DeleteOptions{})
		_ = n1.Dynamic(t).Resource(services).Namespace(namespace).Delete(ctx, converter, metav1.DeleteOptions{})
	})
	v1 := schema.GroupVersionResource{Group: group, Version: "v1", Resource: "routes"}
	beta := v1
	beta.Version = "v1beta1"
	for _, n := range c.Nodes() {
		cluster.Await(t, 20*time.Second, "the resource on node "+n.Name, func() string {
			if _, err := n.Dynamic(t).Resource(v1).List(ctx, metav1.ListOptions{}); err != nil {
				return err.Error()
			}
			return ""
		})
	}

	w, err := n3.Dynamic(t).Resource(beta).Watch(ctx, metav1.ListOptions{})
	must.OK(t, err)
	defer w.Stop()
	made := create(beta, namespace, fmt.Sprintf(`{"apiVersion":"%s/v1beta1","kind":"Route","metadata":{"name":"a"},"spec":{"hostPort":"one:80"}}`, group))
	if got, _, _ := unstructured.NestedString(made.Object, "spec", "hostPort"); got != "one:80" {
		t.Errorf("created %v", made.Object)
	}
	stored, err := n2.Dynamic(t).Resource(v1).Namespace(namespace).Get(ctx, "a", metav1.GetOptions{})
	must.OK(t, err)
	if host, _, _ := unstructured.NestedString(stored.Object, "spec", "host"); host != "one" {
		t.Errorf("in v1 on another node: %v", stored.Object)
	}
	if e := <-w.ResultChan(); e.Type != watch.Added || !strings.Contains(fmt.Sprint(e.Object), "one:80") {
		t.Errorf("a watch on the third node: %v", e)
	}
	if hook.calls.Load() == 0 {
		t.Error("the webhook was not asked")
	}

	// Down: what needs it fails, in upstream's words, and the rest goes on.
	hook.down.Store(true)
	for i, n := range c.Nodes() {
		name := fmt.Sprintf("down%d", i)
		if _, err := n.Dynamic(t).Resource(v1).Namespace(namespace).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": group + "/v1", "kind": "Route", "metadata": map[string]any{"name": name}, "spec": map[string]any{"host": "h", "port": "1"},
		}}, metav1.CreateOptions{}); err != nil {
			t.Errorf("node %s: a create in the stored version: %v", n.Name, err)
		}
		_, err := n.Dynamic(t).Resource(beta).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		if want := fmt.Sprintf("conversion webhook for %s/v1, Kind=Route failed: ", group); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("node %s: a get that needs the webhook: %v", n.Name, err)
		}
	}
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			break
		}
	}

	// There again: at once, on all nodes.
	hook.down.Store(false)
	for _, n := range c.Nodes() {
		list, err := n.Dynamic(t).Resource(beta).List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) != 4 {
			t.Fatalf("node %s: %v, %v", n.Name, list, err)
		}
		for _, o := range list.Items {
			if _, found, _ := unstructured.NestedString(o.Object, "spec", "hostPort"); !found {
				t.Errorf("node %s: not converted: %v", n.Name, o.Object)
			}
		}
	}
	for _, n := range c.Nodes() {
		if _, ok := n.LookupMetric(t, "apiserver_conversion_webhook_request_total"); !ok {
			t.Errorf("node %s counts no calls", n.Name)
		}
	}
}

// hostHook converts spec.hostPort of v1beta1 to spec.host and spec.port of v1 and back.
type hostHook struct {
	port, ca string
	down     atomic.Bool
	calls    atomic.Int64

	mu      sync.Mutex
	reviews []string      // what was asked for: the version, and of how many objects
	asked   chan struct{} // of one: something was
}

// newHostHook serves a webhook on loopback under a certificate for a name and for 127.0.0.1.
func newHostHook(t *testing.T, name string) *hostHook {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.OK(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must.OK(t, err)
	h := &hostHook{asked: make(chan struct{}, 1), ca: base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))}
	server := httptest.NewUnstartedServer(h)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	server.StartTLS()
	t.Cleanup(server.Close)
	if _, h.port, err = net.SplitHostPort(server.Listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *hostHook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.calls.Add(1)
	if h.down.Load() {
		panic(http.ErrAbortHandler) // the connection breaks
	}
	var review struct {
		Request struct {
			UID     string                      `json:"uid"`
			Desired string                      `json:"desiredAPIVersion"`
			Objects []unstructured.Unstructured `json:"objects"`
		} `json:"request"`
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	h.reviews = append(h.reviews, fmt.Sprintf("%s×%d", review.Request.Desired[strings.LastIndex(review.Request.Desired, "/")+1:], len(review.Request.Objects)))
	h.mu.Unlock()
	select {
	case h.asked <- struct{}{}:
	default:
	}
	for i := range review.Request.Objects {
		o := &review.Request.Objects[i]
		o.SetAPIVersion(review.Request.Desired)
		spec, _ := o.Object["spec"].(map[string]any)
		if spec == nil {
			continue
		}
		if strings.HasSuffix(review.Request.Desired, "/v1beta1") {
			spec["hostPort"] = fmt.Sprintf("%v:%v", spec["host"], spec["port"])
			delete(spec, "host")
			delete(spec, "port")
		} else {
			spec["host"], spec["port"], _ = strings.Cut(fmt.Sprint(spec["hostPort"]), ":")
			delete(spec, "hostPort")
		}
	}
	var body bytes.Buffer
	_ = json.NewEncoder(&body).Encode(map[string]any{
		"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
		"response": map[string]any{"uid": review.Request.UID, "result": map[string]any{"status": "Success"}, "convertedObjects": review.Request.Objects},
	})
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body.Bytes())
}
