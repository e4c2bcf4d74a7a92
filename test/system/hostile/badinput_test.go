package hostile

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// badRequest is one block of bad_requests.txt.
type badRequest struct {
	method, path string
	header       http.Header
	body         []byte
	length       int64 // announced; more than the body has: it is cut

	code   int
	reason string
	text   string
}

func (b badRequest) String() string {
	return fmt.Sprintf("%s %s %.60q", b.method, b.path, b.body)
}

func readBadRequests(t *testing.T) []badRequest {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "bad_requests.txt"))
	must.OK(t, err)
	var out []badRequest
	for _, block := range strings.Split(string(raw), "\n====\n") {
		for strings.HasPrefix(block, "#") {
			_, block, _ = strings.Cut(block, "\n")
		}
		out = append(out, parseBadRequest(t, block))
	}
	return out
}

func parseBadRequest(t *testing.T, block string) badRequest {
	t.Helper()
	request, expected, ok := strings.Cut(block, "\n----\n")
	head, body, ok2 := strings.Cut(request+"\n", "\n\n")
	expectedWords := strings.SplitN(strings.TrimRight(expected, "\n"), " ", 3)
	if !ok || !ok2 || len(expectedWords) < 3 {
		t.Fatalf("not a block:\n%s", block)
	}
	b := badRequest{header: http.Header{}, reason: expectedWords[1], text: expectedWords[2]}
	var err error
	if b.code, err = strconv.Atoi(expectedWords[0]); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(head, "\n")
	b.method, b.path, _ = strings.Cut(lines[0], " ")
	for _, line := range lines[1:] {
		key, value, _ := strings.Cut(line, ": ")
		b.header.Set(key, value)
	}
	body = strings.TrimSuffix(body, "\n")
	directive, rest, _ := strings.Cut(body, " ")
	switch directive {
	case "@hex":
		if b.body, err = hex.DecodeString(rest); err != nil {
			t.Fatal(err)
		}
	case "@big":
		n, err := strconv.Atoi(rest)
		must.OK(t, err)
		b.body = []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"big"},"data":{"a":"` + strings.Repeat("x", n) + `"}}`)
	case "@cut":
		length, text, _ := strings.Cut(rest, " ")
		if b.length, err = strconv.ParseInt(length, 10, 64); err != nil {
			t.Fatal(err)
		}
		b.body = []byte(text)
	default:
		b.body = []byte(body)
	}
	return b
}

// resources are what a node must not leak.
type resources struct{ goroutines, descriptors int }

func resourcesNow(t *testing.T, n *cluster.Node) resources {
	t.Helper()
	return resources{int(n.Metric(t, "go_goroutines")), n.Descriptors(t)}
}

// TestBadInput sends to every node what must be refused, on both ports. The
// answers are those of the table, nothing changes, nobody dies, nothing leaks.
func TestBadInput(t *testing.T) {
	c := cluster.Shared(t)
	first := c.Nodes()[0]
	first.Kubectl(t, "create", "configmap", "victim", "--from-literal=a=b")
	defer first.Kubectl(t, "delete", "configmap", "victim")
	before := everything(t, first)
	var calm []resources
	for _, n := range c.Nodes() {
		n.HTTP(t).CloseIdleConnections()
		calm = append(calm, resourcesNow(t, n))
	}

	var silent []net.Conn
	for _, n := range c.Nodes() {
		silent = append(silent, halfOpen(t, n)...)
	}
	for _, b := range readBadRequests(t) {
		for _, n := range c.Nodes() {
			sendBad(t, n, b)
		}
	}
	for _, n := range c.Nodes() {
		rawGarbage(t, n)
	}
	first.Kubectl(t, "get", "configmap", "victim") // beside all that is half open
	for _, conn := range silent {
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s keeps a connection that says nothing", conn.RemoteAddr())
		}
		conn.Close()
	}

	if after := everything(t, first); after != before {
		t.Errorf("bad input has changed something:\n%s\nbefore:\n%s", after, before)
	}
	for i, n := range c.Nodes() {
		if !n.Running() {
			t.Fatalf("%s (pid %d) has died of bad input", n.Name, n.PID)
		}
		if panics, _ := n.LookupMetric(t, "quorate_panics_total"); panics != 0 {
			t.Errorf("%s has contained %v panics", n.Name, panics)
		}
		cluster.Await(t, 20*time.Second, n.Name+" has let go of everything", func() string {
			n.HTTP(t).CloseIdleConnections()
			// A few come and go with the ticks of the background.
			if now := resourcesNow(t, n); now.goroutines > calm[i].goroutines+10 || now.descriptors > calm[i].descriptors+5 {
				return fmt.Sprintf("%+v, before it was %+v", now, calm[i])
			}
			return ""
		})
	}
}

// everything is a list of what bad input could have changed.
func everything(t *testing.T, n *cluster.Node) string {
	t.Helper()
	var all []string
	for _, path := range []string{"/api/v1/configmaps", "/api/v1/namespaces", "/api/v1/secrets"} {
		var list struct{ Items []json.RawMessage }
		must.OK(t, json.Unmarshal(n.MustGet(t, path), &list))
		for _, item := range list.Items {
			all = append(all, string(item))
		}
	}
	return strings.Join(all, "\n")
}

func sendBad(t *testing.T, n *cluster.Node, b badRequest) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, b.method, n.API+b.path, bytes.NewReader(b.body))
	must.OK(t, err)
	req.Header = b.header.Clone()
	if b.length != 0 {
		req.ContentLength = b.length
	}
	resp, err := n.HTTP(t).Do(req)
	if b.length != 0 && err != nil && ctx.Err() == nil {
		return // a body that was cut: our own side has noticed
	}
	if err != nil {
		t.Errorf("%s: %s: %v", n.Name, b, err)
		return
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		t.Errorf("%s: %s: %v", n.Name, b, err)
		return
	}
	if resp.StatusCode != b.code {
		t.Errorf("%s: %s: code %d, want %d: %s", n.Name, b, resp.StatusCode, b.code, answer)
		return
	}
	if b.reason == "-" {
		if !strings.Contains(string(answer), b.text) {
			t.Errorf("%s: %s: %q, want %q", n.Name, b, answer, b.text)
		}
		return
	}
	var status metav1.Status
	if err := json.Unmarshal(answer, &status); err != nil || status.Kind != "Status" || status.Status != "Failure" || int(status.Code) != b.code {
		t.Errorf("%s: %s: not a Status of code %d (%v): %s", n.Name, b, b.code, err, answer)
		return
	}
	if string(status.Reason) != b.reason || !strings.Contains(status.Message, b.text) {
		t.Errorf("%s: %s: %s %q, want %s %q", n.Name, b, status.Reason, status.Message, b.reason, b.text)
	}
}

// halfOpen opens connections to both ports that will never say enough: nothing at
// all, a part of a handshake, a part of a request.
func halfOpen(t *testing.T, n *cluster.Node) []net.Conn {
	t.Helper()
	api := strings.TrimPrefix(n.API, "https://")
	admin, err := n.TLS()
	must.OK(t, err)
	var conns []net.Conn
	for range 20 {
		for _, addr := range []string{api, n.Peer} {
			nothing, part := dial(t, addr), dial(t, addr)
			if _, err := io.WriteString(part, "\x16\x03\x01\x00\xff\x01\x00"); err != nil {
				t.Fatal(err)
			}
			conns = append(conns, nothing, part)
		}
		request := tls.Client(dial(t, api), withHost(admin))
		if _, err := io.WriteString(request, "GET /api/v1/configmaps HTTP/1.1\r\nHost: x\r\n"); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, request)
	}
	return conns
}

// rawGarbage speaks nonsense on both ports: before TLS, inside TLS, half a
// handshake, half a request, and connections that say nothing.
func rawGarbage(t *testing.T, n *cluster.Node) {
	t.Helper()
	api := strings.TrimPrefix(n.API, "https://")
	admin, err := n.TLS()
	must.OK(t, err)
	for _, addr := range []string{api, n.Peer} {
		for _, bytes := range []string{
			"", "GET / HTTP/1.0\r\n\r\n", strings.Repeat("\x00\xff", 4096),
			"\x16\x03\x01\x40\x00",                     // a TLS record that announces more than it may
			"\x16\x03\x01\x00\x05\x01\x00\x10\x00\x00", // half a ClientHello
		} {
			conn := dial(t, addr)
			_, _ = io.WriteString(conn, bytes)
			conn.Close()
		}
	}
	for _, text := range []string{
		"GARBAGE\r\n\r\n", "GET / HTTP/1.1\r\nHost", "GET / HTTP/1.1\r\n\r\n",
		"POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzzzz\r\n",
		"POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
		"GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n",
	} {
		conn := tls.Client(dial(t, api), withHost(admin))
		_, _ = io.WriteString(conn, text)
		conn.Close()
	}
	// The peer port takes no client of the API, whatever it offers to speak.
	for _, protocols := range [][]string{nil, {"h2"}, {"quorate-raft/1"}} {
		cfg := withHost(admin)
		cfg.InsecureSkipVerify, cfg.NextProtos = true, protocols
		conn := tls.Client(dial(t, n.Peer), cfg)
		_, _ = io.WriteString(conn, strings.Repeat("garbage ", 100))
		got, err := io.ReadAll(conn)
		var timeout net.Error
		if err == nil && len(got) > 0 || errors.As(err, &timeout) && timeout.Timeout() {
			t.Errorf("%s: the peer port answers a client of the API (%q): %q, %v", n.Name, protocols, got, err)
		}
		conn.Close()
	}
}

// silenceWithin bounds how long a node may keep a connection that says nothing.
const silenceWithin = 20 * time.Second

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
	must.OK(t, err)
	must.OK(t, conn.SetDeadline(time.Now().Add(silenceWithin)))
	return conn
}

func withHost(c *tls.Config) *tls.Config {
	c = c.Clone()
	c.ServerName = "127.0.0.1"
	return c
}
