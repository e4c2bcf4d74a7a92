package churn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/host"
	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/report"
)

// perConnection is how many writers share a connection.
const perConnection = 4

// cleanWithin is how long the objects are removed.
const cleanWithin = 10 * time.Minute

// Churn is a run.
type Churn struct {
	opt       Options
	target    client.Cluster
	namespace string
	text      string // values are parts of it
	clock     *measure.Stopwatch
	admin     *client.Admin
	senders   []*client.Link
	writers   []*writer
	progress  io.Writer

	left, again atomic.Int64 // writes that nobody has begun; answers that asked to come again

	mu      sync.Mutex // guards what follows
	written int64
	failed  int64
	first   string // error
	objects int64
	bytes   int64
}

// Run writes, and then rests. If ctx ends, the report has what was measured until then.
func Run(ctx context.Context, target client.Cluster, o Options, progress io.Writer) (*Report, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	c := newChurn(target, o, progress)
	defer c.close()
	if _, err := c.admin.Any(ctx, http.MethodPost, "/api/v1/namespaces", fmt.Appendf(nil, `{"metadata":{"name":%q}}`, c.namespace)); err != nil {
		return nil, fmt.Errorf("make the namespace: %w", err)
	}
	r, err := c.run(ctx)
	return r, errors.Join(err, c.clean(context.WithoutCancel(ctx)))
}

func newChurn(target client.Cluster, o Options, progress io.Writer) *Churn {
	c := &Churn{opt: o, target: target, namespace: fmt.Sprintf("churn-%d", time.Now().UnixNano()), text: client.Text(o.Seed, 0, 2*o.Largest), progress: progress, admin: target.Admin(o.Timeout)}
	c.left.Store(o.Writes)
	for i := range o.Clients {
		if i%perConnection == 0 {
			c.senders = append(c.senders, client.NewLink(target.Nodes[len(c.senders)%len(target.Nodes)], target.TLS, o.Timeout))
		}
		share := o.Objects / o.Clients
		if i < o.Objects%o.Clients {
			share++
		}
		p := plan{random: rand.New(rand.NewPCG(o.Seed, uint64(i)+1)), target: share, smallest: o.Smallest, largest: o.Largest}
		c.writers = append(c.writers, &writer{plan: p, churn: c, link: c.senders[len(c.senders)-1], number: i})
	}
	return c
}

func (c *Churn) path() string { return "/api/v1/namespaces/" + c.namespace + "/configmaps" }

// run takes samples while the writers write and afterwards.
func (c *Churn) run(ctx context.Context) (*Report, error) {
	r := newReport(c)
	c.clock = measure.NewStopwatch()
	writers, stop := context.WithCancel(ctx)
	defer stop()
	if c.opt.Duration > 0 {
		defer time.AfterFunc(c.opt.Duration, func() { c.left.Store(0) }).Stop()
	}
	var writing sync.WaitGroup
	for _, w := range c.writers {
		writing.Go(func() { w.run(writers) })
	}
	defer writing.Wait()
	defer stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		writing.Wait()
	}()
	ticker := time.NewTicker(c.opt.Every)
	defer ticker.Stop()
	for {
		wrote := false
		select {
		case <-ended:
			wrote, ended = true, nil
			r.WriteSeconds = c.clock.Now().Seconds()
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, c.opt.Rest)
			defer cancel()
		case <-ticker.C:
		case <-ctx.Done():
		}
		s, err := c.sample(context.WithoutCancel(ctx))
		if err != nil {
			return nil, err
		}
		r.add(s)
		fmt.Fprintln(c.progress, s.line())
		if ctx.Err() != nil && !wrote {
			r.Stopped = errors.Is(ctx.Err(), context.Canceled)
			if r.WriteSeconds == 0 {
				r.WriteSeconds = s.Seconds
			}
			c.count(r)
			return r, nil
		}
	}
}

// count says in the report what became of the writes.
func (c *Churn) count(r *Report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.Written, r.Failures, r.FirstError, r.Again = c.written, c.failed, c.first, c.again.Load()
}

// sample looks at all nodes.
func (c *Churn) sample(ctx context.Context) (s Sample, err error) {
	s.Seconds = c.clock.Now().Seconds()
	c.mu.Lock()
	s.Writes, s.Objects, s.LiveBytes = c.written, c.objects, c.bytes
	c.mu.Unlock()
	metrics, err := c.admin.Any(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		return s, fmt.Errorf("read metrics: %w", err)
	}
	s.StoredBytes = int64(client.ParseMetrics(metrics)["quorate_stored_bytes"])
	for _, n := range c.target.Nodes {
		node := NodeSample{Name: n.Name}
		if node.Files, err = filesOf(filepath.Join(c.target.Dir, n.Name)); err != nil {
			return s, fmt.Errorf("look at the files of %s: %w", n.Name, err)
		}
		if node.Resident, err = host.ResidentMemory([]int{n.PID}); err != nil {
			return s, err
		}
		s.Nodes = append(s.Nodes, node)
	}
	return s, nil
}

// note counts a write, and what it has changed of what lives.
func (c *Churn) note(objects, bytes int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.objects += objects
	c.bytes += bytes
	if err == nil {
		c.written++
	} else if c.failed++; c.first == "" {
		c.first = err.Error()
	}
}

// clean removes the objects and their namespace.
func (c *Churn) clean(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cleanWithin)
	defer cancel()
	c.admin.Within = cleanWithin
	return c.admin.Remove(ctx, c.path(), "/api/v1/namespaces/"+c.namespace)
}

func (c *Churn) close() {
	_ = client.CloseLinks(c.senders) // nothing is sent any more
	c.admin.Close()
}

// newReport is one without samples.
func newReport(c *Churn) *Report {
	o := c.opt
	return &Report{
		Head: report.NewHead(Schema, o.Command, o.Commit, c.target.Dir), Nodes: len(c.target.Nodes), Clients: o.Clients, Objects: o.Objects,
		Smallest: o.Smallest, Largest: o.Largest, Seed: o.Seed,
	}
}
