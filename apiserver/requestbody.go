package apiserver

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/quorate/quorate/apiserver/status"
)

// body reads the request's body within the limits of size and time. Errors: 413,
// 504, 400.
func (c *call) body() ([]byte, error) {
	limit := c.s.cfg.Limits.Body
	if c.r.ContentLength > limit {
		return nil, status.BodyTooLarge(limit)
	}
	if c.r.ContentLength == 0 {
		return nil, nil
	}
	release := c.boundBody()
	defer release()
	b, err := c.readBody(limit)
	switch {
	case err == nil:
		c.bodySize = int64(len(b))
		c.auditBody(b)
		return b, nil
	case errors.Is(c.ctx.Err(), context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		// The connection's deadline may come a moment before the context's.
		return nil, status.Timeout()
	case errors.Is(err, errBodyTooLarge):
		return nil, status.BodyTooLarge(limit)
	}
	return nil, status.BadRequest("read the request's body: %v", err)
}

var errBodyTooLarge = errors.New("the body is larger than the limit")

func (c *call) readBody(limit int64) ([]byte, error) {
	if size := c.r.ContentLength; size > 0 {
		b := make([]byte, size)
		_, err := io.ReadFull(c.r.Body, b)
		return b, err
	}
	b, err := io.ReadAll(io.LimitReader(c.r.Body, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = errBodyTooLarge
	}
	return b, err
}

// boundAnswer makes writing the answer fail when the request's time is over, for
// answers that can be large: a client that hardly reads would hold its place
// among the requests in flight. As boundBody.
func (c *call) boundAnswer() (release func()) {
	return c.atEnd(func(rc *http.ResponseController) error { return rc.SetWriteDeadline(time.Unix(1, 0)) })
}

// boundBody makes reading the body fail when the request's time is over: a body
// that trickles in would hold its place among the requests in flight for as long
// as its sender likes. The deadline is set only when it has passed, because each
// costs a message to the connection's goroutine on HTTP/2. The caller calls
// release before the request ends.
func (c *call) boundBody() (release func()) {
	return c.atEnd(func(rc *http.ResponseController) error { return rc.SetReadDeadline(time.Unix(1, 0)) })
}

// atEnd calls f when the request's time is over before release is called.
func (c *call) atEnd(f func(*http.ResponseController) error) (release func()) {
	done := make(chan struct{})
	stop := context.AfterFunc(c.ctx, func() {
		defer close(done)
		// Readers and writers without deadlines are not connections.
		_ = f(http.NewResponseController(c.ResponseWriter))
	})
	return func() {
		if !stop() {
			<-done
		}
	}
}
