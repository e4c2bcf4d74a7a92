package modes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/quorate/quorate/bench/client"
)

// run is one measurement while it goes on.
type run struct {
	opt       Options
	cluster   Cluster
	all       []target
	nodes     []target // those whose reads are measured
	missing   []Role
	namespace string
	clock     *stopwatch
	ledger    *ledger
	cells     []*cell
	writers   *writers
	progress  io.Writer

	ctx      context.Context
	giveUp   context.CancelCauseFunc
	failures atomic.Int64

	inflight sync.WaitGroup
	running  atomic.Int64

	mu         sync.Mutex // guards what follows
	lag        *hdrhistogram.Histogram
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
func Run(ctx context.Context, cluster Cluster, opt Options, progress io.Writer) (*Report, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	r := &run{
		opt: opt, cluster: cluster, progress: progress, clock: newStopwatch(), lag: newHistogram(),
		ledger:    newLedger(opt.probes()),
		namespace: fmt.Sprintf("bench-modes-%08x", rand.Uint32()),
	}
	r.ctx, r.giveUp = context.WithCancelCause(ctx)
	defer r.giveUp(nil)
	if err := r.connect(); err != nil {
		return nil, err
	}
	defer r.disconnect()
	defer r.clean()
	report, err := r.measure()
	if cause := context.Cause(r.ctx); cause != nil {
		return nil, cause // what came after it is its consequence
	}
	return report, err
}

func (r *run) collection() string { return "/api/v1/namespaces/" + r.namespace + "/configmaps" }

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
	r.writers = &writers{run: r, latency: newHistogram()}
	defer func() {
		if err != nil {
			r.disconnect()
		}
	}()
	for _, n := range r.all {
		conn, err := n.dial(ctx, r.cluster.TLS)
		if err != nil {
			return err
		}
		r.writers.conns = append(r.writers.conns, conn)
	}
	for _, n := range r.nodes {
		for _, verb := range []Verb{Get, List} {
			for _, mode := range AllModes {
				if mode == Exact && verb == Get || !contains(r.opt.Modes, mode) {
					continue // a get has no Exact: its resourceVersion means not older than
				}
				conn, err := n.dial(ctx, r.cluster.TLS)
				if err != nil {
					return err
				}
				r.cells = append(r.cells, &cell{mode: mode, verb: verb, node: n, run: r, conn: conn, tally: newTally()})
			}
		}
	}
	return nil
}

func contains(modes []Mode, m Mode) bool {
	for _, x := range modes {
		if x == m {
			return true
		}
	}
	return false
}

func (r *run) disconnect() {
	for _, c := range r.cells {
		_ = c.conn.Close()
	}
	_ = client.CloseAll(r.writers.conns)
}

// prepare makes the namespace and the objects.
func (r *run) prepare() error {
	ctx, cancel := context.WithTimeout(r.ctx, prepareWithin)
	defer cancel()
	var buf bytes.Buffer
	body := []byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"` + r.namespace + `"}}`)
	if _, err := r.writers.conns[0].Do(ctx, client.Request{Method: http.MethodPost, Path: "/api/v1/namespaces", Header: client.JSONBody, Body: body}, &buf); err != nil {
		return fmt.Errorf("make the namespace: %w", err)
	}
	const workers = 16
	var (
		wg    sync.WaitGroup
		next  atomic.Int64
		mu    sync.Mutex
		first error
	)
	for range workers {
		wg.Go(func() {
			var buf bytes.Buffer
			for i := int(next.Add(1) - 1); i < r.opt.Objects && ctx.Err() == nil; i = int(next.Add(1) - 1) {
				if err := r.create(ctx, i, &buf); err != nil {
					mu.Lock()
					first = errors.Join(first, err)
					mu.Unlock()
					cancel()
				}
			}
		})
	}
	wg.Wait()
	if first != nil {
		return fmt.Errorf("make the objects: %w", first)
	}
	return context.Cause(ctx)
}

func (r *run) create(ctx context.Context, i int, buf *bytes.Buffer) error {
	body := newObject(i, len(r.ledger.probes), r.opt.Size)
	if _, err := r.writers.conns[i%len(r.writers.conns)].Do(ctx, client.Request{Method: http.MethodPost, Path: r.collection(), Header: client.JSONBody, Body: body}, buf); err != nil {
		return err
	}
	revision, err := revisionOf(buf.Bytes())
	if err == nil && i < len(r.ledger.probes) {
		r.ledger.acknowledged(i, 0, revision, r.clock.now())
	}
	return err
}

// clean deletes what the run made, as far as it can.
func (r *run) clean() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), cleanWithin)
	defer cancel()
	var buf bytes.Buffer
	for _, path := range []string{r.collection(), "/api/v1/namespaces/" + r.namespace} {
		// Any node will do; the first may have gone.
		var err error
		for _, conn := range r.writers.conns {
			if _, err = conn.Do(ctx, client.Request{Method: http.MethodDelete, Path: path, Header: client.Plain}, &buf); err == nil {
				break
			}
			var refused *client.Refusal
			if errors.As(err, &refused) && refused.Code == http.StatusNotFound {
				err = nil
				break
			}
		}
		if err != nil {
			r.say("namespace %s is left behind: %v", r.namespace, err)
			return
		}
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
	record(r.lag, d.Microseconds())
}

func (r *run) violated(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.violations) < maxViolations {
		r.violations = append(r.violations, text)
	}
}
