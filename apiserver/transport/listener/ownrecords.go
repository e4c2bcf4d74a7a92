package listener

import "time"

const (
	// ownRecord is how long the records are at most that crypto/tls writes on its own account: alerts, and answers to a
	// client that asks for new keys.
	ownRecord = 64
	// ownTime is how long a client may let the server wait with one of them. It has room for a slow client, whose
	// buffers are full of an answer.
	ownTime = 30 * time.Second
)

// writeOwn writes a short record, and ends a connection whose client does not take it in time. crypto/tls writes such
// records while it reads, where the deadline of reading does not end it, and often none of writing is set: a guest who
// asked for new keys and did not read had a connection without an end. tls.Conn.Close waits for them too. So
// net/http's Server.Close and Shutdown, which close one connection after the other, did not return.
func (c *connection) writeOwn(b []byte) (n int, err error) {
	var late *time.Timer
	var failed error
	err = c.raw.Write(func(fd uintptr) bool {
		var full bool
		if n, full, failed = writeTo(fd, b, n); full && late == nil {
			late = time.AfterFunc(c.in.ownTime, func() { _ = c.Close() })
			c.in.turns.done(c, true) // that a stream keeps: its next write waits for this one
		}
		return !full
	})
	if late != nil {
		late.Stop()
	}
	if err == nil {
		err = c.writeError(failed)
	}
	return n, err
}
