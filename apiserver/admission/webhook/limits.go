package webhook

import (
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
)

// Bounds of what webhooks answer, in bytes: of one, and of all that are read at a time. Upstream
// has none: one answer can take all memory.
const (
	maxAnswer  = 8 << 20
	maxAnswers = 128 << 20
)

// limits bound the answers of all webhooks of a plugin. Safe for concurrent use.
type limits struct{ held atomic.Int64 }

func newLimits() *limits { return &limits{} }

// wrap makes each client of a webhook a limited one.
func (l *limits) wrap(inner webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
	wrapped := func(c *rest.Config, err error) (*rest.Config, error) {
		if err == nil {
			c.Wrap(func(next http.RoundTripper) http.RoundTripper { return limited{next, l} })
		}
		return c, err
	}
	return &webhook.AuthenticationInfoResolverDelegator{
		ClientConfigForFunc: func(hostPort string) (*rest.Config, error) { return wrapped(inner.ClientConfigFor(hostPort)) },
		ClientConfigForServiceFunc: func(name, namespace string, port int) (*rest.Config, error) {
			return wrapped(inner.ClientConfigForService(name, namespace, port))
		},
	}
}

// limited is a transport whose answers are bounded, and which follows no redirects: a webhook is
// where its configuration says, and what it is sent may be secret.
type limited struct {
	next   http.RoundTripper
	limits *limits
}

// RoundTrip implements http.RoundTripper.
func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	w, err := l.next.RoundTrip(r)
	if err != nil {
		return w, err
	}
	w.Header.Del("Location") // without it http.Client takes a redirect for the answer
	w.Body = &boundedBody{ReadCloser: w.Body, limits: l.limits}
	return w, nil
}

// boundedBody counts what is read of an answer until it is closed. For one goroutine.
type boundedBody struct {
	io.ReadCloser
	limits *limits
	read   int64
}

// Read implements io.Reader. Errors: the answer is too long, or all answers are.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	switch held := b.limits.held.Add(int64(n)); {
	case b.read > maxAnswer:
		return 0, fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	case held > maxAnswers:
		return 0, fmt.Errorf("the answers of all webhooks have more than %d bytes at a time", maxAnswers)
	}
	return n, err
}

// Close implements io.Closer.
func (b *boundedBody) Close() error {
	b.limits.held.Add(-b.read)
	b.read = 0
	return b.ReadCloser.Close()
}
