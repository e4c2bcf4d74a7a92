package cluster

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Do makes a request with the administrator's certificate; a body is JSON. It may take ten
// seconds.
func (n *Node) Do(t *testing.T, method, path, body string) (*http.Response, []byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, n.API+path, strings.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := n.HTTP(t).Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp, answer, err
}

// Send is Do for a caller that takes any answer.
func (n *Node) Send(t *testing.T, method, path, body string) (code int, answer []byte) {
	t.Helper()
	resp, answer, err := n.Do(t, method, path, body)
	if err != nil {
		return 0, []byte(err.Error())
	}
	return resp.StatusCode, answer
}

// Exchange makes one request and returns its code and answer.
func (n *Node) Exchange(ctx context.Context, client *http.Client, method, path, contentType, body string) (int, string, error) {
	r, err := http.NewRequestWithContext(ctx, method, n.API+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	w, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer w.Body.Close()
	answer, err := io.ReadAll(w.Body)
	return w.StatusCode, string(answer), err
}

// Must is Exchange for what has to have that code.
func (n *Node) Must(t *testing.T, code int, method, path, contentType, body string) string {
	t.Helper()
	got, answer, err := n.Exchange(t.Context(), n.HTTP(t), method, path, contentType, body)
	if err != nil || got != code {
		t.Fatalf("%s: %s %s: %d %v %s", n.Name, method, path, got, err, answer)
	}
	return answer
}

// NewHTTP is a client with connections of its own.
func (n *Node) NewHTTP(t *testing.T, protocol string) *http.Client {
	t.Helper()
	config, err := n.TLS()
	if err != nil {
		t.Fatal(err)
	}
	config = config.Clone()
	config.NextProtos = []string{protocol}
	tr := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: protocol == "h2", DisableCompression: true}
	if protocol != "h2" {
		tr.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}
