package apiserver_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/internal/must"
)

// orNobody is admin, for whom clients may also be anonymous.
type orNobody struct{ admin }

func (a orNobody) Authenticate(r *http.Request) (*auth.User, error) {
	if r.Header.Get("Test-Anonymous") != "" {
		return auth.AnonymousUser(), nil
	}
	return a.admin.Authenticate(r)
}

// TestUnreadBodies: a body that does not come, or is not needed, keeps no answer and
// no connection of HTTP/1.1 waiting: not at all for who is nobody, and for a user no longer than
// Limits.BodyPause.
func TestUnreadBodies(t *testing.T) {
	t.Parallel()
	const pause = 300 * time.Millisecond
	e := newEnv(t, func(c *apiserver.Config) {
		c.Authenticator, c.Limits.BodyPause = orNobody{}, pause
	})
	if w, answer := e.do(http.MethodPost, maps, nil, fmt.Sprintf(`{"metadata":{"name":"big"},"data":{"k":%q}}`, strings.Repeat("x", 300<<10))); w.StatusCode != http.StatusCreated {
		t.Fatal(clip(answer))
	}
	const (
		unauthorized = "\nTest-Unauthorized: 1"
		anonymous    = "\nTest-Anonymous: 1"
		alice        = "\nTest-User: alice" // who may do nothing
	)
	for _, x := range []struct {
		name, head, body string // body is what comes of it
		code             int
		kept             bool // the connection
	}{
		{"refused before all, no body", "POST " + maps + " HTTP/1.1" + unauthorized + "\nContent-Length: 10", "", 401, false},
		{"refused before all, a body without end", "POST " + maps + " HTTP/1.1" + unauthorized + "\nTransfer-Encoding: chunked", "", 401, false},
		{"a path that cannot be, no body", "POST /api/v1/namespaces/../x HTTP/1.1\nContent-Length: 10", "", 404, false},
		{"nobody's create, no body", "POST " + maps + " HTTP/1.1" + anonymous + "\nContent-Length: 10", "", 403, false},
		{"nobody's health check, no body", "GET /livez HTTP/1.1" + anonymous + "\nContent-Length: 10", "", 404, false},
		{"a user's create that is refused, no body", "POST " + maps + " HTTP/1.1" + alice + "\nContent-Length: 10", "", 403, false},
		{"a user's create that is refused, half a body", "POST " + maps + " HTTP/1.1" + alice + "\nContent-Length: 10", "12345", 403, false},
		{"a user's create that is refused, its body", "POST " + maps + " HTTP/1.1" + alice + "\nContent-Length: 10", "1234567890", 403, true},
		{"a user's create that is refused, a huge body", "POST " + maps + " HTTP/1.1" + alice + "\nContent-Length: 100000000", "", 403, false},
		{"a user who waits to be asked", "POST " + maps + " HTTP/1.1" + alice + "\nContent-Length: 10\nExpect: 100-continue", "", 403, false},
		{"a get with a body", "GET " + maps + "/big HTTP/1.1\nContent-Length: 10", "1234567890", 200, true},
		{"a get without its body", "GET " + maps + "/big HTTP/1.1\nContent-Length: 10", "", 200, false},
		{"a list without its body", "GET " + maps + " HTTP/1.1\nContent-Length: 10", "", 200, false},
		{"a create without its body", "POST " + maps + " HTTP/1.1\nContent-Length: 10", "", 504, false},
		{"a create that announces a huge body", "POST " + maps + " HTTP/1.1\nContent-Length: 100000000", "", 413, false},
		{"a chunked create without its body", "POST " + maps + " HTTP/1.1\nTransfer-Encoding: chunked", "", 504, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			conn, in := e.raw(t, x.head)
			if _, err := io.WriteString(conn, x.body); err != nil {
				t.Fatal(err)
			}
			w, err := http.ReadResponse(in, nil)
			must.OK(t, err)
			answer, err := io.ReadAll(w.Body)
			if err != nil || w.StatusCode != x.code || w.Close == x.kept {
				t.Errorf("%d (%v), closes: %t; want %d, %t: %s", w.StatusCode, err, w.Close, x.code, !x.kept, clip(string(answer)))
			}
			if !x.kept {
				if _, err := in.ReadByte(); err != io.EOF {
					t.Errorf("the connection's end: %v", err)
				}
				return
			}
			again(t, conn, in)
		})
	}
}

// again asks once more on a connection.
func again(t *testing.T, conn io.Writer, in *bufio.Reader) {
	t.Helper()
	if _, err := io.WriteString(conn, "GET /version HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := http.ReadResponse(in, nil); err != nil {
		t.Errorf("the next request on the connection: %v", err)
	}
}

// TestTooLargeBodies: clients of a body that is somewhat too large get their answer when they have sent it, and not before:
// some do not read one that comes earlier.
func TestTooLargeBodies(t *testing.T) {
	const limit = 64 << 10
	e := newEnv(t, func(c *apiserver.Config) { c.Authenticator, c.Limits.Body = orNobody{}, limit })
	old := e.http.Client().Transport.(*http.Transport).Clone()
	old.ForceAttemptHTTP2, old.TLSClientConfig.NextProtos = false, []string{"http/1.1"}
	defer old.CloseIdleConnections()
	for _, client := range []*http.Client{e.http.Client(), {Transport: old}} {
		for _, known := range []bool{true, false} {
			const size = limit + 512<<10
			body := &counted{}
			body.left.Store(size)
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.http.URL+maps, body)
			must.OK(t, err)
			if r.ContentLength = -1; known {
				r.ContentLength = size
			}
			w, err := client.Do(r)
			must.OK(t, err)
			answer, err := io.ReadAll(w.Body)
			w.Body.Close()
			if err != nil || w.StatusCode != http.StatusRequestEntityTooLarge || body.left.Load() != 0 {
				t.Errorf("%s, length known: %t: %d %v, with %d bytes to send: %s", w.Proto, known, w.StatusCode, err, body.left.Load(), clip(string(answer)))
			}
		}
	}
}

// counted is a body of so many bytes.
type counted struct{ left atomic.Int64 }

func (c *counted) Read(b []byte) (int, error) {
	n := min(int64(len(b)), c.left.Load())
	if n == 0 {
		return 0, io.EOF
	}
	c.left.Add(-n)
	return int(n), nil
}

// TestSteadyBody: a body may take much longer than its client may pause.
func TestSteadyBody(t *testing.T) {
	t.Parallel()
	const pause = time.Second
	e := newEnv(t, func(c *apiserver.Config) { c.Limits.BodyPause = pause })
	const object = `{"metadata":{"name":"steady"},"data":{"k":"v"}}`
	conn, in := e.announce(t, "", len(object))
	for b := range strings.SplitSeq(object, "") { // the client is as slow as that
		time.Sleep(2 * pause / time.Duration(len(object)))
		if _, err := io.WriteString(conn, b); err != nil {
			t.Fatal(err)
		}
	}
	w, err := http.ReadResponse(in, nil)
	if err != nil || w.StatusCode != http.StatusCreated {
		t.Error(err, w)
	}
}
