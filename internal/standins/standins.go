// Package standins has, for tests, what stands at the other ends of connections: a server that sends back what
// it gets, a proxy that takes HTTP CONNECT, Unix sockets for either, and the kubeconfig of a server.
package standins

import (
	"crypto/x509"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

// Echo serves connections that get back what they send, until the test ends. It returns its address.
func Echo(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c) // the client has gone
			}()
		}
	}()
	return l.Addr().String()
}

// Socket listens on a Unix socket until the test ends. Its address is the path.
func Socket(t testing.TB) net.Listener {
	t.Helper()
	dir, err := os.MkdirTemp("", "socket") // short: names of sockets have a bound
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// Proxy is a handler of CONNECT.
type Proxy struct {
	// To says where a target leads; "": it is refused.
	To func(target string) string

	mu    sync.Mutex
	asked []string
}

// Serve serves on a Unix socket until the test ends, and returns its path.
func (p *Proxy) Serve(t testing.TB) string {
	t.Helper()
	l := Socket(t)
	s := &http.Server{Handler: p}
	go s.Serve(l)
	t.Cleanup(func() { _ = s.Close() })
	return l.Addr().String()
}

// Asked returns the targets that the proxy was asked for.
func (p *Proxy) Asked() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asked)
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.asked = append(p.asked, r.Host)
	p.mu.Unlock()
	to := p.To(r.Host)
	if r.Method != http.MethodConnect || to == "" {
		http.Error(w, "no", http.StatusForbidden)
		return
	}
	there, err := net.Dial("tcp", to)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer there.Close()
	here, in, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return // the client has gone
	}
	defer here.Close()
	_, _ = io.WriteString(here, "HTTP/1.1 200 Connection established\r\n\r\n")
	go func() {
		defer there.Close()
		_, _ = io.Copy(there, in)
	}()
	_, _ = io.Copy(here, there)
}

// Kubeconfig writes a kubeconfig, and beside it the authority that it names, into a directory. Its user has
// the token "secret", and nobody listens at its server: anyone who uses it knows the server's address otherwise.
func Kubeconfig(t testing.TB, dir string, authority *x509.Certificate) string {
	t.Helper()
	file := filepath.Join(dir, "kubeconfig")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Raw})
	if err := os.WriteFile(filepath.Join(dir, "ca.crt"), ca, 0o600); err != nil {
		t.Fatal(err)
	}
	text := `{"apiVersion":"v1","kind":"Config","current-context":"x","contexts":[{"name":"x","context":{"cluster":"x","user":"x"}}],
		"clusters":[{"name":"x","cluster":{"server":"https://127.0.0.1:9","certificate-authority":"ca.crt"}}],"users":[{"name":"x","user":{"token":"secret"}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Await waits until something is so. what says, for the failure, what is not.
func Await(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !is(); {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
		<-time.After(2 * time.Millisecond)
	}
}
