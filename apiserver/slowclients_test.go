package apiserver_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/internal/must"
)

// raw opens a connection of HTTP/1.1 and sends the head of a request.
func (e *env) raw(t *testing.T, head string) (*tls.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := tls.Dial("tcp", e.http.Listener.Addr().String(), http1)
	must.OK(t, err)
	t.Cleanup(func() { conn.Close() })
	must.OK(t, conn.SetDeadline(time.Now().Add(patience)))
	if _, err := fmt.Fprintf(conn, "%s\r\nHost: x\r\n\r\n", strings.ReplaceAll(head, "\n", "\r\n")); err != nil {
		t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

const asNarrow = "\nTest-User: narrow"

// announce begins a create whose body is awaited by the server when it returns.
func (e *env) announce(t *testing.T, as string, length int) (*tls.Conn, *bufio.Reader) {
	t.Helper()
	conn, in := e.raw(t, fmt.Sprintf("POST %s HTTP/1.1%s\nContent-Type: application/json\nContent-Length: %d\nExpect: 100-continue", maps, as, length))
	if line, err := in.ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
		t.Fatal(line, err)
	}
	if _, err := in.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return conn, in
}

// TestSlowClientsGiveTheirSeatsBack: who waits for a client has no seat that others
// need: neither with a body that does not come, nor with an answer that nobody takes.
func TestSlowClientsGiveTheirSeatsBack(t *testing.T) {
	t.Parallel()
	e := newFairEnv(t, 100)
	for i := range 16 { // more than buffers hold
		if w, answer := e.do(http.MethodPost, maps, nil, fmt.Sprintf(`{"metadata":{"name":"big-%d"},"data":{"k":%q}}`, i, strings.Repeat("x", 1<<20))); w.StatusCode != 201 {
			t.Fatal(clip(answer))
		}
	}
	e.narrow(t) // one seat, no queue
	served := func(what string) {
		must.Await(t, patience, what, func() string {
			w, answer := e.do(http.MethodGet, maps+"/big-0", user("narrow"), "")
			if w.StatusCode == http.StatusTooManyRequests {
				return answer
			}
			return ""
		})
	}
	const object = `{"metadata":{"name":"late"}}`
	conn, in := e.announce(t, asNarrow, len(object))
	served("beside a body that does not come")
	if _, err := conn.Write([]byte(object)); err != nil {
		t.Fatal(err)
	}
	w, err := http.ReadResponse(in, nil)
	if err != nil || w.StatusCode != http.StatusCreated {
		t.Fatal(err, w)
	}
	for _, query := range []string{"", "?watch=1&resourceVersion=0"} {
		conn, in := e.raw(t, "GET "+maps+query+" HTTP/1.1\nTest-User: narrow")
		if w, err := http.ReadResponse(in, nil); err != nil || w.StatusCode != http.StatusOK {
			t.Fatal(err, w)
		}
		served("beside an answer that nobody takes: " + query)
		conn.Close()
	}
}

// TestLateBodyWaitsForItsTurn: a client that took long for its body is refused when
// others have taken its place.
func TestLateBodyWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	e := newFairEnv(t, 100)
	e.narrow(t)
	const object = `{"metadata":{"name":"late"}}`
	late, in := e.announce(t, asNarrow, len(object))
	//sleep: the client is slow, and has given its seat back by now
	time.Sleep(400 * time.Millisecond) // the client's, not ours: it has lost its turn
	// Another takes the seat, and keeps it as its body comes, if slowly.
	busy, _ := e.announce(t, asNarrow, 1<<20)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				_, _ = busy.Write([]byte{' '})
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	if _, err := late.Write([]byte(object)); err != nil {
		t.Fatal(err)
	}
	w, err := http.ReadResponse(in, nil)
	if err != nil || w.StatusCode != http.StatusTooManyRequests || w.Header.Get("Retry-After") != "1" {
		t.Error(err, w)
	}
}

// TestAnnouncedBytesTakeNoRoom: who announces much and sends nothing keeps nobody from
// writing.
func TestAnnouncedBytesTakeNoRoom(t *testing.T) {
	t.Parallel()
	e := newEnv(t, func(c *apiserver.Config) { c.Limits.WriteBytes = 1 << 20 })
	for range 10 {
		e.announce(t, "", 3_000_000)
	}
	if w, answer := e.do(http.MethodPost, maps, nil, `{"metadata":{"name":"a"}}`); w.StatusCode != http.StatusCreated {
		t.Errorf("%d %s", w.StatusCode, answer)
	}
	// What has come takes room.
	if w, answer := e.do(http.MethodPost, maps, nil, `{"metadata":{"name":"b"},"data":{"k":"`+strings.Repeat("x", 1<<20)+`"}}`); w.StatusCode != http.StatusTooManyRequests || w.Header.Get("Retry-After") != "1" {
		t.Errorf("%d %s", w.StatusCode, clip(answer))
	}
	for _, size := range []int{63 << 10, 64<<10 - 20, 64 << 10, 65 << 10, 200_000} {
		if w, answer := e.do(http.MethodPost, maps, nil, fmt.Sprintf(`{"metadata":{"name":"s%d"},"data":{"k":%q}}`, size, strings.Repeat("x", size))); w.StatusCode != http.StatusCreated || !strings.Contains(answer, strings.Repeat("x", size)) {
			t.Errorf("%d bytes: %d %s", size, w.StatusCode, clip(answer))
		}
	}
}

// TestSlowBodiesLeaveRoom: bodies that hardly come have no seats, but room; a user who needs no
// right for them takes no more of it than there is for slow bodies.
func TestSlowBodiesLeaveRoom(t *testing.T) {
	t.Parallel()
	// As with the defaults, those that have seats and those that are known to be slow do not fill
	// the room together: 100 of 64 KiB, and half of it.
	const roomOfAll, length, many, seats = 16 << 20, 64 << 10, 400, 100
	e := newFairEnv(t, seats, func(c *apiserver.Config) { c.Limits.WriteBytes, c.Limits.BodyPause = roomOfAll, time.Minute })
	for range many {
		conn, _ := e.raw(t, fmt.Sprintf("POST %s HTTP/1.1\nTest-User: mallory\nContent-Type: application/json\nContent-Length: %d", maps, length))
		if _, err := conn.Write([]byte("{")); err != nil {
			t.Fatal(err)
		}
	}
	// By now or a moment later the bodies that have come in part are more than there is room for.
	for until, i := time.Now().Add(4*slowAfter), 0; time.Now().Before(until); i++ {
		if w, answer := e.do(http.MethodPost, maps, nil, fmt.Sprintf(`{"metadata":{"name":"a%d"}}`, i)); w.StatusCode != http.StatusCreated {
			t.Fatalf("create %d: %d %s", i, w.StatusCode, clip(answer))
		}
	}
}

// slowAfter is how long a request may wait for its client before it has no seat any more.
const slowAfter = 250 * time.Millisecond
