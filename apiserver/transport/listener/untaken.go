package listener

import (
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"time"

	"github.com/quorate/quorate/internal/loglimit"
)

// untakenAnswers is how many answers may wait for their clients on HTTP/2, for all clients
// together. Each holds a goroutine, a stream and the request: 22 kB, or as much more as the
// headers have (64 kB at most). Clients that mean well leave none: what fits into the window of a
// stream does not wait, and it takes thousands of streams that nobody reads to come here.
const untakenAnswers = 8192

const (
	// untakenEvery is how often they are estimated: a client can leave some 20,000 in a second.
	untakenEvery = 250 * time.Millisecond
	// untakenAgain is how often they are counted while the estimate is above the bound and does
	// not grow: then the goroutines are something else's.
	untakenAgain = 15 * time.Second
)

// untaken closes connections whose clients leave too many answers untaken. On HTTP/2 a stream
// whose window is zero keeps its goroutine and its request until answerTimeout, though its handler
// has ended: no limit of requests in flight knows it, and a user may have thousands of
// connections of hundreds of streams. Package h2 does not show which streams wait. An upper bound
// for each connection, the requests since it was without a stream, would accuse those that have
// a watch and much to do. So the goroutines say it themselves: each is labelled with its
// connection when its handler has ended (see Listener.bounded), and a profile counts the
// labels. A profile is not free (50,000 goroutines: 0.4 s), so it is taken only when there
// are more goroutines than handlers and connections explain.
//
// Its methods are for one goroutine.
type untaken struct {
	in     *Listener
	bound  int
	closed func(connections int) // counts
	log    *slog.Logger
	limit  *loglimit.Limiter

	counted time.Time // when
	then    int       // unexplained goroutines at that time, or fewer since
}

// CloseUntaken closes connections whose clients leave too many answers untaken, until ctx ends. closed
// counts them.
func (l *Listener) CloseUntaken(ctx context.Context, closed func(connections int), log *slog.Logger) error {
	return newUntaken(l, closed, log).run(ctx)
}

func newUntaken(in *Listener, closed func(int), log *slog.Logger) *untaken {
	return &untaken{in: in, bound: untakenAnswers, closed: closed, log: log, limit: loglimit.New(10 * time.Second)}
}

// run counts them now and then, until ctx ends.
func (u *untaken) run(ctx context.Context) error {
	ticker := time.NewTicker(untakenEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			if err := u.closeExcess(now); err != nil {
				u.limit.Warn(u.log, "cannot count the answers that clients do not take", "err", err)
			}
		}
	}
}

// closeExcess counts untaken answers if there can be too many, and closes connections of the
// users who leave the most of them until half of the bound is left.
func (u *untaken) closeExcess(now time.Time) error {
	if !u.due(u.in.unexplained(), now) {
		return nil
	}
	answers, err := u.in.countUntaken()
	if err != nil {
		return err
	}
	debtors := u.in.debtors(answers)
	total := 0
	for _, d := range debtors {
		total += d.answers
	}
	if total <= u.bound {
		return nil
	}
	u.then = 0 // count again when these have ended
	for _, d := range excess(debtors, total, u.bound/2) {
		u.in.end(d.gone)
		u.closed(len(d.gone))
		u.limit.Warn(u.log, "connections closed: their client does not take its answers", d.sort, d.name,
			"connections", len(d.gone), "untaken_answers", total)
	}
	return nil
}

// due reports whether to count, given how many goroutines nothing explains.
func (u *untaken) due(unexplained int, now time.Time) bool {
	u.then = min(u.then, unexplained)
	if unexplained <= u.bound || unexplained <= u.then+u.bound/4 && now.Sub(u.counted) < untakenAgain {
		return false
	}
	u.counted, u.then = now, unexplained
	return true
}

// end closes connections. Each one's Close would wait for the lock, behind the goroutines of all
// the streams that begin and end meanwhile: hundreds of connections took seconds.
func (l *Listener) end(gone []*connection) {
	l.mu.Lock()
	for _, c := range gone {
		l.forget(c)
	}
	l.mu.Unlock()
	for _, c := range gone {
		l.handshakes.end(c)
		_ = c.Conn.Close()
	}
}

// unexplained is how many goroutines are neither a handler's nor a connection's (which has one on
// HTTP/2). Untaken answers are among them.
func (l *Listener) unexplained() int {
	l.mu.Lock()
	n := l.guests.count + l.users.count
	l.mu.Unlock()
	return runtime.NumGoroutine() - int(l.handlers.Load()) - n
}

// debtor is a user, or the address of guests, that leaves answers untaken.
type debtor struct {
	sort, name string
	answers    int
	conns      []debt // the most answers last
	gone       []*connection
}

type debt struct {
	conn    *connection
	answers int
}

// debtors says whose the answers are, which are by numbers of connections.
func (l *Listener) debtors(answers map[uint64]int) []*debtor {
	var out []*debtor
	l.mu.Lock()
	defer l.mu.Unlock()
	of := func(sort string, s *shares) {
		for _, h := range s.holders {
			d := &debtor{sort: sort, name: h.name}
			for e := h.conns.Front(); e != nil; e = e.Next() {
				c := e.Value.(*connection)
				if n := answers[c.number]; n > 0 {
					d.answers += n
					d.conns = append(d.conns, debt{c, n})
				}
			}
			if d.answers > 0 {
				out = append(out, d)
			}
		}
	}
	of("user", l.users)
	of("guests_of", l.guests)
	return out
}

// excess chooses connections of debtors, who have total answers, until no more than keep are
// left: always the one with the most answers of the debtor that has the most by then. It returns
// the debtors that lose any, in the order of how many.
func excess(debtors []*debtor, total, keep int) []*debtor {
	for _, d := range debtors {
		slices.SortFunc(d.conns, func(a, b debt) int {
			return cmp.Or(cmp.Compare(a.answers, b.answers), cmp.Compare(a.conn.number, b.conn.number))
		})
	}
	left := indebted(slices.Clone(debtors))
	heap.Init(&left)
	for total > keep && len(left) > 0 {
		d := left[0]
		last := len(d.conns) - 1
		worst := d.conns[last]
		d.conns, d.gone = d.conns[:last], append(d.gone, worst.conn)
		d.answers -= worst.answers
		total -= worst.answers
		if last == 0 {
			heap.Pop(&left)
		} else {
			heap.Fix(&left, 0)
		}
	}
	losers := slices.DeleteFunc(debtors, func(d *debtor) bool { return len(d.gone) == 0 })
	slices.SortFunc(losers, func(a, b *debtor) int {
		return cmp.Or(cmp.Compare(len(b.gone), len(a.gone)), cmp.Compare(a.name, b.name))
	})
	return losers
}

// indebted implements heap.Interface: who leaves the most answers first.
type indebted []*debtor

func (h indebted) Len() int           { return len(h) }
func (h indebted) Less(i, j int) bool { return h[i].answers > h[j].answers }
func (h indebted) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *indebted) Push(x any)        { *h = append(*h, x.(*debtor)) }
func (h *indebted) Pop() any {
	last := len(*h) - 1
	d := (*h)[last]
	*h = (*h)[:last]
	return d
}

// untakenLabel is the label of goroutines whose handler has ended: the listener's address and the
// connection's number. Several listeners of a process know theirs by it.
const untakenLabel = "untaken_on_connection"

// labelled is the context whose labels a goroutine gets when a handler on the connection has
// ended. Handlers have none, so goroutines that they leave behind are not counted.
func labelled(c *connection) context.Context {
	return pprof.WithLabels(context.Background(), pprof.Labels(untakenLabel, c.in.Addr().String()+" "+strconv.FormatUint(c.number, 10)))
}

// countUntaken counts the goroutines whose handler has ended, by connection.
func (l *Listener) countUntaken() (map[uint64]int, error) {
	t := tally{at: l.Addr().String(), answers: map[uint64]int{}}
	if err := pprof.Lookup("goroutine").WriteTo(&t, 1); err != nil {
		return nil, fmt.Errorf("goroutine profile: %w", err)
	}
	return t.answers, nil
}

// tally reads a goroutine profile as text: of goroutines that have the same stack and labels,
// a line "12 @ 0x47 0x11", then the labels, if any, then the stack.
type tally struct {
	at      string // whose answers are counted
	rest    []byte // of a line that has begun
	of      int    // goroutines that the lines are about
	answers map[uint64]int
}

// Write implements io.Writer.
func (t *tally) Write(b []byte) (int, error) {
	for rest := b; ; {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		t.rest = append(t.rest, line...)
		if !whole {
			return len(b), nil
		}
		t.line(t.rest)
		t.rest, rest = t.rest[:0], after
	}
}

func (t *tally) line(b []byte) {
	if n, _, ok := bytes.Cut(b, []byte(" @ ")); ok {
		t.of, _ = strconv.Atoi(string(n))
		return
	}
	if b, ok := bytes.CutPrefix(b, []byte(`# labels: {"`+untakenLabel+`":"`+t.at+" ")); ok {
		number, err := strconv.ParseUint(string(bytes.TrimSuffix(b, []byte(`"}`))), 10, 64)
		if err == nil {
			t.answers[number] += t.of
		}
	}
}
