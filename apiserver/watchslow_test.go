package apiserver_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/internal/must"
)

// TestSlowReaderIsNotStalled: a client that takes a long time for many events, but
// takes them, keeps its watch.
func TestSlowReaderIsNotStalled(t *testing.T) {
	t.Parallel()
	const objects, size = 40, 1 << 20
	limit := 2 * time.Second // more than a busy machine makes the reader wait
	if testing.Short() {
		limit = 600 * time.Millisecond
	}
	e := newEnv(t, func(c *apiserver.Config) { c.Limits.StalledWatch = limit })
	big := strings.Repeat("x", size)
	for i := range objects {
		if w, answer := e.do(http.MethodPost, maps, nil, fmt.Sprintf(`{"metadata":{"name":"big-%d"},"data":{"k":%q}}`, i, big)); w.StatusCode != 201 {
			t.Fatal(clip(answer))
		}
	}
	conn, err := tls.Dial("tcp", e.http.Listener.Addr().String(), http1)
	must.OK(t, err)
	defer conn.Close()
	must.OK(t, conn.SetDeadline(time.Now().Add(3*patience)))
	if _, err := fmt.Fprintf(conn, "GET %s?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n", maps); err != nil {
		t.Fatal(err)
	}
	// All of them are one batch. A pause per object makes it last for several limits.
	buf := make([]byte, 64<<10)
	began := time.Now()
	for read, pauses := 0, 0; read < objects*size; {
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatalf("after %d of %d bytes, %s: %v", read, objects*size, time.Since(began), err)
		}
		if read += n; read > (pauses+1)*size {
			pauses++
			time.Sleep(limit / 14)
		}
	}
	if took := time.Since(began); took < 2*limit {
		t.Errorf("the batch took %s: too fast to show anything", took)
	}
}
