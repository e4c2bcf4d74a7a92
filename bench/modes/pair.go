package modes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/probe"
)

// pair is a client of one mode that reads an object at one node and then the same at
// another, as one behind a load balancer does. With Not older than, it asks for what it has
// seen.
type pair struct {
	mode  probe.Mode
	run   *run
	nodes []*cell // one get for each node

	mu sync.Mutex // guards what follows
	pairTally
}

// pairTally is what a pair has seen.
type pairTally struct {
	all, older int64
	versions   measure.Histogram // by which the second answer was older; zero for others
	ways       map[way]*wayTally
	reads      map[string]int64 // by node
	errors     int64
	broken     int64 // answers that break another promise of their mode
}

// way is from one node to another, by their roles.
type way struct{ from, to client.Role }

type wayTally struct{ all, older int64 }

func newPairTally() pairTally {
	return pairTally{versions: measure.NewHistogram(), ways: map[way]*wayTally{}, reads: map[string]int64{}}
}

// connectPairs makes a pair for each mode, with connections of its own, if there are two nodes.
func (r *run) connectPairs(ctx context.Context) error {
	if len(r.nodes) < 2 {
		return nil
	}
	for _, mode := range []probe.Mode{probe.Any, probe.NotOlderThan, probe.MostRecent} {
		if !slices.Contains(r.opt.Modes, mode) {
			continue
		}
		p := &pair{mode: mode, run: r, pairTally: newPairTally()}
		r.pairs = append(r.pairs, p)
		for _, n := range r.nodes {
			conn, err := r.dial(ctx, n)
			if err != nil {
				return err
			}
			p.nodes = append(p.nodes, &cell{mode: mode, verb: Get, node: n, run: r, conn: conn})
		}
	}
	return nil
}

// read reads at one node and then at another, and notes what came of it if that is asked for.
func (p *pair) read(ctx context.Context, note bool) error {
	i := rand.IntN(len(p.nodes))
	j := (i + 1 + rand.IntN(len(p.nodes)-1)) % len(p.nodes)
	k := rand.IntN(p.run.ledger.Len())
	first, err := p.nodes[i].readOf(ctx, k, 0)
	var second answer
	if err == nil {
		second, err = p.nodes[j].readOf(ctx, k, first.Revision)
	}
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		err = fmt.Errorf("%s and then %s: %w", p.nodes[i], p.nodes[j], err)
	}
	p.run.failed(err)
	if note {
		p.note(p.nodes[i].node, p.nodes[j].node, first, second, err)
	}
	return err
}

// note counts two answers of one object, the second of which was asked for when the first
// was there.
func (p *pair) note(from, to target, first, second answer, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reads[from.Name]++
	p.reads[to.Name]++
	if err != nil {
		p.errors++
		return
	}
	w := p.ways[way{from.role, to.role}]
	if w == nil {
		w = &wayTally{}
		p.ways[way{from.role, to.role}] = w
	}
	for _, a := range []answer{first, second} {
		if a.violation != "" {
			p.broken++
			p.run.violated(fmt.Sprintf("%s get, at %s and then at %s: %s", p.mode, from.Name, to.Name, a.violation))
		}
	}
	p.all++
	w.all++
	behind := first.Number - second.Number
	p.versions.Record(behind)
	if behind > 0 {
		p.older++
		w.older++
		if p.mode != probe.Any {
			p.run.violated(fmt.Sprintf("%s get: %s had write %d, and %s, asked after that, write %d", p.mode, from.Name, first.Number, to.Name, second.Number))
		}
	}
}

// unit is what is due at one moment: a read of a cell, or half a pair, so that all of them
// together are as many reads as are due. Nothing, for the second half.
func (r *run) unit() (*cell, *pair) {
	i := rand.IntN(r.units())
	if i < len(r.cells) {
		return r.cells[i], nil
	}
	if i -= len(r.cells); i%2 == 0 {
		return nil, r.pairs[i/2]
	}
	return nil, nil
}

// units is how many shares of the reads there are: one of each cell, two of each pair.
func (r *run) units() int { return len(r.cells) + 2*len(r.pairs) }

// perCell is the rate of one cell when all reads have one.
func (r *run) perCell(rate float64) float64 { return rate / float64(r.units()) }

// Monotonic is how often a client that read an object at one node and then at another saw an
// older version than before.
type Monotonic struct {
	Mode     probe.Mode `json:"mode"`
	Pairs    int64      `json:"pairs"`
	Older    int64      `json:"olderThanBefore"`
	Share    float64    `json:"olderShare"`
	Versions Versions   `json:"versions"` // by which the second answer was older, zero if it was not
	Errors   int64      `json:"errors"`
	// Violations are answers that break another promise of their mode.
	Violations int64 `json:"violations"`
	Ways       []Way `json:"ways"`

	reads map[string]int64
}

// Way is Monotonic from a node of a role to one of a role.
type Way struct {
	From  client.Role `json:"from"`
	To    client.Role `json:"to"`
	Pairs int64       `json:"pairs"`
	Older int64       `json:"olderThanBefore"`
}

func (p *pair) report() Monotonic {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := Monotonic{Mode: p.mode, Pairs: p.all, Older: p.older, Share: float64(p.older) / float64(max(p.all, 1)), Versions: versionsOf(p.versions), Errors: p.errors, Violations: p.broken, reads: p.reads}
	for _, from := range AllRoles {
		for _, to := range AllRoles {
			if w := p.ways[way{from, to}]; w != nil {
				m.Ways = append(m.Ways, Way{from, to, w.all, w.older})
			}
		}
	}
	return m
}

// Versions is a distribution of numbers of writes.
type Versions struct {
	Mean  float64        `json:"mean"`
	P50   int64          `json:"p50"`
	P90   int64          `json:"p90"`
	P99   int64          `json:"p99"`
	P999  int64          `json:"p999"`
	Max   int64          `json:"max"`
	Curve []VersionPoint `json:"curve,omitempty"`
}

// VersionPoint says that Percentile percent lacked at most so many.
type VersionPoint struct {
	Percentile float64 `json:"percentile"`
	Versions   int64   `json:"versions"`
}

func versionsOf(h measure.Histogram) Versions {
	at := h.ValueAtQuantile
	v := Versions{P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: h.Max()}
	if h.TotalCount() == 0 {
		return v
	}
	v.Mean = h.Mean()
	for _, p := range h.Curve().Curve {
		v.Curve = append(v.Curve, VersionPoint{p.Percentile, at(p.Percentile)})
	}
	return v
}

// reset forgets what was measured, for the next load.
func (r *run) reset() {
	for _, c := range r.cells {
		c.mu.Lock()
		c.tally = newTally()
		c.mu.Unlock()
	}
	for _, p := range r.pairs {
		p.mu.Lock()
		p.pairTally = newPairTally()
		p.mu.Unlock()
	}
	r.writers.mu.Lock()
	r.writers.latency, r.writers.errors = measure.NewHistogram(), 0
	r.writers.mu.Unlock()
	r.mu.Lock()
	r.lag, r.unsent = measure.NewHistogram(), 0
	r.mu.Unlock()
}

// settle is how long nothing is read between two loads.
const settle = 500 * time.Millisecond
