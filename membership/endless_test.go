package membership

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/standins"
)

type roundTripper func(*http.Request) *http.Response

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

// TestEndlessBodies: what is held of a request, or of an answer, does not grow with it. A body
// that is too large is refused in any case, so the bytes that were read tell.
func TestEndlessBodies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run(strings.Fields("start a expect=1"))
	w.formed([]string{"a"})
	m := w.machine("a").node
	answering := func(code int, body io.ReadCloser) *http.Client {
		return &http.Client{Transport: roundTripper(func(r *http.Request) *http.Response {
			return &http.Response{StatusCode: code, Header: http.Header{}, Body: body, Request: r}
		})}
	}
	request := func(path string, body io.Reader) *http.Request {
		return httptest.NewRequestWithContext(context.Background(), http.MethodPost, path, body)
	}
	for name, x := range map[string]struct {
		most int64
		read func(body io.ReadCloser) error
	}{
		"a join": {maxJoinBody + 1, func(body io.ReadCloser) error {
			r := request(JoinPath, body)
			r.TLS = &tls.ConnectionState{Version: tls.VersionTLS13}
			_, err := m.readJoin(r)
			return err
		}},
		"a request of an administrator": {maxAdminBody + 1, func(body io.ReadCloser) error {
			return ReadJSON(request(AdminPath, body), new(TokenRequest))
		}},
		"an answer": {maxAnswerBytes + 1, func(body io.ReadCloser) error {
			r := request("http://a/", nil)
			r.RequestURI = ""
			return roundTrip(answering(http.StatusOK, body), r, new(any))
		}},
		"a refusal of a download": {16 << 10, func(body io.ReadCloser) error {
			c := &AdminClient{servers: []string{"http://a"}, streams: answering(http.StatusForbidden, body)}
			_, err := c.Open(t.Context(), "/")
			return err
		}},
	} {
		body := new(standins.Endless)
		if err := x.read(body); err == nil || body.Taken() > x.most {
			t.Errorf("%s: %d bytes were read, want %d: %.200v", name, body.Taken(), x.most, err)
		}
	}
}
