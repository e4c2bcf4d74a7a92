package churn

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// peer is a server on loopback that the nodes call: admission webhooks that allow everything.
type peer struct {
	url, ca string

	mu    sync.Mutex
	calls map[string]bool // paths that were asked
}

func newPeer(t *testing.T) *peer {
	t.Helper()
	p := &peer{calls: map[string]bool{}}
	server := httptest.NewUnstartedServer(p)
	server.Config.IdleTimeout = time.Second // nodes keep connections for 90 s, or until the server ends them
	server.StartTLS()
	t.Cleanup(server.Close)
	p.url = server.URL
	p.ca = base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	return p
}

// caBundle is the field of a client configuration, for a URL of this server.
func (p *peer) caBundle(url string) string {
	if !strings.HasPrefix(url, p.url) {
		return ""
	}
	return fmt.Sprintf(`,"caBundle":%q`, p.ca)
}

// called reports whether a webhook was called, and forgets it.
func (p *peer) called(path string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.calls[path]
	delete(p.calls, path)
	return was
}

func (p *peer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	var review struct{ Request struct{ UID string } }
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	p.calls[strings.TrimPrefix(r.URL.Path, "/")] = true
	p.mu.Unlock()
	fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true}}`, review.Request.UID)
}
