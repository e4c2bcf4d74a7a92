package commands

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"k8s.io/klog/v2"
)

// TestLibraryLogs: what libraries log is in our log, with bounds on lines and on their length.
func TestLibraryLogs(t *testing.T) {
	var b bytes.Buffer
	now := time.Unix(0, 0)
	h := &libraryHandler{out: slog.New(slog.NewTextHandler(&b, nil)), now: func() time.Time { return now }}
	log := slog.New(h)
	lines := func() int { return strings.Count(b.String(), "\n") }
	log.Debug("verbose")
	for range 100 {
		log.Info("rejected by webhook " + strings.Repeat("x", 10_000))
	}
	if lines() != libraryLines || strings.Contains(b.String(), "verbose") || b.Len() > libraryLines*(libraryLine+300) {
		t.Errorf("%d lines, %d bytes: %.300s", lines(), b.Len(), b.String())
	}
	b.Reset()
	now = now.Add(time.Second)
	log.Error("failed", "webhook", "w")
	if got := b.String(); lines() != 1 || !strings.Contains(got, "level=WARN") || !strings.Contains(got, "dropped=95") || !strings.Contains(got, "webhook=w") || !strings.Contains(got, "text=failed") {
		t.Errorf("%q", got)
	}
	b.Reset()
	now = now.Add(time.Second)
	log.Error("Error on socket receive", "err", &net.OpError{Op: "read", Err: net.ErrClosed})
	if got := b.String(); got != "" {
		t.Errorf("the end of a connection of its own: %q", got)
	}
}

// TestStandardLogger: what a server sends out of turn is logged by net/http, in bytes of that server's choice and as
// often as it likes. It is in our log, with the same bounds.
func TestStandardLogger(t *testing.T) {
	flags := log.Flags()
	t.Cleanup(func() {
		klog.ClearLogger()
		log.SetOutput(os.Stderr)
		log.SetFlags(flags)
	})
	r, w := io.Pipe()
	defer r.Close()
	defer time.AfterFunc(20*time.Second, func() { _ = r.CloseWithError(errors.New("no line")) }).Stop()
	libraryLogs(slog.New(slog.NewTextHandler(w, nil)))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	defer l.Close()
	idle := make(chan struct{})
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
		<-idle
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nX: of the server's choice\r\n\r\n")
	}()
	trace := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{PutIdleConn: func(error) { close(idle) }})
	req, err := http.NewRequestWithContext(trace, http.MethodGet, "http://"+l.Addr().String(), nil)
	must.OK(t, err)
	client := &http.Transport{}
	defer client.CloseIdleConnections()
	res, err := client.RoundTrip(req)
	must.OK(t, err)
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil || !strings.Contains(line, `level=WARN msg="a library logs" library=go text="Unsolicited response`) || !strings.Contains(line, "of the server's choice") {
		t.Errorf("%q, %v", line, err)
	}
}
