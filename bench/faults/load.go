package faults

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/probe"
)

// service is what a client asks for: writes, or reads of a mode.
type service uint8

const (
	writes service = iota
	mostRecent
	notOlder
	anyState
	services                // how many there are
	modes    = services - 1 // of reads
)

// String is the service in the JSON.
func (s service) String() string { return [...]string{"write", "most-recent", "not-older", "any"}[s] }

// title is the service for people.
func (s service) title() string { return [...]string{"Writes", "Most Recent", "Not older", "Any"}[s] }

// mode is that of a read.
func (s service) mode() probe.Mode {
	return [...]probe.Mode{mostRecent: probe.MostRecent, notOlder: probe.NotOlderThan, anyState: probe.Any}[s]
}

// outcome is what came of a request.
type outcome uint8

const (
	good     outcome = iota
	late             // no answer within the timeout
	noWay            // no connection, or it broke
	refused          // another status than success
	strange          // an answer that no server should give
	outcomes         // how many there are
)

func (o outcome) String() string {
	return [...]string{"ok", "timeout", "connection", "refused", "strange"}[o]
}

// sample is one request. Times are since the measurement began.
type sample struct {
	due, end time.Duration
	service  service
	node     uint8
	outcome  outcome
}

// load is the requests of one repeat.
type load struct {
	opt    *Options
	nodes  []client.Node
	tls    *tls.Config
	space  *probe.Space
	clock  *measure.Stopwatch
	begin  time.Duration // of the measurement, by clock
	length time.Duration
	pool   *pool
	links  [][services]*client.Link // by node

	inflight sync.WaitGroup
	running  atomic.Int64

	mu         sync.Mutex // guards what follows
	samples    []sample
	lag        measure.Histogram
	unsent     int64 // due, but too many were under way, or no probe was free
	violations []string
	broken     [services]int64
	firsts     map[outcome]string // the first error of each
	roles      []client.Role      // that the nodes' answers named last
	leader     int                // who said last that it leads; -1: nobody
}

const (
	// maxInflight bounds the requests under way.
	maxInflight = 8192
	// maxViolations bounds how many broken promises are told; all are counted.
	maxViolations = 20
	// warmup is how long the load goes on before it is measured.
	warmup = time.Second
)

func newLoad(o *Options, t *Target, space *probe.Space, clock *measure.Stopwatch, roles []client.Role) *load {
	l := &load{
		opt: o, nodes: t.Nodes, tls: t.TLS, space: space, clock: clock, length: o.length(), pool: newPool(space.Ledger.Len()), lag: measure.NewHistogram(),
		firsts: map[outcome]string{}, roles: roles, leader: -1,
	}
	for i, n := range t.Nodes {
		var links [services]*client.Link
		for s := range links {
			links[s] = client.NewLink(n, t.TLS, o.Timeout)
		}
		l.links = append(l.links, links)
		if roles[i] == client.Leader {
			l.leader = i
		}
	}
	return l
}

// run sends the requests, from warmup before begin on, and waits for their answers.
func (l *load) run(ctx context.Context) {
	rate := l.opt.rate(len(l.nodes))
	measure.Pace(ctx, l.clock, rate, l.begin-warmup, l.begin+l.length, func(due time.Duration) {
		s, node := l.choose(rand.Float64() * rate)
		if l.running.Add(1) > maxInflight {
			l.running.Add(-1)
			l.notSent()
			return
		}
		l.inflight.Go(func() {
			defer l.running.Add(-1)
			l.request(ctx, s, node, due)
		})
	})
	l.inflight.Wait()
}

// choose makes a request of a number from 0 to the rate of all.
func (l *load) choose(x float64) (service, int) {
	n := len(l.nodes)
	if x < l.opt.Writes {
		return writes, min(int(x/l.opt.Writes*float64(n)), n-1)
	}
	x = (x - l.opt.Writes) / l.opt.Reads // 0 to modes times the nodes
	i := min(int(x), int(modes)*n-1)
	return mostRecent + service(i/n), i % n
}

func (l *load) notSent() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unsent++
}

// scratch is what one request needs; it is reused.
type scratch struct {
	body bytes.Buffer
	snap probe.Snapshot
}

var scratches = sync.Pool{New: func() any { return &scratch{} }}

// request does one request that was due at a time of the clock, and notes it.
func (l *load) request(parent context.Context, s service, node int, due time.Duration) {
	sent := l.clock.Now()
	ctx, cancel := context.WithTimeout(parent, l.opt.Timeout-(sent-due))
	defer cancel()
	work := scratches.Get().(*scratch)
	defer scratches.Put(work)
	var (
		header http.Header
		err    error
		broken string
	)
	if s == writes {
		header, err = l.write(ctx, node, work)
	} else {
		header, broken, err = l.read(ctx, s, node, work)
	}
	end := l.clock.Now()
	if parent.Err() != nil || errors.Is(err, errNoProbe) {
		return
	}
	one := sample{due: due - l.begin, end: end - l.begin, service: s, node: uint8(node), outcome: outcomeOf(ctx, err)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.roles[node] = client.RoleOf(header)
		if l.roles[node] == client.Leader {
			l.leader = node
		}
	}
	if broken != "" {
		l.broken[s]++
		if len(l.violations) < maxViolations {
			l.violations = append(l.violations, fmt.Sprintf("%s on %s at %.3f s: %s", s.mode().Title(), l.nodes[node].Name, (sent-l.begin).Seconds(), broken))
		}
	}
	if due < l.begin {
		return
	}
	l.lag.RecordTime(sent - due)
	if err != nil && l.firsts[one.outcome] == "" {
		l.firsts[one.outcome] = fmt.Sprintf("%s on %s: %v", s.title(), l.nodes[node].Name, err)
	}
	l.samples = append(l.samples, one)
}

// outcomeOf tells what a client makes of an error.
func outcomeOf(ctx context.Context, err error) outcome {
	var refusal *client.Refusal
	switch {
	case err == nil:
		return good
	case errors.As(err, &refusal):
		return refused
	case errors.Is(err, probe.ErrStrange):
		return strange
	case ctx.Err() != nil:
		return late
	}
	return noWay
}

var errNoProbe = errors.New("every object has a write under way")

func (l *load) write(ctx context.Context, node int, work *scratch) (http.Header, error) {
	k, number, ok := l.pool.take()
	if !ok {
		l.notSent()
		return nil, errNoProbe
	}
	conn, err := l.links[node][writes].Conn(ctx)
	if err != nil {
		l.pool.refused(k)
		return nil, err
	}
	header, err := conn.Do(ctx, l.space.Write(k, number), &work.body)
	var refusal *client.Refusal
	if errors.As(err, &refusal) && refusal.Code/100 == 4 {
		l.pool.refused(k) // what a server refuses like that it has not begun
	}
	if err != nil {
		return nil, err
	}
	revision, err := probe.RevisionOf(work.body.Bytes())
	if err != nil {
		return nil, err
	}
	l.space.Ledger.Acknowledged(k, number, revision, l.clock.Now())
	l.pool.acknowledged(k)
	return header, nil
}

// read reads a probe and says which promise the answer breaks.
func (l *load) read(ctx context.Context, s service, node int, work *scratch) (_ http.Header, broken string, _ error) {
	conn, err := l.links[node][s].Conn(ctx)
	if err != nil {
		return nil, "", err
	}
	k := l.pool.toRead()
	l.space.Ledger.NowOf(&work.snap, k, l.clock.Now)
	header, err := conn.Do(ctx, l.space.Read(s.mode(), false, k, work.snap.Revision), &work.body)
	if err != nil {
		return nil, "", err
	}
	_, broken, err = l.space.Judge(s.mode(), false, k, &work.snap, work.body.Bytes(), header)
	return header, broken, err
}

// find returns the index of a fault's target at this moment: the node of that name, or one
// that has that role, a later one at each turn.
func (l *load) find(target string, turn int) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var have []int
	for i, n := range l.nodes {
		if n.Name == target {
			return i, nil
		}
		if string(l.roles[i]) == target && (target != string(client.Leader) || i == l.leader) {
			have = append(have, i)
		}
	}
	if len(have) == 0 {
		return 0, fmt.Errorf("there is no node or role %q", target)
	}
	return have[turn%len(have)], nil
}

func (l *load) close() {
	for _, links := range l.links {
		_ = client.CloseLinks(links[:])
	}
}
