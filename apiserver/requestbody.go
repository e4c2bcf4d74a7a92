package apiserver

import (
	"context"
	"errors"
	"io"
	"net/http"
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
		return b, nil
	case errors.Is(c.ctx.Err(), context.DeadlineExceeded):
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

// boundBody makes reading the body fail when the request's time is over: a body
// that trickles in would hold its place among the requests in flight for as long
// as its sender likes. The deadline is set only when it has passed, because each
// costs a message to the connection's goroutine on HTTP/2. The caller calls
// release before the request ends.
func (c *call) boundBody() (release func()) {
	done := make(chan struct{})
	stop := context.AfterFunc(c.ctx, func() {
		defer close(done)
		// Readers without deadlines are not connections.
		_ = http.NewResponseController(c.ResponseWriter).SetReadDeadline(time.Unix(1, 0))
	})
	return func() {
		if !stop() {
			<-done
		}
	}
}
