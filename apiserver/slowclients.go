package apiserver

import (
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/quorate/quorate/apiserver/access/fairness"
)

const (
	// slowAfter is how long one write or read may wait for the client before the
	// request counts as slow.
	slowAfter = 250 * time.Millisecond
	// minSlowTime is how long a slow request may go on, whatever others need.
	minSlowTime = 5 * time.Second
	// answerBytes is what an answer holds at most while its client takes its time.
	answerBytes = 256 << 10
	// slowAnswerBytes is what all slow answers may hold.
	slowAnswerBytes = 64 << 20
	// slowBodyBytes is what a request holds at least while its client takes its time for the
	// body: a goroutine, a stream, and the request itself.
	slowBodyBytes = 32 << 10
	// promptBytes of an answer always fit into the buffers of its connection.
	promptBytes = 4 << 10
)

// slowClients are the requests of one direction that wait for their clients: for an
// answer to be taken, or for a body to come. Seats stand for the work of the server;
// such a request makes none, so it gives its seats back, and others go on. What it still
// holds is memory. That is bounded for all of them: when there is no room, the user
// who holds the most loses the one that has been slow for longest, and until one may be
// ended the newest keeps its seats.
type slowClients struct {
	mu      sync.Mutex
	limit   int64 // bytes
	held    int64
	entries []*slowRequest // in the order in which they became slow
}

// slowRequest is the stopwatch of one request in one direction. Its methods but fire and end are
// the request's goroutine's.
type slowRequest struct {
	set   *slowClients
	of    slowClient
	until time.Time // when the client's time is over; zero: never
	cut   func(*http.ResponseController) error
	timer *time.Timer
	// patience is how long one read or write may wait; zero: as long as the request may.
	patience time.Duration

	mu    sync.Mutex
	stall time.Time // guarded by mu: when patience is over
	over  bool      // the request has ended, or was cut
	slow  bool
	bytes int64     // guarded by set.mu once it is slow
	since time.Time // guarded by set.mu: when it became slow
}

// slowClient is whom a request waits for, and what it gives back meanwhile.
type slowClient struct {
	user   string
	conn   http.ResponseWriter
	ticket *fairness.Ticket
}

// client is the request's.
func (c *call) client() slowClient {
	of := slowClient{conn: c.ResponseWriter, ticket: &c.ticket}
	if c.User != nil {
		of.user = c.User.Name
	}
	return of
}

// newPace returns a stopwatch that stands still.
func (s *slowClients) newPace(of slowClient, until time.Time, bytes int64, cut func(*http.ResponseController) error) *slowRequest {
	p := &slowRequest{set: s, of: of, until: until, bytes: bytes, cut: cut}
	p.timer = time.AfterFunc(time.Hour, p.fire)
	p.timer.Stop()
	return p
}

// begin is called before what may have to wait for the client.
func (p *slowRequest) begin() {
	if p.patience > 0 {
		p.mu.Lock()
		p.stall = time.Now().Add(p.patience)
		p.mu.Unlock()
	}
	p.timer.Reset(p.next(slowAfter))
}

// next is when to look again: after wait, and when the client's time is over.
func (p *slowRequest) next(wait time.Duration) time.Duration {
	if !p.until.IsZero() {
		wait = min(wait, time.Until(p.until))
	}
	if p.patience > 0 {
		wait = min(wait, time.Until(p.stall))
	}
	return max(0, wait)
}

// late reports whether the client's time is over.
func (p *slowRequest) late() bool {
	now := time.Now()
	return !p.until.IsZero() && !now.Before(p.until) || p.patience > 0 && !now.Before(p.stall)
}

// done is called when it has not.
func (p *slowRequest) done() { p.timer.Stop() }

// hold says how much memory the request holds now.
func (p *slowRequest) hold(bytes int64) {
	p.set.mu.Lock()
	defer p.set.mu.Unlock()
	if !p.since.IsZero() {
		p.set.held += bytes - p.bytes
	}
	p.bytes = bytes
}

// fire notices that the client is slow, and again when its time is over.
func (p *slowRequest) fire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return
	}
	if p.late() {
		p.end()
		return
	}
	again := time.Hour
	if !p.slow {
		victim, ok := p.set.add(p)
		if victim != nil {
			victim.evict() // a slow one: it takes no other's lock
		}
		if p.slow = ok; ok {
			p.of.ticket.Release()
		} else {
			again = slowAfter
		}
	}
	p.timer.Reset(p.next(again))
}

// evict ends a request that has to make room.
func (p *slowRequest) evict() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		p.end()
	}
}

// end cuts the connection's direction. Writers and readers without deadlines are no
// connections.
func (p *slowRequest) end() {
	p.over = true
	_ = p.cut(http.NewResponseController(p.of.conn))
}

// stop is called when the request needs its client no more, and before it ends: a
// deadline must not hit the next one on the connection. It reports whether the request has
// given its seats back. One that is nil never began.
func (p *slowRequest) stop() (slow bool) {
	if p == nil {
		return false
	}
	p.timer.Stop()
	p.mu.Lock()
	p.over = true
	slow = p.slow
	p.mu.Unlock()
	if slow {
		p.set.remove(p)
	}
	return slow
}

// add takes a request in if there is room. If not, victim is one to end for the next.
func (s *slowClients) add(p *slowRequest) (victim *slowRequest, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held+p.bytes > s.limit {
		return s.victim(time.Now().Add(-minSlowTime)), false
	}
	p.since = time.Now()
	s.held += p.bytes
	s.entries = append(s.entries, p)
	return nil, true
}

// victim finds the oldest of the user who holds the most.
func (s *slowClients) victim(before time.Time) *slowRequest {
	held := map[string]int64{}
	most := ""
	for _, e := range s.entries {
		user := e.of.user
		if held[user] += e.bytes; held[user] > held[most] {
			most = user
		}
	}
	for _, e := range s.entries {
		if e.of.user == most && e.since.Before(before) {
			return e
		}
	}
	return nil
}

func (s *slowClients) remove(p *slowRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, e := range s.entries {
		if e == p {
			s.entries = append(s.entries[:i], s.entries[i+1:]...)
			s.held -= p.bytes
			p.since = time.Time{}
			return
		}
	}
}

// pacedWrite writes a part of an answer that may have to wait for its client: one that
// hardly reads would hold its place among the requests in flight. A deadline per write
// would do, but costs a message to the connection's goroutine on HTTP/2, and ends idle
// streams.
func (c *call) pacedWrite(b []byte) (int, error) {
	if c.pace == nil {
		var until time.Time
		if !c.Kind.LongRunning {
			until = c.deadline()
		}
		c.pace = c.s.slowAnswers.newPace(c.client(), until, heldByAnswer(b, c.bodySize, c.audit.Event != nil), func(rc *http.ResponseController) error { return rc.SetWriteDeadline(time.Unix(1, 0)) })
	}
	c.pace.begin()
	defer c.pace.done()
	return c.ResponseWriter.Write(b)
}

// heldByAnswer is what a request holds in memory while its client reads the answer, of which b is
// the first part. body is the size of the request's, which the audit log may keep.
func heldByAnswer(b []byte, body int64, audited bool) int64 {
	if body == 0 {
		return answerBytes
	}
	held := max(answerBytes, int64(len(b))) // of an object that may be nowhere else
	if audited {
		held += body
	}
	return held
}

// deadline is when the request's time is over.
func (c *call) deadline() time.Time {
	if d, ok := c.Context.Deadline(); ok {
		return d
	}
	return c.Start.Add(c.cfg.Limits.Request)
}

// pacedBody makes reading the body fail at until, and before that when the client
// sends nothing for Limits.BodyPause, as pacedWrite. What the request was charged with when
// it was admitted counts: it has that of the room for all bodies, without a seat.
func (c *call) pacedBody(until time.Time) *slowRequest {
	p := c.s.slowBodies.newPace(c.client(), until, max(c.room.held, slowBodyBytes), func(rc *http.ResponseController) error { return rc.SetReadDeadline(time.Unix(1, 0)) })
	p.patience = c.cfg.Limits.BodyPause
	return p
}

// pacedReader is a body that a handler of its own reads.
type pacedReader struct {
	io.ReadCloser
	p *slowRequest
}

// Read implements io.Reader.
func (r pacedReader) Read(b []byte) (int, error) {
	r.p.begin()
	defer r.p.done()
	return r.ReadCloser.Read(b)
}
