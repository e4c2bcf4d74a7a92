package apiserver

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/wire/status"
)

// body reads the request's body within the limits of size and time, and takes room for
// what it is decoded to: an object of res, or options if that is nil. A client that took
// long for it has lost its turn, and waits for another. Errors: 413, 504, 429, 400.
func (c *call) body(res *kinds.Resource) ([]byte, error) {
	limit := c.cfg.Limits.Body
	if c.r.ContentLength > limit {
		readOn(c, limit+beyondBody)
		return nil, status.BodyTooLarge(limit)
	}
	if c.r.ContentLength == 0 {
		return nil, c.computing.begin(c, 0)
	}
	p := c.pacedBody(c.deadline())
	b, err := c.readBody(limit, p)
	slow := p.stop()
	switch {
	case err == nil && slow && !c.admitted():
		return nil, status.TooMany(retryRefused)
	case err == nil:
		c.bodyRead = true
		c.bodySize = int64(len(b))
		// Room for what is decoded is taken last: nobody holds it who waits for a slot.
		if err := c.computing.begin(c, len(b)); err != nil {
			return nil, err
		}
		cost, err := decodingCost(&c.Op, c.r.Header.Get("Content-Type"), b, res, c.s.decoding.share)
		if err == nil {
			err = c.room.takeDecoding(c.Context, cost)
		}
		if err != nil {
			return nil, err
		}
		c.audit.body(b, c.r.Header.Get("Content-Type"), c.Resource, c.Info.Verb == "patch")
		return b, nil
	case errors.Is(c.Context.Err(), context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		// The connection's deadline may come a moment before the context's.
		return nil, status.Timeout()
	case errors.Is(err, errBodyTooLarge):
		readOn(c, beyondBody)
		return nil, status.BodyTooLarge(limit)
	case errors.Is(err, errNoRoom):
		return nil, status.TooMany(retryRefused)
	}
	return nil, status.BadRequest("read the request's body: %v", err)
}

// beyondBody is how much of a body beyond the limit is read.
const beyondBody = 1 << 20

// readOn drops what is left of a body that is too large, if that is not known to be more than most bytes. Some clients hang or
// lose the answer when it comes while they send: java.net.http, and httpx on HTTP/2. A client that is nobody does not send
// so much for nothing; nor does one that waits to be asked for its body.
func readOn(c *call, most int64) {
	if c.User.Name == auth.Anonymous || c.r.ContentLength > most || c.r.Header.Get("Expect") != "" {
		return
	}
	p := c.pacedBody(time.Now().Add(c.cfg.Limits.BodyPause))
	defer p.stop()
	if n, err := io.Copy(io.Discard, io.LimitReader(pacedReader{c.r.Body, p}, most)); err == nil && n < most {
		c.bodyRead = true
	}
}

var (
	errBodyTooLarge = errors.New("the body is larger than the limit")
	errNoRoom       = errors.New("write bodies are at their memory limit")
)

const (
	// chargedAtOnce is what a body is charged with when its request is admitted, if it is
	// not known to be shorter; the rest as it comes: who announces much and sends little
	// takes no room.
	chargedAtOnce = 64 << 10
	// unknownBody is the first buffer for a body of unknown length.
	unknownBody = 4 << 10
)

// readBody reads the body into a buffer that grows with what has come.
func (c *call) readBody(limit int64, p *slowRequest) ([]byte, error) {
	size, first := c.r.ContentLength, min(c.r.ContentLength, chargedAtOnce)
	if size < 0 {
		size, first = limit+1, unknownBody
	}
	b := make([]byte, 0, first)
	for {
		p.begin()
		n, err := c.r.Body.Read(b[len(b):cap(b)])
		p.done()
		b = b[:len(b)+n]
		switch whole := int64(len(b)) == size; {
		case whole && size > limit:
			return nil, errBodyTooLarge
		case whole, err == io.EOF && c.r.ContentLength < 0:
			return b, nil
		case err == io.EOF:
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		}
		if len(b) == cap(b) {
			larger := min(2*int64(cap(b)), size)
			if !c.room.charge(larger) {
				return nil, errNoRoom
			}
			p.hold(max(larger, slowBodyBytes))
			b = append(make([]byte, 0, larger), b...)
		}
	}
}
