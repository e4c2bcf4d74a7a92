package listener

import (
	"bytes"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// frames is a connection of HTTP/2 whose client takes no answers: its windows are zero.
type frames struct {
	t    *testing.T
	conn *tls.Conn
	*http2.Framer
	next uint32
}

func dialFrames(t *testing.T, s *httptest.Server) *frames {
	t.Helper()
	conn, err := tls.Dial("tcp", s.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	must.OK(t, err)
	t.Cleanup(func() { conn.Close() })
	must.OK(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	f := &frames{t: t, conn: conn, Framer: http2.NewFramer(conn, conn), next: 1}
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	must.OK(t, f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize}))
	return f
}

// ask begins a request on a stream of its own.
func (f *frames) ask(user string) {
	f.t.Helper()
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, h := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "x"}, {":path", "/"}, {"user", user}} {
		must.OK(f.t, e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}))
	}
	must.OK(f.t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: f.next, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true}))
	f.next += 2
}

// outcome of the next n streams: how many have an answer that begins, and how many are reset.
func (f *frames) outcome(n int) (answered, reset int) {
	f.t.Helper()
	for answered+reset < n {
		frame, err := f.ReadFrame()
		if err != nil {
			f.t.Fatalf("after %d answers and %d resets: %v", answered, reset, err)
		}
		switch frame.(type) {
		case *http2.HeadersFrame:
			answered++
		case *http2.RSTStreamFrame:
			reset++
		}
	}
	return answered, reset
}

// TestGuestsAnswersAreBounded: answers that guests do not take are reset when there are too many
// of them, but for the first of each connection; what is taken, or ends, makes room. Users are not
// concerned.
func TestGuestsAnswersAreBounded(t *testing.T) {
	door := greeter{Authenticator: byHeader{}}
	var l *Listener
	l, s := serveConnections(t, 100, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.bounded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = door.Authenticate(r)
			_, _ = io.WriteString(w, "here")
		})).ServeHTTP(w, r)
	}))
	l.guestAnswers = 10
	expect := func(who string, f *frames, user string, n, answered int) {
		t.Helper()
		for range n {
			f.ask(user)
		}
		if a, r := f.outcome(n); a != answered || r != n-answered {
			t.Errorf("%s: %d answers and %d resets, want %d and %d", who, a, r, answered, n-answered)
		}
	}
	crowd := dialFrames(t, s)
	expect("a guest with many streams", crowd, "", 30, 10)
	one := dialFrames(t, s)
	expect("another guest", one, "", 1, 1)
	expect("a user", dialFrames(t, s), "alice", 30, 30)
	crowd.conn.Close()
	awaitAnswers(t, l, 1)
	expect("when the first has gone", dialFrames(t, s), "", 30, 9)
	must.OK(t, one.WriteWindowUpdate(1, 100))
	awaitAnswers(t, l, 9)
}

// awaitAnswers waits until guests have no more than so many answers.
func awaitAnswers(t *testing.T, l *Listener, most int) {
	t.Helper()
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		n := l.answers
		l.mu.Unlock()
		if n <= most {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("guests still have %d answers, want %d", n, most)
		}
	}
}
