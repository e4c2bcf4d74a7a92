package clientgo

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// wire notes what goes over the wire.
type wire struct {
	mu       sync.Mutex
	requests []string // "GET /path?query"
	types    map[string]bool
}

func (w *wire) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(r)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.requests = append(w.requests, r.Method+" "+r.URL.RequestURI())
		if err == nil {
			w.types[resp.Header.Get("Content-Type")] = true
		}
		return resp, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// typedOn is a typed client that sends protobuf, with a note of what it says and hears.
func typedOn(t *testing.T, n *cluster.Node, accept string) (kubernetes.Interface, *wire) {
	t.Helper()
	w := &wire{types: map[string]bool{}}
	cfg := n.Config()
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	cfg.AcceptContentTypes = accept
	cfg.Wrap(w.wrap)
	client, err := kubernetes.NewForConfig(cfg)
	must.OK(t, err)
	return client, w
}

// TestProtobuf takes an object through its life with typed clients that accept
// nothing but protobuf, each call through another node than the one before.
func TestProtobuf(t *testing.T) {
	c := cluster.Shared(t)
	var clients []kubernetes.Interface
	var wires []*wire
	for _, n := range c.Nodes() {
		client, w := typedOn(t, n, "application/vnd.kubernetes.protobuf")
		clients, wires = append(clients, client), append(wires, w)
	}
	const ns = "protobuf"
	ctx := t.Context()
	if _, err := clients[0].CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	made, err := clients[1].CoreV1().Secrets(ns).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "s-", Labels: map[string]string{"a": "b"}},
		Data:       map[string][]byte{"bytes": {0, 255, 10}},
	}, metav1.CreateOptions{})
	must.OK(t, err)
	got, err := clients[2].CoreV1().Secrets(ns).Get(ctx, made.Name, metav1.GetOptions{})
	must.OK(t, err)
	if got.ResourceVersion != made.ResourceVersion || string(got.Data["bytes"]) != "\x00\xff\n" || got.Type != corev1.SecretTypeOpaque {
		t.Errorf("a secret came back as %+v", got)
	}
	watch, err := clients[0].CoreV1().Secrets(ns).Watch(ctx, metav1.ListOptions{ResourceVersion: made.ResourceVersion, LabelSelector: "a=b"})
	must.OK(t, err)
	defer watch.Stop()
	got.Data["more"] = []byte("x")
	changed, err := clients[1].CoreV1().Secrets(ns).Update(ctx, got, metav1.UpdateOptions{})
	must.OK(t, err)
	if _, err := clients[2].CoreV1().Secrets(ns).Update(ctx, made, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update of an old version: %v, want a conflict", err)
	}
	list, err := clients[0].CoreV1().Secrets(ns).List(ctx, metav1.ListOptions{LabelSelector: "a in (b,c)"})
	if err != nil || len(list.Items) != 1 || list.Items[0].ResourceVersion != changed.ResourceVersion {
		t.Errorf("the list is %+v (%v)", list, err)
	}
	if err := clients[1].CoreV1().Secrets(ns).Delete(ctx, made.Name, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"MODIFIED", "DELETED"} {
		select {
		case e := <-watch.ResultChan():
			if event, err := cluster.ToEvent(e); err != nil || event.Type != want || event.Name != made.Name {
				t.Errorf("the watch says %+v (%v), want %s", event, err, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("the watch does not say %s", want)
		}
	}
	// Sent in protobuf, answered in JSON.
	mixed, heard := typedOn(t, c.Nodes()[0], "application/json")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	if pod, err = mixed.CoreV1().Pods(ns).Create(ctx, pod, metav1.CreateOptions{}); err != nil || pod.Spec.Containers[0].Image != "i" || !heard.types["application/json"] {
		t.Errorf("a pod sent in protobuf came back as %+v (%v)", pod, err)
	}
	if err := clients[2].CoreV1().Namespaces().Delete(ctx, ns, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	for i, w := range wires {
		w.mu.Lock()
		for contentType := range w.types {
			if !strings.HasPrefix(contentType, "application/vnd.kubernetes.protobuf") {
				t.Errorf("%s answered with %q", c.Nodes()[i].Name, contentType)
			}
		}
		w.mu.Unlock()
	}
}
