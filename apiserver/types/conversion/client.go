package conversion

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// client speaks to one webhook.
type client struct {
	url     string
	http    *http.Client
	slots   chan struct{}
	answer  int64
	answers *budget
}

// client returns the client of a webhook, made on first use. Those that were not used
// for the longest time go when there are too many.
func (c *Caller) client(w *Webhook) (*client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x := c.clients[w.id]; x != nil {
		c.recent = append(slices.DeleteFunc(c.recent, func(id string) bool { return id == w.id }), w.id)
		return x, nil
	}
	x, err := c.newClient(w)
	if err != nil {
		return nil, err
	}
	if len(c.recent) >= maxClients {
		c.clients[c.recent[0]].http.CloseIdleConnections()
		delete(c.clients, c.recent[0])
		c.recent = c.recent[1:]
	}
	c.clients[w.id], c.recent = x, append(c.recent, w.id)
	return x, nil
}

func (c *Caller) newClient(w *Webhook) (*client, error) {
	// HTTP/1.1: one connection of HTTP/2 would bring all calls to one of several
	// replicas.
	t := &http.Transport{
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}},
		MaxIdleConnsPerHost: c.cfg.Calls, IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}
	if len(w.CABundle) > 0 {
		t.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(w.CABundle) {
			return nil, errors.New("unable to load root certificates: unable to parse bytes as PEM block")
		}
	}
	x := &client{
		slots: make(chan struct{}, c.cfg.Calls), answer: c.cfg.Answer, answers: &c.answers,
		http: &http.Client{Transport: t, Timeout: c.cfg.Timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
	target := &url.URL{}
	if s := w.Service; s != nil {
		host := s.Name + "." + s.Namespace + ".svc"
		target = &url.URL{Scheme: "https", Host: net.JoinHostPort(host, strconv.Itoa(int(s.Port))), Path: "/" + strings.TrimPrefix(s.Path, "/")}
		t.TLSClientConfig.ServerName = host
		t.DialContext = c.dialer(s)
	} else {
		var err error
		if target, err = url.Parse(w.URL); err != nil {
			return nil, fmt.Errorf("unparsable URL: %w", err)
		}
		t.Proxy = http.ProxyFromEnvironment
		t.DialContext = c.cfg.DialURL
	}
	// Upstream's client says how long it will wait.
	target.RawQuery = "timeout=" + c.cfg.Timeout.String()
	x.url = target.String()
	return x, nil
}

// dialer connects to a Service, wherever it is at the time.
func (c *Caller) dialer(s *Service) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		if c.cfg.Resolve == nil {
			return nil, fmt.Errorf("service %s/%s: this server resolves no services", s.Namespace, s.Name)
		}
		address, err := c.cfg.Resolve(ctx, s.Namespace, s.Name, s.Port)
		if err != nil {
			return nil, err
		}
		return c.cfg.Dial(ctx, network, address)
	}
}

// post sends a review and returns the answer's body, whose bytes are taken from the
// budget; without an error the caller gives them back.
func (x *client) post(ctx context.Context, body []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, x.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, */*")
	w, err := x.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer w.Body.Close()
	raw, err := x.readAnswer(w.Body)
	if err == nil && w.StatusCode/100 != 2 {
		x.answers.release(int64(len(raw)))
		return nil, x.refusal(w, raw)
	}
	return raw, err
}

// readAnswer reads a body piece by piece, so that what is taken from the budget is
// what has come.
func (x *client) readAnswer(body io.Reader) (raw []byte, err error) {
	piece := make([]byte, 32<<10)
	for {
		n, err := body.Read(piece)
		switch {
		case int64(len(raw)+n) > x.answer:
			x.answers.release(int64(len(raw)))
			return nil, fmt.Errorf("the answer has more than %d bytes", x.answer)
		case !x.answers.take(int64(n)):
			x.answers.release(int64(len(raw)))
			return nil, errAnswers
		}
		raw = append(raw, piece[:n]...)
		if errors.Is(err, io.EOF) {
			return raw, nil
		}
		if err != nil {
			x.answers.release(int64(len(raw)))
			return nil, err
		}
	}
}

// refusal is an answer that says that it failed, in the words of upstream's client.
func (x *client) refusal(w *http.Response, raw []byte) error {
	message := "unknown"
	if kind := w.Header.Get("Content-Type"); kind == "" || strings.HasPrefix(kind, "text/") {
		message = strings.TrimSpace(string(raw[:min(len(raw), 2<<10)]))
	}
	return apierrors.NewGenericServerResponse(w.StatusCode, http.MethodPost, schema.GroupResource{}, "", message, 0, true)
}
