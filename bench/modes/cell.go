package modes

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
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
}

var scratches = sync.Pool{New: func() any { return &scratch{} }}

// answer is a read's outcome, checked.
type answer struct {
	probe.Answer
	violation string
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
	list := c.verb == List
	header, err := c.conn.Do(ctx, c.run.space.Read(c.mode, list, k, s.snap.Revision), &s.body)
	if err != nil {
		return answer{}, err
	}
	if role := client.RoleOf(header); role != c.node.role {
		return answer{}, fmt.Errorf("%s is %s now: it was %s when the run began", c.node.Name, role, c.node.role)
	}
	a, broken, err := c.run.space.Judge(c.mode, list, k, &s.snap, s.body.Bytes(), header)
	return answer{a, broken}, err
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
