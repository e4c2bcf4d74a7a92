package modes

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/probe"
)

// readTimeout is when a read is given up; it counts as an error.
const readTimeout = 10 * time.Second

// cell is one mode, one verb, one node.
type cell struct {
	mode probe.Mode
	verb Verb
	node target
	run  *run
	conn *client.Conn

	mu sync.Mutex // guards what follows
	tally
}

// tally is what a cell has seen. Histograms are in microseconds.
type tally struct {
	latency    measure.Histogram // from when the read was due
	age        measure.Histogram // of the first lacking write; zero for current answers
	versions   measure.Histogram // lacking writes
	bound      measure.Histogram // what X-Quorate-Staleness said
	unbounded  int64             // answers whose header knew no bound
	stale      int64
	errors     int64
	firstError error
	violations int64
	slots      []slot
}

// slot is a part of the run's time.
type slot struct {
	reads              int64
	maxLatency, maxAge time.Duration
}

// slots is how many parts the time line has.
const slots = 80

func newTally() tally {
	return tally{latency: measure.NewHistogram(), age: measure.NewHistogram(), versions: measure.NewHistogram(), bound: measure.NewHistogram(), slots: make([]slot, slots)}
}

func (c *cell) String() string {
	return fmt.Sprintf("%s %s on %s (%s)", c.mode, c.verb, c.node.Name, c.node.role)
}

// scratch is what one read needs; it is reused.
type scratch struct {
	body bytes.Buffer
	snap probe.Snapshot
	seen []bool
}

var scratches = sync.Pool{New: func() any { return &scratch{} }}

// answer is a read's outcome, checked.
type answer struct {
	probe.Answer
	violation string
	number    int64 // of the probe's newest write that it has; gets only
}

// read does one read, of a list or of a probe at random, and checks its answer.
func (c *cell) read(ctx context.Context) (answer, error) {
	return c.readOf(ctx, rand.IntN(c.run.ledger.Len()), 0)
}

// readOf reads probe k. seen is a revision that the client has seen, and may ask for.
func (c *cell) readOf(ctx context.Context, k int, seen uint64) (answer, error) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	c.run.ledger.Now(&s.snap, c.run.clock.Now)
	s.snap.Revision = max(s.snap.Revision, seen)
	header, err := c.conn.Do(ctx, c.request(k, s.snap.Revision), &s.body)
	if err != nil {
		return answer{}, err
	}
	return c.check(s, k, header)
}

// request is the read of probe k, or of all, when revision is the newest that was
// acknowledged.
func (c *cell) request(k int, revision uint64) client.Request {
	r := client.Request{Method: http.MethodGet, Path: c.run.space.Collection(), Header: client.Plain}
	if c.verb == Get {
		r.Path += "/" + probe.Name(k)
	}
	q := url.Values{}
	switch c.mode {
	case probe.Any:
		q.Set("resourceVersion", "0")
	case probe.NotOlderThan, probe.Exact:
		q.Set("resourceVersion", strconv.FormatUint(revision, 10))
		if c.verb == List {
			q.Set("resourceVersionMatch", map[probe.Mode]string{probe.NotOlderThan: "NotOlderThan", probe.Exact: "Exact"}[c.mode])
		}
	}
	r.Query = q.Encode()
	return r
}

// check compares an answer with what its mode promises.
func (c *cell) check(s *scratch, k int, header http.Header) (answer, error) {
	a := answer{Answer: probe.Answer{List: c.verb == List}}
	if role := client.RoleOf(header); role != c.node.role {
		return a, fmt.Errorf("%s is %s now: it was %s when the run began", c.node.Name, role, c.node.role)
	}
	probes := c.run.ledger.Len()
	s.seen = append(s.seen[:0], make([]bool, probes)...)
	count := 0
	err := probe.Marks(s.body.Bytes(), func(i int, number int64) {
		count++
		if i < probes {
			s.seen[i], a.number = true, number
			a.Staleness = a.Staleness.Add(c.run.ledger.Behind(&s.snap, i, number))
		}
	})
	if err != nil {
		return a, err
	}
	want := 1
	if c.verb == List {
		want = probes
	}
	if count != want || c.verb == Get && !s.seen[k] {
		return a, fmt.Errorf("%w: %d probes instead of %d", probe.ErrStrange, count, want)
	}
	if a.Revision, err = probe.RevisionOf(s.body.Bytes()); err != nil {
		return a, err
	}
	if err := a.Said(header); err != nil {
		return a, err
	}
	a.violation = a.Breaks(c.mode, s.snap.Revision)
	return a, nil
}

// measure does one read that was due at a time of the run, and notes it.
func (c *cell) measure(ctx context.Context, due, begin, end time.Duration) {
	sent := c.run.clock.Now()
	a, err := c.read(ctx)
	took := c.run.clock.Now() - due
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", c, err)
	}
	c.run.noteLag(sent - due)
	c.run.failed(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.errors++
		if c.firstError == nil {
			c.firstError = err
		}
		return
	}
	if a.violation != "" {
		c.violations++
		c.run.violated(fmt.Sprintf("%s at %.3f s: %s", c, sent.Seconds(), a.violation))
	}
	c.latency.RecordTime(took)
	c.age.RecordTime(a.Age)
	c.versions.Record(a.Versions)
	if a.Versions > 0 {
		c.stale++
	}
	if c.mode == probe.Any {
		if a.Bounded {
			c.bound.RecordTime(a.Bound)
		} else {
			c.unbounded++
		}
	}
	s := &c.slots[min(int(int64(due-begin)*slots/int64(end-begin)), slots-1)]
	s.reads++
	s.maxLatency, s.maxAge = max(s.maxLatency, took), max(s.maxAge, a.Age)
}
