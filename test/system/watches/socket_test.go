package watches

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// TestSocketOnNodes watches over a WebSocket with a client certificate on every kind
// of node: events, and at the end a bookmark from which another node goes on.
func TestSocketOnNodes(t *testing.T) {
	r := cluster.SharedReaders(t)
	maps := r.Follower.Typed(t).CoreV1().ConfigMaps("default")
	dial := func(n *cluster.Node, query string) *websocket.Conn {
		t.Helper()
		config, err := websocket.NewConfig("wss"+strings.TrimPrefix(n.API, "https")+"/api/v1/namespaces/default/configmaps?watch=1&labelSelector=socket%3D1&"+query, n.API)
		must.OK(t, err)
		if config.TlsConfig, err = n.TLS(); err != nil {
			t.Fatal(err)
		}
		config.TlsConfig.NextProtos = []string{"http/1.1"}
		ws, err := config.DialContext(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", n.Name, err)
		}
		t.Cleanup(func() { ws.Close() })
		must.OK(t, ws.SetDeadline(time.Now().Add(30*time.Second)))
		return ws
	}
	event := func(ws *websocket.Conn) (e rawEvent, ok bool) {
		t.Helper()
		var line string
		err := websocket.Message.Receive(ws, &line)
		if err == io.EOF {
			return e, false
		}
		must.OK(t, err)
		var frame struct {
			Type   string
			Object json.RawMessage
		}
		must.OK(t, json.Unmarshal([]byte(line), &frame))
		return e, e.fill(frame.Type, frame.Object) == nil
	}
	for _, n := range []*cluster.Node{r.Leader, r.Follower, r.Nonvoter} {
		ws := dial(n, "resourceVersionMatch=NotOlderThan&sendInitialEvents=false&allowWatchBookmarks=true&timeoutSeconds=2")
		name := "socket-" + n.Name
		made, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"socket": "1"}}}, metav1.CreateOptions{})
		must.OK(t, err)
		var got []rawEvent
		last := ""
		for e, ok := event(ws); ok; e, ok = event(ws) {
			if last = e.ResourceVersion; e.Type != "BOOKMARK" {
				got = append(got, e)
			}
		}
		if len(got) != 1 || got[0].Type != "ADDED" || got[0].ResourceVersion != made.ResourceVersion {
			t.Errorf("%s: %+v, want ADDED %s", n.Name, got, made.ResourceVersion)
		}
		if cluster.Revision(t, last) < cluster.Revision(t, made.ResourceVersion) {
			t.Errorf("%s: the last bookmark is %s, the event %s", n.Name, last, made.ResourceVersion)
		}
		must.OK(t, maps.Delete(t.Context(), name, metav1.DeleteOptions{}))
		other := r.Cluster.Others(n)[0]
		if e, ok := event(dial(other, "resourceVersion="+last)); !ok || e.Type != "DELETED" || e.Name != name {
			t.Errorf("resumed on %s: %+v", other.Name, e)
		}
	}
}
