package membership

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
)

// TestJoinBodyInTime: strangers cannot hold a connection with a join whose body does not
// come; and a join that came whole is not ended by the bound of its body.
func TestJoinBodyInTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run(strings.Fields("start a expect=1"))
	w.formed([]string{"a"})
	mc := w.machine("a")
	serving, err := mc.cert.ServingCertificate(nil)
	must.OK(t, err)
	s := httptest.NewUnstartedServer(mc.node.JoinHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{*serving}}
	s.StartTLS()
	t.Cleanup(s.Close)
	const whole = `{"tokenID":"0011223344556677","secret":"x","node":"n"}`
	for _, c := range []struct {
		name, body string
		announced  int
		after      time.Duration // how long it takes, at least
		code       string
	}{
		{"none of it", "", 100, joinBodyWithin, "400 "},
		{"half of it", whole[:10], len(whole), joinBodyWithin, "400 "},
		{"all of it", whole, len(whole), 0, "401 "},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			conn, err := tls.Dial("tcp", s.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
			must.OK(t, err)
			defer conn.Close()
			began := time.Now()
			if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", JoinPath, c.announced, c.body); err != nil {
				t.Fatal(err)
			}
			must.OK(t, conn.SetReadDeadline(began.Add(time.Minute)))
			reader := bufio.NewReader(conn)
			resp, err := http.ReadResponse(reader, nil)
			if err != nil {
				t.Fatalf("after %s: %v", time.Since(began), err)
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil || !strings.HasPrefix(resp.Status, c.code) {
				t.Errorf("%s %s %v", resp.Status, body, err)
			}
			if _, err := reader.ReadByte(); !errors.Is(err, io.EOF) {
				t.Errorf("the connection does not end: %v", err)
			}
			if took := time.Since(began); took < c.after {
				t.Errorf("it took %s", took)
			}
		})
	}
}
