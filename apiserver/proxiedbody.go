package apiserver

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// proxiedBody is a body that goes on to another server: a Pod, a kubelet, an aggregated API server. A goroutine
// of net/http's transport reads it.
type proxiedBody struct {
	io.ReadCloser
	to    *http.ResponseController
	close sync.Once

	mu    sync.Mutex
	begun bool // the other server gets it
	ended bool // all of it was read
	left  bool // the answer has begun before it
}

// proxyBody says that a request's body goes on to another server.
func proxyBody(c *call, body io.ReadCloser) *proxiedBody {
	c.proxied = &proxiedBody{ReadCloser: body, to: http.NewResponseController(c.ResponseWriter)}
	return c.proxied
}

// unfinished is called when the answer begins. It reports whether the other server is still to have a part of
// the body. If it has had nothing of it, it will not.
func (p *proxiedBody) unfinished() bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = !p.begun
	return p.begun && !p.ended
}

var errAnswered = errors.New("the request was answered before its body was read")

// Read implements io.Reader.
func (p *proxiedBody) Read(b []byte) (int, error) {
	p.mu.Lock()
	p.begun = true
	left := p.left
	p.mu.Unlock()
	if left {
		return 0, errAnswered
	}
	n, err := p.ReadCloser.Read(b)
	if err == io.EOF {
		p.mu.Lock()
		p.ended = true
		p.mu.Unlock()
	}
	return n, err
}

// Close implements io.Closer. The other server may have answered before it had all of the body; a reader that
// is still there holds its lock until the client sends more, or will not.
func (p *proxiedBody) Close() error {
	var err error
	p.close.Do(func() { // the connection to a Pod may do it, too: the handler returns after that
		p.mu.Lock()
		ended := p.ended
		p.mu.Unlock()
		if !ended {
			_ = p.to.SetReadDeadline(time.Unix(1, 0)) // only connections have deadlines
		}
		err = p.ReadCloser.Close()
	})
	return err
}
