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

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/quorate/quorate/bench/client"
)

// readTimeout is when a read is given up; it counts as an error.
const readTimeout = 10 * time.Second

// cell is one mode, one verb, one node.
type cell struct {
	mode Mode
	verb Verb
	node target
	run  *run
	conn *client.Conn

	mu sync.Mutex // guards what follows
	tally
}

// tally is what a cell has seen. Histograms are in microseconds.
type tally struct {
	latency    *hdrhistogram.Histogram // from when the read was due
	age        *hdrhistogram.Histogram // of the first lacking write; zero for current answers
	versions   *hdrhistogram.Histogram // lacking writes
	bound      *hdrhistogram.Histogram // what X-Quorate-Staleness said
	unbounded  int64                   // answers whose header knew no bound
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

const maxMicros = 60_000_000

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, maxMicros, 3) }

func newTally() tally {
	return tally{latency: newHistogram(), age: newHistogram(), versions: newHistogram(), bound: newHistogram(), slots: make([]slot, slots)}
}

func record(h *hdrhistogram.Histogram, n int64) { _ = h.RecordValue(min(max(n, 0), maxMicros)) }

func (c *cell) String() string {
	return fmt.Sprintf("%s %s on %s (%s)", c.mode, c.verb, c.node.Name, c.node.role)
}

// scratch is what one read needs; it is reused.
type scratch struct {
	body bytes.Buffer
	snap snapshot
	seen []bool
}

var scratches = sync.Pool{New: func() any { return &scratch{} }}

// answer is a read's outcome, checked.
type answer struct {
	staleness
	bound     time.Duration // from the header
	bounded   bool
	violation string
}

// read does one read and checks its answer.
func (c *cell) read(ctx context.Context) (answer, error) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	k := rand.IntN(len(c.run.ledger.probes))
	c.run.ledger.now(&s.snap, c.run.clock.now)
	header, err := c.conn.Do(ctx, c.request(k, s.snap.revision), &s.body)
	if err != nil {
		return answer{}, err
	}
	return c.check(s, k, header)
}

// request is the read of probe k, or of all, when revision is the newest that was
// acknowledged.
func (c *cell) request(k int, revision uint64) client.Request {
	r := client.Request{Method: http.MethodGet, Path: c.run.collection(), Header: client.Plain}
	if c.verb == Get {
		r.Path += "/" + objectName(k)
	}
	q := url.Values{}
	switch c.mode {
	case Any:
		q.Set("resourceVersion", "0")
	case NotOlderThan, Exact:
		q.Set("resourceVersion", strconv.FormatUint(revision, 10))
		if c.verb == List {
			q.Set("resourceVersionMatch", map[Mode]string{NotOlderThan: "NotOlderThan", Exact: "Exact"}[c.mode])
		}
	}
	r.Query = q.Encode()
	return r
}

// check compares an answer with what its mode promises.
func (c *cell) check(s *scratch, k int, header http.Header) (answer, error) {
	var a answer
	if role := Role(header.Get("X-Quorate-Role")); role != c.node.role {
		return a, fmt.Errorf("%s is %s now: it was %s when the run began", c.node.Name, role, c.node.role)
	}
	probes := len(c.run.ledger.probes)
	s.seen = append(s.seen[:0], make([]bool, probes)...)
	count := 0
	err := marks(s.body.Bytes(), func(i int, number int64) {
		count++
		if i < probes {
			s.seen[i] = true
			a.staleness = a.staleness.add(c.run.ledger.behind(&s.snap, i, number))
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
		return a, fmt.Errorf("%w: %d probes instead of %d", errStrange, count, want)
	}
	revision, err := revisionOf(s.body.Bytes())
	if err != nil {
		return a, err
	}
	if text := header.Get("X-Quorate-Staleness"); text != "" && text != "unknown" {
		ms, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return a, fmt.Errorf("%w: X-Quorate-Staleness %q", errStrange, text)
		}
		a.bound, a.bounded = time.Duration(ms)*time.Millisecond, true
	}
	a.violation = broken(c.mode, c.verb, a, s.snap.revision, revision)
	return a, nil
}

// broken says which promise an answer breaks, or "". asked is the newest
// acknowledged revision when the read was sent, got that of the object or list.
func broken(mode Mode, verb Verb, a answer, asked, got uint64) string {
	switch {
	case mode == Any && a.bounded && a.age > a.bound:
		return fmt.Sprintf("%.1f ms stale, and said at most %d ms", millis(a.age), a.bound.Milliseconds())
	case mode == Any:
		return ""
	case a.versions > 0:
		return fmt.Sprintf("lacks %d acknowledged writes, the first acknowledged %.2f ms before the read was sent", a.versions, millis(a.age))
	case mode == NotOlderThan && verb == List && got < asked:
		return fmt.Sprintf("asked for not older than %d, got %d", asked, got)
	case mode == Exact && got != asked:
		return fmt.Sprintf("asked for exactly %d, got %d", asked, got)
	}
	return ""
}

// measure does one read that was due at a time of the run, and notes it.
func (c *cell) measure(ctx context.Context, due, begin, end time.Duration) {
	sent := c.run.clock.now()
	a, err := c.read(ctx)
	took := c.run.clock.now() - due
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
	record(c.latency, took.Microseconds())
	record(c.age, a.age.Microseconds())
	record(c.versions, a.versions)
	if a.versions > 0 {
		c.stale++
	}
	if c.mode == Any {
		if a.bounded {
			record(c.bound, a.bound.Microseconds())
		} else {
			c.unbounded++
		}
	}
	s := &c.slots[min(int(int64(due-begin)*slots/int64(end-begin)), slots-1)]
	s.reads++
	s.maxLatency, s.maxAge = max(s.maxLatency, took), max(s.maxAge, a.age)
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
