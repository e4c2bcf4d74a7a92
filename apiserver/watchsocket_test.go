package apiserver_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"golang.org/x/net/websocket"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/internal/must"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

// http1 is for connections that must not become HTTP/2.
var http1 = &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}

func (e *env) socket(path string, change func(*websocket.Config)) (*websocket.Conn, error) {
	e.t.Helper()
	config, err := websocket.NewConfig("wss"+strings.TrimPrefix(e.http.URL, "https")+path, "https://example.com")
	must.OK(e.t, err)
	config.TlsConfig = http1
	if change != nil {
		change(config)
	}
	ws, err := config.DialContext(e.t.Context())
	if err == nil {
		e.t.Cleanup(func() { ws.Close() })
		must.OK(e.t, ws.SetDeadline(time.Now().Add(patience)))
	}
	return ws, err
}

func (e *env) mustSocket(path string) *websocket.Conn {
	e.t.Helper()
	ws, err := e.socket(path, nil)
	if err != nil {
		e.t.Fatalf("%s: %v", path, err)
	}
	return ws
}

// message reads one message. It must be of the wanted kind.
func (e *env) message(ws *websocket.Conn, kind byte) []byte {
	e.t.Helper()
	var got []byte
	any := websocket.Codec{Unmarshal: func(data []byte, payloadType byte, _ any) error {
		got = data
		if payloadType != kind {
			return fmt.Errorf("a message of kind %d, want %d", payloadType, kind)
		}
		return nil
	}}
	must.OK(e.t, any.Receive(ws, nil))
	return got
}

// TestSocketWatch takes a watch over a WebSocket through what a watch can say.
func TestSocketWatch(t *testing.T) {
	e := newEnv(t, func(c *apiserver.Config) { c.Limits.Bookmark = time.Hour })
	ws := e.mustSocket(maps + "?watch=1&allowWatchBookmarks=true&timeoutSeconds=2")
	plain := e.watch(maps + "?watch=1&allowWatchBookmarks=true&timeoutSeconds=2")
	for _, step := range []func(){
		func() {},
		func() { e.do(http.MethodPost, maps, nil, `{"metadata":{"name":"a"},"data":{"k":"<v>"}}`) },
		func() {
			e.do(http.MethodPatch, maps+"/a", http.Header{"Content-Type": {"application/merge-patch+json"}}, `{"data":null}`)
		},
		func() { e.do(http.MethodDelete, maps+"/a", nil, "") },
		func() {},
	} {
		step()
		got, want := string(e.message(ws, websocket.TextFrame)), e.next(plain)
		if got != want {
			t.Errorf("got  %swant %s", got, want)
		}
	}
	// The time is up: a last bookmark was read, a normal end follows.
	for i := 0; ; i++ {
		var rest []byte
		err := websocket.Message.Receive(ws, &rest)
		if err == io.EOF {
			break
		}
		if err != nil || !strings.HasPrefix(string(rest), `{"type":"BOOKMARK"`) || i > 1 {
			t.Fatalf("at the end: %q, %v", rest, err)
		}
	}
}

// TestSocketForms: Tables, metadata, protobuf without frame lengths, and errors
// inside the stream.
func TestSocketForms(t *testing.T) {
	e := newEnv(t, nil)
	if w, answer := e.do(http.MethodPost, maps, nil, `{"metadata":{"name":"a"}}`); w.StatusCode != 201 {
		t.Fatal(answer)
	}
	accept := func(form string) func(*websocket.Config) {
		return func(c *websocket.Config) { c.Header = http.Header{"Accept": {form}} }
	}
	for form, fragment := range map[string]string{
		"application/json;as=Table;v=v1;g=meta.k8s.io":                 `"columnDefinitions":[{"name":"Name"`,
		"application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io": `"kind":"PartialObjectMetadata"`,
	} {
		ws, err := e.socket(maps+"?watch=1", accept(form))
		must.OK(t, err)
		if got := e.message(ws, websocket.TextFrame); !strings.Contains(string(got), fragment) {
			t.Errorf("%s: %s", form, got)
		}
	}
	ws, err := e.socket(maps+"?watch=1", accept("application/vnd.kubernetes.protobuf"))
	must.OK(t, err)
	var event metav1.WatchEvent
	if err := event.Unmarshal(e.message(ws, websocket.BinaryFrame)); err != nil || event.Type != "ADDED" {
		t.Fatalf("%v, %v", event.Type, err)
	}
	scheme := runtime.NewScheme()
	must.OK(t, corev1.AddToScheme(scheme))
	obj, _, err := protobuf.NewSerializer(scheme, scheme).Decode(event.Object.Raw, nil, nil)
	if cm, ok := obj.(*corev1.ConfigMap); !ok || cm.Name != "a" {
		t.Errorf("%v, %v", obj, err)
	}
	ws = e.mustSocket(maps + "?watch=1&resourceVersion=99999")
	if got := string(e.message(ws, websocket.TextFrame)); !strings.HasPrefix(got, `{"type":"ERROR"`) || !strings.Contains(got, "ResourceVersionTooLarge") {
		t.Error(got)
	}
	var rest []byte
	if err := websocket.Message.Receive(ws, &rest); err != io.EOF {
		t.Errorf("after an ERROR: %q, %v", rest, err)
	}
}

// TestSocketRefusals: what is wrong with a request is said in plain HTTP.
func TestSocketRefusals(t *testing.T) {
	e := newEnv(t, nil)
	for _, row := range []struct {
		name, path, headers string
		code                int
		text                string
	}{
		{"good", "?watch=1", "Origin: https://x\r\nSec-WebSocket-Key: AAAA\r\nSec-WebSocket-Version: 13", 101, ""},
		{"one protocol", "?watch=1", "Origin: https://x\r\nSec-WebSocket-Key: AAAA\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: p", 101, "Sec-WebSocket-Protocol: p\r\n"},
		{"no origin", "?watch=1", "Sec-WebSocket-Key: AAAA\r\nSec-WebSocket-Version: 13", 403, "Origin is missing"},
		{"null origin", "?watch=1", "Origin: null\r\nSec-WebSocket-Key: AAAA\r\nSec-WebSocket-Version: 13", 403, "not a URL"},
		{"half a handshake", "?watch=1", "Origin: https://x", 400, "Sec-WebSocket-Key"},
		{"old version", "?watch=1", "Origin: https://x\r\nSec-WebSocket-Key: AAAA\r\nSec-WebSocket-Version: 8", 400, "Sec-Websocket-Version: 13\r\n"},
		{"two protocols", "?watch=1", "Origin: https://x\r\nSec-WebSocket-Key: AAAA\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: a, b", 400, "subprotocol"},
		{"bad revision", "?watch=1&resourceVersion=x", "Origin: https://x\r\nSec-WebSocket-Key: AAAA\r\nSec-WebSocket-Version: 13", 400, "invalid resource version"},
		{"nobody", "?watch=1", "Test-Unauthorized: 1\r\nOrigin: https://x\r\nSec-WebSocket-Key: AAAA\r\nSec-WebSocket-Version: 13", 401, "Unauthorized"},
		{"no watch", "", "Origin: https://x\r\nSec-WebSocket-Key: AAAA\r\nSec-WebSocket-Version: 13", 200, `"kind":"ConfigMapList"`},
	} {
		conn, err := tls.Dial("tcp", e.http.Listener.Addr().String(), http1)
		must.OK(t, err)
		defer conn.Close()
		must.OK(t, conn.SetDeadline(time.Now().Add(patience)))
		fmt.Fprintf(conn, "GET %s%s HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n%s\r\n\r\n", maps, row.path, row.headers)
		var dump bytes.Buffer
		resp, err := http.ReadResponse(bufio.NewReader(io.TeeReader(conn, &dump)), nil)
		if err != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
		if resp.StatusCode != 101 {
			if _, err := io.ReadAll(resp.Body); err != nil {
				t.Fatalf("%s: %v", row.name, err)
			}
		}
		if resp.StatusCode != row.code || !strings.Contains(dump.String(), row.text) {
			t.Errorf("%s: want %d and %q in\n%s", row.name, row.code, row.text, dump.String())
		}
		if resp.StatusCode == 101 && resp.Header.Get(apiserver.HeaderNode) == "" {
			t.Errorf("%s: no %s in\n%s", row.name, apiserver.HeaderNode, dump.String())
		}
		conn.Close()
	}
	e.awaitWatches(0)
}

// TestSocketOfAnotherPage: a browser that has a client certificate opens no WebSocket
// for the page of somebody else.
func TestSocketOfAnotherPage(t *testing.T) {
	e := newEnv(t, nil)
	server := httptest.NewUnstartedServer(e.api)
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	defer server.Close()
	with := http1.Clone()
	with.Certificates = server.TLS.Certificates
	for _, x := range []struct {
		host, origin string
		config       *tls.Config
		code         int
	}{
		{"api.example:6443", "https://api.example:6443", with, 101},
		{"api.example", "https://API.example:443", with, 101},
		{"api.example", "https://evil.example", with, 403},
		{"api.example:6443", "https://api.example:8080", with, 403},
		{"api.example", "https://evil.example", http1, 101}, // by a token, or nobody
	} {
		conn, err := tls.Dial("tcp", server.Listener.Addr().String(), x.config)
		must.OK(t, err)
		must.OK(t, conn.SetDeadline(time.Now().Add(patience)))
		fmt.Fprintf(conn, "GET %s?watch=1 HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nOrigin: %s\r\nSec-WebSocket-Key: AAAA\r\nSec-WebSocket-Version: 13\r\n\r\n", maps, x.host, x.origin)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		must.OK(t, err)
		if resp.StatusCode != x.code {
			t.Errorf("%s from %s: %s, want %d", x.host, x.origin, resp.Status, x.code)
		}
		conn.Close()
	}
	e.awaitWatches(0)
}

// TestSocketOverHTTP2: HTTP/2 has no upgrade; its headers are refused there.
func TestSocketOverHTTP2(t *testing.T) {
	e := newEnv(t, nil)
	conn, err := tls.Dial("tcp", e.http.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	must.OK(t, err)
	defer conn.Close()
	must.OK(t, conn.SetDeadline(time.Now().Add(patience)))
	code := rawHTTP2(t, conn, maps+"?watch=1", "upgrade", "websocket")
	if code != "400" {
		t.Errorf("status %s, want 400", code)
	}
}

func rawHTTP2(t *testing.T, conn io.ReadWriter, path string, header ...string) string {
	t.Helper()
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	f := http2.NewFramer(conn, conn)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	must.OK(t, f.WriteSettings())
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for all := append([]string{":method", "GET", ":scheme", "https", ":authority", "x", ":path", path}, header...); len(all) > 0; all = all[2:] {
		must.OK(t, encoder.WriteField(hpack.HeaderField{Name: all[0], Value: all[1]}))
	}
	must.OK(t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true}))
	for {
		frame, err := f.ReadFrame()
		must.OK(t, err)
		if h, ok := frame.(*http2.MetaHeadersFrame); ok {
			return h.PseudoValue("status")
		}
	}
}

// awaitWatches waits until a number of watches is open.
func (e *env) awaitWatches(n int) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for apiserver.OpenWatches(e.api) != n {
		select {
		case <-ctx.Done():
			e.t.Fatalf("%d watches are open, want %d", apiserver.OpenWatches(e.api), n)
		case <-time.After(time.Millisecond):
		}
	}
}

// frame is a WebSocket frame as a client sends it.
func frame(first byte, masked bool, payload []byte) []byte {
	b := []byte{first}
	mask := byte(0)
	if masked {
		mask = 0x80
	}
	switch n := len(payload); {
	case n < 126:
		b = append(b, mask|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, mask|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, mask|127), uint64(n))
	}
	if masked {
		b = append(b, 0, 0, 0, 0) // a mask that changes nothing
	}
	return append(b, payload...)
}

// TestSocketFrames sends frames, good and bad, and looks whether the watch goes on.
func TestSocketFrames(t *testing.T) {
	const text, ping, pong, closing, fin = 1, 9, 10, 8, 0x80
	for _, row := range []struct {
		name string
		send []byte
		ends bool
		want []byte // first bytes of the answer, if any
	}{
		{"a ping", frame(fin|ping, true, []byte("hi")), false, []byte{fin | pong, 2, 'h', 'i'}},
		{"a long ping", frame(fin|ping, true, make([]byte, 3000)), false, []byte{fin | pong, 125}},
		{"a pong", frame(fin|pong, true, nil), false, nil},
		{"a message", frame(fin|text, true, []byte("hello")), false, nil},
		{"fragments", append(frame(text, true, []byte("hel")), frame(fin, true, []byte("lo"))...), false, nil},
		{"an unknown kind", frame(fin|5, true, nil), false, nil},
		{"a close", frame(fin|closing, true, []byte{3, 0xe8}), true, []byte{fin | closing, 2, 3, 0xe8}},
		{"unmasked", frame(fin|text, false, []byte("hello")), true, []byte{fin | closing, 2, 3, 0xea}},
		{"too long", frame(fin|text, true, make([]byte, 5000)), true, []byte{fin | closing, 2}},
		{"a length of 2^63", append([]byte{fin | text, 0xff}, bytes.Repeat([]byte{0xff}, 12)...), true, []byte{fin | closing, 2}},
		{"garbage", []byte("GET / HTTP/1.1\r\n\r\n"), true, []byte{fin | closing, 2}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, nil)
			conn, err := tls.Dial("tcp", e.http.Listener.Addr().String(), http1)
			must.OK(t, err)
			defer conn.Close()
			must.OK(t, conn.SetDeadline(time.Now().Add(patience)))
			fmt.Fprintf(conn, "GET %s?watch=1 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nOrigin: http://x\r\nSec-WebSocket-Key: AAAA\r\nSec-WebSocket-Version: 13\r\n\r\n", maps)
			r := bufio.NewReader(conn)
			if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != 101 {
				t.Fatal(resp, err)
			}
			e.awaitWatches(1)
			if _, err := conn.Write(row.send); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(row.want))
			if _, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, row.want) {
				t.Fatalf("answer %x, %v, want %x", got, err, row.want)
			}
			if row.ends {
				e.awaitWatches(0)
				return
			}
			if row.name == "a long ping" {
				if _, err := r.Discard(125); err != nil {
					t.Fatal(err)
				}
			}
			if w, answer := e.do(http.MethodPost, maps, nil, `{"metadata":{"name":"a"}}`); w.StatusCode != 201 {
				t.Fatal(answer)
			}
			if b, err := r.ReadByte(); err != nil || b != fin|text {
				t.Errorf("the next frame begins with %x, %v", b, err)
			}
		})
	}
}

// TestSocketStalled: a client that sends pings and reads nothing is cut off by the
// janitor; one that vanishes ends at once; and at shutdown a bookmark comes first.
func TestSocketStalled(t *testing.T) {
	t.Parallel()
	limit := 2 * time.Second // more than a busy machine makes the readers wait
	if testing.Short() {
		limit = 600 * time.Millisecond
	}
	e := newEnv(t, func(c *apiserver.Config) {
		c.Limits.StalledWatch = limit
		c.Limits.Bookmark = time.Hour
	})
	stalled := e.mustSocket(maps + "?watch=1")
	gone := e.mustSocket(maps + "?watch=1")
	good := e.mustSocket(maps + "?watch=1&resourceVersion=0&allowWatchBookmarks=true")
	e.awaitWatches(3)
	gone.Close()
	e.awaitWatches(2)
	stalled.PayloadType = websocket.PingFrame
	// Without it both ends would wait for five seconds to tell the other one of the end.
	t.Cleanup(func() { _ = stalled.SetDeadline(time.Unix(1, 0)) })
	good.MaxPayloadBytes = 4 << 20
	must.OK(t, good.SetDeadline(time.Now().Add(6*patience)))
	go func() {
		for {
			if _, err := stalled.Write(make([]byte, 100)); err != nil {
				return
			}
		}
	}()
	big := strings.Repeat("x", 1<<20)
	go func() {
		for {
			var b []byte
			if websocket.Message.Receive(good, &b) != nil {
				return
			}
		}
	}()
	for i := range 16 {
		if w, answer := e.do(http.MethodPost, maps, nil, fmt.Sprintf(`{"metadata":{"name":"big-%d"},"data":{"k":%q}}`, i, big)); w.StatusCode != 201 {
			t.Fatal(clip(answer))
		}
	}
	e.awaitWatches(1)
	last := e.mustSocket(maps + "?watch=1&resourceVersionMatch=NotOlderThan&sendInitialEvents=false&allowWatchBookmarks=true")
	e.awaitWatches(2)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must.OK(t, e.api.Shutdown(ctx))
	var before string
	for {
		var b []byte
		if err := websocket.Message.Receive(last, &b); err != nil {
			if err != io.EOF || !strings.HasPrefix(before, `{"type":"BOOKMARK"`) {
				t.Errorf("the last message was %q, %v", before, err)
			}
			break
		}
		before = string(b)
	}
}
