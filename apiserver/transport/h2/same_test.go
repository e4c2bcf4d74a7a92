package h2

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/quorate/quorate/internal/cputime"
)

// ask is a handler that does many things; what, is the path.
func ask(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/small":
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Audit-Id", "an-id")
		w.Header()["X-Quorate-Index"] = []string{"17"}
		_, _ = w.Write([]byte(`{"a":1}`))
	case "/nothing":
	case "/created":
		w.Header().Set("Location", "/there")
		w.WriteHeader(http.StatusCreated)
		w.Header().Set("Late", "not sent")
		_, _ = io.WriteString(w, "made")
	case "/none":
		w.WriteHeader(http.StatusNoContent)
		if _, err := w.Write([]byte("x")); !errors.Is(err, http.ErrBodyNotAllowed) {
			panic(err)
		}
	case "/large":
		for i := range 40 {
			_, _ = w.Write(bytes.Repeat([]byte{byte('a' + i%26)}, 1000*i))
		}
	case "/flushed":
		_, _ = w.Write([]byte("one "))
		w.(http.Flusher).Flush()
		_, _ = w.Write([]byte("two"))
		w.(http.Flusher).Flush()
	case "/declared":
		w.Header().Set("Content-Length", "5")
		_, _ = w.Write([]byte("12345"))
	case "/many":
		for i := range 300 {
			w.Header().Add("X-Many", strings.Repeat("v", 100)+fmt.Sprint(i)) // more than a frame
		}
	case "/echo":
		body, err := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %q %d %v %s", r.Method, r.URL.RequestURI(), r.ContentLength, err, body)
	case "/about":
		_, _ = fmt.Fprintf(w, "%s %s %s %v %v %v %v %s", r.Proto, r.Host, r.RequestURI, r.TLS != nil, r.Header["Cookie"], r.Header["Accept"], r.Header["X-Twice"], r.Header.Get("User-Agent"))
	case "/unread":
		w.WriteHeader(http.StatusForbidden)
	case "/panics":
		panic("as it should")
	case "/aborts":
		_, _ = w.Write([]byte("part"))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	case "/continue":
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = w.Write([]byte("after"))
	default:
		http.NotFound(w, r)
	}
}

// TestSameAsNetHTTP: what clients get is what net/http's own server gives them.
func TestSameAsNetHTTP(t *testing.T) {
	servers := [2]*httptest.Server{serve(t, true, http.HandlerFunc(ask), nil), serve(t, false, http.HandlerFunc(ask), nil)}
	for _, q := range []struct {
		method, path, body string
		header             http.Header
	}{
		{"GET", "/small", "", nil}, {"HEAD", "/small", "", nil}, {"GET", "/nothing", "", nil}, {"HEAD", "/nothing", "", nil},
		{"GET", "/created", "", nil}, {"GET", "/none", "", nil}, {"GET", "/large", "", nil}, {"HEAD", "/large", "", nil},
		{"GET", "/flushed", "", nil}, {"GET", "/declared", "", nil}, {"GET", "/many", "", nil},
		{"GET", "/echo", "", nil}, {"POST", "/echo?a=b", "hello", nil},
		{"PUT", "/echo", strings.Repeat("0123456789", 300_000), nil},
		{"POST", "/echo", "not declared", nil},
		{"POST", "/echo", "expected", http.Header{"Expect": {"100-continue"}}},
		{"GET", "/about", "", http.Header{"Accept": {"a", "b"}, "X-Twice": {"1", "2"}, "Cookie": {"a=1", "b=2"}, "User-Agent": {"me"}}},
		{"POST", "/unread", strings.Repeat("x", 5_000_000), nil},
		{"GET", "/continue", "", nil}, {"GET", "/missing", "", nil}, {"GET", "/panics", "", nil}, {"GET", "/aborts", "", nil},
	} {
		var got [2]string
		for i, s := range servers {
			var body io.Reader
			if q.body != "" {
				body = strings.NewReader(q.body)
				if q.path == "/echo" && q.header == nil {
					body = io.MultiReader(body) // whose length is not known
				}
			}
			got[i] = strings.ReplaceAll(describe(s, q.method, q.path, body, q.header), strings.TrimPrefix(s.URL, "https://"), "HOST")
		}
		if got[0] != got[1] {
			t.Errorf("%s %s:\n own      %.600s\n net/http %.600s", q.method, q.path, got[0], got[1])
		}
	}
}

func describe(s *httptest.Server, method, path string, body io.Reader, header http.Header) string {
	r, err := http.NewRequest(method, s.URL+path, body)
	if err != nil {
		return err.Error()
	}
	for k, v := range header {
		r.Header[k] = v
	}
	resp, err := s.Client().Do(r)
	if err != nil {
		return "error " + err.Error()[strings.LastIndex(err.Error(), ": ")+1:]
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	lines := []string{fmt.Sprintf("%s %s length %d, %d bytes, error %v", resp.Proto, resp.Status, resp.ContentLength, len(got), err)}
	for k, v := range resp.Header {
		if k == "Date" {
			if _, err := http.ParseTime(v[0]); err != nil {
				lines = append(lines, err.Error())
			}
			v = []string{"a date"}
		}
		lines = append(lines, fmt.Sprintf("%s: %.300q", k, v))
	}
	slices.Sort(lines)
	return strings.Join(append(lines, string(got)), "\n")
}

// TestManyStreams: bodies and answers of all sizes, on few connections at once, arrive whole.
func TestManyStreams(t *testing.T) {
	s := serve(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		for step := 1; len(body) > 0; step = step*3 + 1 {
			n := min(step, len(body))
			_, _ = w.Write(body[:n])
			if step%2 == 0 {
				w.(http.Flusher).Flush()
			}
			body = body[n:]
		}
	}), nil)
	client := s.Client()
	rounds := 30
	if testing.Short() {
		rounds = 8
	}
	var wg sync.WaitGroup
	for worker := range 32 {
		wg.Go(func() {
			for i := range rounds {
				size := (worker*7919 + i*104729) % 300_000
				if i%3 == 0 {
					size %= 3000
				}
				want := bytes.Repeat([]byte{byte(worker), byte(i), 7}, size/3+1)[:size]
				resp, err := client.Post(s.URL, "text/plain", bytes.NewReader(want))
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%d of %d bytes, %v", len(got), len(want), err)
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkGet: a small answer, by this package and by net/http.
func BenchmarkGet(b *testing.B) {
	for _, own := range []bool{true, false} {
		b.Run(fmt.Sprintf("own=%v", own), func(b *testing.B) {
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Content-Type"] = []string{"application/json"}
				_, _ = w.Write(make([]byte, 1400))
			}))
			s.EnableHTTP2 = true
			s.TLS = &tls.Config{NextProtos: []string{"h2"}}
			s.Config.TLSConfig = s.TLS
			if own {
				Configure(s.Config)
			}
			s.StartTLS()
			defer s.Close()
			client := s.Client()
			b.ReportAllocs()
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					resp, err := client.Get(s.URL)
					if err != nil {
						b.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			})
		})
	}
}

// BenchmarkLarge: an answer of 1 MiB to four clients at a time.
func BenchmarkLarge(b *testing.B) {
	answer := bytes.Repeat([]byte("x"), 1<<20)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(answer)
	}))
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{NextProtos: []string{"h2"}}
	s.Config.TLSConfig = s.TLS
	Configure(s.Config)
	s.StartTLS()
	defer s.Close()
	b.SetParallelism(2)
	b.SetBytes(int64(len(answer)))
	cputime.PerOp(b)
	b.RunParallel(func(pb *testing.PB) {
		client := &http.Client{Transport: s.Client().Transport.(*http.Transport).Clone()}
		defer client.CloseIdleConnections()
		for pb.Next() {
			resp, err := client.Get(s.URL)
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	})
}
