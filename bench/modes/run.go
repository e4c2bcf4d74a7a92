package modes

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/probe"
)

// run is one measurement while it goes on.
type run struct {
	opt      Options
	cluster  client.Cluster
	all      []target
	nodes    []target // those whose reads are measured
	missing  []client.Role
	space    *probe.Space
	clock    *measure.Stopwatch
	ledger   *probe.Ledger
	cells    []*cell
	pairs    []*pair
	writers  *writers
	conns    []*client.Conn // all of them
	progress io.Writer

	ctx      context.Context
	giveUp   context.CancelCauseFunc
	failures atomic.Int64

	inflight sync.WaitGroup
	running  atomic.Int64

	mu         sync.Mutex // guards what follows
	lag        measure.Histogram
	unsent     int64
	violations []string
}

const (
	// maxErrors is when a run is given up: a cluster that breaks cannot be measured.
	maxErrors = 50
	// maxInflight bounds the reads under way. Those that are due beyond it are not
	// sent, and counted.
	maxInflight = 4096
	// maxViolations bounds how many broken promises are told; all are counted.
	maxViolations = 20
	prepareWithin = time.Minute
	cleanWithin   = 20 * time.Second
)

// Run measures a cluster. What it does meanwhile is told in lines to progress. It
// makes a namespace of its own and deletes it at the end, also when ctx ends.
// Errors: of the options, of a cluster that does not answer or breaks, and ctx's.
// Broken promises are no error: they are in the report.
func Run(ctx context.Context, cluster client.Cluster, opt Options, progress io.Writer) (*Report, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	r := &run{
		opt: opt, cluster: cluster, progress: progress, clock: measure.NewStopwatch(), lag: measure.NewHistogram(),
		ledger: probe.NewLedger(opt.probes()),
	}
	r.space = &probe.Space{Namespace: fmt.Sprintf("bench-modes-%08x", rand.Uint32()), Ledger: r.ledger, Size: opt.Size, Now: r.clock.Now}
	r.ctx, r.giveUp = context.WithCancelCause(ctx)
	defer r.giveUp(nil)
	defer func() { _ = client.CloseAll(r.conns) }()
	if err := r.connect(); err != nil {
		return nil, err
	}
	defer r.clean()
	report, err := r.measure()
	if cause := context.Cause(r.ctx); cause != nil {
		return nil, cause // what came after it is its consequence
	}
	return report, err
}

func (r *run) say(format string, args ...any) { fmt.Fprintf(r.progress, format+"\n", args...) }

// connect finds the nodes and gives each cell, and the writers on each node, a
// connection.
func (r *run) connect() (err error) {
	ctx, cancel := context.WithTimeout(r.ctx, prepareWithin)
	defer cancel()
	if r.all, err = findRoles(ctx, r.cluster); err != nil {
		return err
	}
	if r.nodes, r.missing, err = choose(r.all, r.opt.Nodes); err != nil {
		return err
	}
	for _, role := range r.missing {
		r.say("no node is %s: it is left out", role)
	}
	r.writers = &writers{run: r, latency: measure.NewHistogram()}
	for _, n := range r.all {
		conn, err := r.dial(ctx, n)
		if err != nil {
			return err
		}
		r.writers.conns = append(r.writers.conns, conn)
	}
	for _, n := range r.nodes {
		for _, verb := range []Verb{Get, List} {
			for _, mode := range AllModes {
				if mode == probe.Exact && verb == Get || !slices.Contains(r.opt.Modes, mode) {
					continue // a get has no Exact: its resourceVersion means not older than
				}
				conn, err := r.dial(ctx, n)
				if err != nil {
					return err
				}
				r.cells = append(r.cells, &cell{mode: mode, verb: verb, node: n, run: r, conn: conn, tally: newTally()})
			}
		}
	}
	return r.connectPairs(ctx)
}

// dial opens a connection, which is closed at the end.
func (r *run) dial(ctx context.Context, n target) (*client.Conn, error) {
	conn, err := r.cluster.Dial(ctx, n.Node)
	if err == nil {
		r.conns = append(r.conns, conn)
	}
	return conn, err
}

// prepare makes the namespace and the objects.
func (r *run) prepare() error {
	ctx, cancel := context.WithTimeout(r.ctx, prepareWithin)
	defer cancel()
	return r.space.Make(ctx, r.writers.conns, r.opt.Objects)
}

// clean deletes what the run made, as far as it can.
func (r *run) clean() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), cleanWithin)
	defer cancel()
	admin := r.cluster.Admin(cleanWithin)
	defer admin.Close()
	if err := r.space.Clean(ctx, admin); err != nil {
		r.say("%v", err)
	}
}

// failed counts an error; too many end the run.
func (r *run) failed(err error) {
	if err != nil && r.failures.Add(1) == maxErrors {
		r.giveUp(fmt.Errorf("given up after %d errors, the last: %w", maxErrors, err))
	}
}

func (r *run) noteLag(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lag.RecordTime(d)
}

func (r *run) violated(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.violations) < maxViolations {
		r.violations = append(r.violations, text)
	}
}

// target is a node with its role.
type target struct {
	client.Node
	role client.Role
}

// findRoles asks every node what it is.
func findRoles(ctx context.Context, c client.Cluster) ([]target, error) {
	roles, err := c.Roles(ctx)
	var all []target
	for i, role := range roles {
		all = append(all, target{c.Servers()[i], role})
	}
	return all, err
}

// choose picks the wanted nodes, each once, in the order of the roles. A role that
// no node has is left out and told; a name that no node has is an error. Servers that have no roles are all meant
// where roles are asked for.
func choose(all []target, wanted []string) (chosen []target, missing []client.Role, err error) {
	isRole := func(w string) bool { return slices.Contains(AllRoles, client.Role(w)) }
	if !slices.ContainsFunc(all, func(t target) bool { return t.role != client.Server }) && !slices.ContainsFunc(wanted, func(w string) bool { return !isRole(w) }) {
		return all, nil, nil
	}
	for _, w := range wanted {
		at := slices.IndexFunc(all, func(t target) bool { return t.Name == w || string(t.role) == w })
		switch {
		case at >= 0:
			if !slices.Contains(chosen, all[at]) {
				chosen = append(chosen, all[at])
			}
		case isRole(w):
			missing = append(missing, client.Role(w))
		default:
			return nil, nil, fmt.Errorf("nodes: there is no node or role %q", w)
		}
	}
	if len(chosen) == 0 {
		return nil, missing, fmt.Errorf("nodes: no node is %s", join(missing))
	}
	slices.SortStableFunc(chosen, func(a, b target) int {
		return slices.Index(AllRoles, a.role) - slices.Index(AllRoles, b.role)
	})
	return chosen, missing, nil
}
