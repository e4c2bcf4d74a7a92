package apiserver

import (
	"io"
	"net/http"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth"
)

const (
	// lingerTime is how long the rest of a body is read from a client that is nobody,
	// after its answer: closed at once, the connection could lose the answer.
	lingerTime = 2 * time.Second
	// unreadBytes is how much of it is read: as much as net/http reads by itself.
	unreadBytes = 256 << 10
)

// leaveBody comes before the first byte of an answer. On HTTP/1.1 what is left of the
// body is in the way of the next request, so net/http reads it, before an answer that
// keeps the connection and after one that ends it, and waits for it as long as the
// client likes. Here the connection of a client that is nobody ends after the answer. A
// user's is worth a wait of Limits.BodyPause, soon without a seat; if the body has not ended
// then, that connection ends too.
func (c *call) leaveBody() {
	r := c.r
	if r.ProtoMajor != 1 || r.ContentLength == 0 || c.bodyRead {
		return
	}
	c.bodyRead = true
	if c.proxied.unfinished() {
		// The other server answers before it has all of the body. What is read of it here would be missing there. Before
		// an answer that ends the connection net/http reads nothing.
		c.Header()["Connection"] = []string{"close"}
		return
	}
	h, rc := c.Header(), http.NewResponseController(c.ResponseWriter)
	// A client that waits for "100 Continue" is not to be asked for its body now.
	if c.User == nil || c.User.Name == auth.Anonymous || r.ContentLength > unreadBytes || r.Header.Get("Expect") != "" {
		h["Connection"] = []string{"close"}
		_ = rc.SetReadDeadline(time.Now().Add(lingerTime)) // only connections have deadlines
		return
	}
	p := c.pacedBody(time.Now().Add(c.cfg.Limits.BodyPause))
	p.begin()
	n, err := io.Copy(io.Discard, io.LimitReader(r.Body, unreadBytes+1))
	p.stop()
	if err != nil || n > unreadBytes {
		h["Connection"] = []string{"close"}
		_ = rc.SetReadDeadline(time.Now().Add(lingerTime))
	}
}
