package aggregator

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

// late answers when it sees that its request ends.
type late struct {
	end    context.CancelCauseFunc
	closed bool
}

func (l *late) RoundTrip(*http.Request) (*http.Response, error) {
	l.end(errors.New("too many wait"))
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"X": {"theirs"}}, Body: struct {
		io.Reader
		io.Closer
	}{strings.NewReader("late"), l}}, nil
}

func (l *late) Close() error {
	l.closed = true
	return nil
}

// TestLateAnswer: what a server says to a request that has ended is not its answer.
func TestLateAnswer(t *testing.T) {
	ctx, end := context.WithCancelCause(t.Context())
	server, by := &late{end: end}, &http.Transport{}
	by.RegisterProtocol("late", server)
	w := httptest.NewRecorder()
	w.Header().Set("X", "ours")
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "late://x/", nil)
	must.OK(t, err)
	res, err := (&roundTripper{Transport: by, w: w}).RoundTrip(r)
	if res != nil || err == nil || err.Error() != "too many wait" {
		t.Errorf("%v, %v", res, err)
	}
	if !server.closed || w.Header().Get("X") != "ours" {
		t.Errorf("the body is closed: %v; headers: %v", server.closed, w.Header())
	}
}
