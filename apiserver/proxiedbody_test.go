package apiserver_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/backends/kubelet"
	"github.com/quorate/quorate/internal/must"
)

// withBoth is a server behind which one handler is an aggregated API server and the kubelet of the Node n.
func withBoth(t *testing.T, serve http.HandlerFunc, change func(*apiserver.Config)) (*env, *fakeKubelet) {
	t.Helper()
	k := newFakeKubelet(t)
	k.handle = serve
	dial := behind(k.Listener.Addr().String(), make(chan string, 8))
	kubelets := kubelet.New(kubelet.Config{Dial: dial, DialAllowed: dial})
	t.Cleanup(kubelets.Close)
	e := withWidgets(t, serve, func(c *apiserver.Config) {
		c.Kubelets = kubelets
		change(c)
	})
	e.post("/api/v1/nodes", `{"metadata":{"name":"n"},"status":{"addresses":[{"type":"InternalIP","address":"10.9.9.9"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":10250}}}}`)
	return e, k
}

// TestAnswersBeforeBodies: a server that answers before it has all of a request's body gets the rest of it, and
// its answer waits for nobody. On HTTP/1.1 that answer ends the connection.
func TestAnswersBeforeBodies(t *testing.T) {
	type got struct {
		body string
		err  error
	}
	took := make(chan got, 1)
	e, _ := withBoth(t, func(w http.ResponseWriter, r *http.Request) {
		both := http.NewResponseController(w)
		if err := both.EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		first := make([]byte, 1)
		_, _ = io.ReadFull(r.Body, first)
		fmt.Fprintln(w, "an answer")
		_ = both.Flush()
		rest, err := io.ReadAll(r.Body)
		took <- got{string(first) + string(rest), err}
	}, func(*apiserver.Config) {})
	for _, path := range []string{"/api/v1/nodes/n/proxy/x", aggregatedPath + "/namespaces/default/widgets", aggregatedPath + "/namespaces/default/widgets/a/proxy"} {
		for head, pieces := range map[string][4]string{
			"Transfer-Encoding: chunked": {"1\r\na\r\n", "1\r\nb\r\n", "1\r\nc\r\n", "0\r\n\r\n"},
			"Content-Length: 3":          {"a", "b", "c", ""},
		} {
			conn := e.dial()
			defer conn.Close()
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n%s", path, head, pieces[0])
			must.OK(t, conn.SetReadDeadline(time.Now().Add(patience)))
			in := bufio.NewReader(conn)
			w, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatalf("%s, %s: the answer waits for the body: %v", path, head, err)
			}
			line, err := bufio.NewReader(w.Body).ReadString('\n')
			if line != "an answer\n" || !w.Close {
				t.Errorf("%s, %s: %q, closes: %t, %v", path, head, line, w.Close, err)
			}
			for _, piece := range pieces[1:] {
				_, _ = io.WriteString(conn, piece)
			}
			if g := <-took; g.body != "abc" || g.err != nil {
				t.Errorf("%s, %s: the server got %q, %v", path, head, g.body, g.err)
			}
		}
	}
}
