package node

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
)

// TestStalledBackup: a client that stops reading ends its backup, and makes room for
// others, which are refused until then; one that reads slowly does not.
func TestStalledBackup(t *testing.T) {
	const stall = 500 * time.Millisecond
	ended := make(chan error, 1)
	s := httptest.NewUnstartedServer(serveAtMost(1, "backups", func(w http.ResponseWriter, r *http.Request) {
		to := movingAnswer(w, stall)
		buf := make([]byte, 4*backupPiece)
		pieces := 1 << 20
		if r.URL.Path == "/slow" {
			pieces = 4
		}
		var err error
		for i := 0; i < pieces && err == nil; i++ {
			if r.URL.Path == "/slow" {
				time.Sleep(stall / 2) // longer than stall in all
			}
			_, err = to.Write(buf)
		}
		ended <- err
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, http2 := range []bool{false, true} {
		client := s.Client()
		client.Transport.(*http.Transport).ForceAttemptHTTP2 = http2
		if !http2 {
			client = &http.Client{Transport: &http.Transport{TLSClientConfig: client.Transport.(*http.Transport).TLSClientConfig.Clone()}}
			client.Transport.(*http.Transport).TLSClientConfig.NextProtos = []string{"http/1.1"}
		}
		get := func(path string) *http.Response {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
			must.OK(t, err)
			w, err := client.Do(r)
			must.OK(t, err)
			return w
		}
		await := func() error {
			select {
			case err := <-ended:
				return err
			case <-ctx.Done():
				t.Fatal("the stream does not end")
				return nil
			}
		}
		stopped := get("/whole")
		if w := get("/whole"); w.StatusCode != http.StatusTooManyRequests || w.Header.Get("Retry-After") == "" {
			t.Errorf("a second one: %s, Retry-After %q", w.Status, w.Header.Get("Retry-After"))
		}
		if err := await(); err == nil {
			t.Error("the client that reads nothing was sent everything")
		}
		stopped.Body.Close()
		var slow *http.Response
		for slow = get("/slow"); slow.StatusCode != http.StatusOK && ctx.Err() == nil; slow = get("/slow") {
			slow.Body.Close()
		}
		if n, err := io.Copy(io.Discard, slow.Body); n != 16*backupPiece || err != nil {
			t.Errorf("slow: %d bytes, %v", n, err)
		}
		slow.Body.Close()
		if err := await(); err != nil {
			t.Error(err)
		}
	}
}
