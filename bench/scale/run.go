package scale

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/host"
	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/raftstore/disk"
)

// Lab starts clusters, with settings for all nodes as flag=value.
type Lab func(ctx context.Context, nodes int, backup string, settings []string) (Machines, error)

// Machines is a cluster of a Lab. Of one that begins with a backup only the first node runs.
type Machines interface {
	Cluster() client.Cluster
	Start(ctx context.Context, name string) error
	Stop(ctx context.Context, name string) error
	// Ready waits until a node says that it is.
	Ready(ctx context.Context, name string) error
	Save(ctx context.Context, file string) error
	End() error
}

// nodes of a cluster that is measured.
const nodes = 3

// connsPerNode: a connection takes 250 requests at a time, and in an open loop those wait that a
// slow moment leaves unanswered.
const connsPerNode = 8

// readyWithin bounds how long a node may take to be ready, dialWithin how long it may take to answer
// the opening of a connection: it may be busy with answers as large as a point's.
const (
	readyWithin = 3 * time.Minute
	dialWithin  = time.Minute
)

// run is one size of a point.
type run struct {
	o       Options
	m       Machines
	cluster client.Cluster
	conns   []*client.Link // to the nodes in turn
	alone   *client.Link   // the other client's
	clock   *measure.Stopwatch
	hook    *converter // nil if the point has none
	size    *Size
	say     func(string, ...any)
}

// Run measures a point at all sizes.
func Run(ctx context.Context, lab Lab, o Options, progress io.Writer) (*Report, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	p := find(o.Point)
	dir, err := os.MkdirTemp("", "quorate-scale-")
	if err != nil {
		return nil, err
	}
	rep := newReport(o, p, dir)
	for _, share := range p.sizes(o) {
		n := max(1, int(float64(p.Full)*share+0.5))
		say := func(format string, args ...any) {
			fmt.Fprintf(progress, "%d %s: %s\n", n, p.Unit, fmt.Sprintf(format, args...))
		}
		s, err := one(ctx, lab, o, p, n, dir, say)
		if ctx.Err() != nil {
			err = ctx.Err() // what a signal has cut short is no measurement
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%d %s: %w", n, p.Unit, err), os.RemoveAll(dir))
		}
		rep.Sizes = append(rep.Sizes, *s)
	}
	rep.grow()
	return rep, os.RemoveAll(dir)
}

// sizes are those that are measured.
func (p *Point) sizes(o Options) []float64 {
	switch {
	case len(o.Sizes) > 0:
		return o.Sizes
	case len(p.Sizes) > 0:
		return p.Sizes
	}
	return usualSizes
}

// one measures one size.
func one(ctx context.Context, lab Lab, o Options, p *Point, n int, dir string, say func(string, ...any)) (s *Size, err error) {
	small, big := filepath.Join(dir, "small"), filepath.Join(dir, "big")
	var hook *converter
	if p.webhook {
		hook = newConverter()
		defer hook.close()
	}
	if err := makeBackup(ctx, lab, p, p.fills(n, hook), small, big); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(big)) }()
	m, err := lab(ctx, nodes, big, p.Settings)
	if err != nil {
		return nil, err
	}
	r := &run{o: o, m: m, clock: measure.NewStopwatch(), hook: hook, size: &Size{N: n}, say: say}
	defer func() { err = errors.Join(err, r.hangUp(), m.End()) }()
	if err := r.start(ctx); err != nil {
		return nil, err
	}
	if err := p.rows(ctx, r, n); err != nil {
		return nil, err
	}
	return r.size, nil
}

// makeBackup writes the backup with which the cluster begins.
func makeBackup(ctx context.Context, lab Lab, p *Point, fills []fill, small, big string) (err error) {
	m, err := lab(ctx, 1, "", p.Settings)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.End()) }()
	c := m.Cluster()
	conn, err := c.Nodes[0].Dial(ctx, c.TLS)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	var buf bytes.Buffer
	post := func(path, body string) error {
		_, err := conn.Do(ctx, client.Request{Method: http.MethodPost, Path: path, Header: client.JSONBody, Body: []byte(body)}, &buf)
		// What a definition has defined is served a moment later.
		for began := time.Now(); client.Refused(err, http.StatusNotFound) && time.Since(began) < servedWithin && ctx.Err() == nil; {
			measure.Pause(ctx, 50*time.Millisecond)
			_, err = conn.Do(ctx, client.Request{Method: http.MethodPost, Path: path, Header: client.JSONBody, Body: []byte(body)}, &buf)
		}
		return err
	}
	if err := post("/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+namespace+`"}}`); err != nil {
		return err
	}
	var copies []disk.Copies
	for _, f := range fills {
		if f.body == "" {
			_, err = conn.Do(ctx, client.Request{Method: http.MethodGet, Path: f.collection, Header: client.Plain}, &buf)
		} else {
			err = post(f.collection, f.body)
		}
		if err != nil {
			return err
		}
		if f.n == 0 {
			continue
		}
		uid, err := uidOf(buf.Bytes())
		if err != nil {
			return err
		}
		copies = append(copies, disk.Copies{Table: f.table, Key: f.key, N: f.n, Texts: append([]string{uid}, f.texts...), Fields: f.fields, With: func(i int, text string) string {
			if text == uid {
				return fmt.Sprintf("%08x%s", i, uid[8:])
			}
			return f.with(i, text)
		}})
	}
	// The other client's object.
	if err := post("/api/v1/namespaces/default/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"other"},"data":{"value":"`+client.Text(3, 0, 1024)+`"}}`); err != nil {
		return err
	}
	if err := m.Save(ctx, small); err != nil {
		return err
	}
	return errors.Join(multiply(small, big, copies), os.Remove(small))
}

// servedWithin bounds how long a definition may take until its objects are served.
const servedWithin = 20 * time.Second

func multiply(small, big string, copies []disk.Copies) (err error) {
	in, err := os.Open(small)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(big, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(out, 1<<20)
	err = disk.Multiply(w, in, copies...)
	return errors.Join(err, w.Flush(), out.Close())
}

// uidOf finds the uid in an object's JSON.
func uidOf(object []byte) (string, error) {
	uid, ok := client.Between(object, `"uid":"`, '"')
	if !ok || len(uid) < 8 {
		return "", fmt.Errorf("no uid in %.200q", object)
	}
	return string(uid), nil
}

// start has the other nodes join, and the first one start again.
func (r *run) start(ctx context.Context) error {
	all := r.m.Cluster()
	ready := func(id, what, name string) error {
		ctx, cancel := context.WithTimeout(ctx, readyWithin)
		defer cancel()
		began := time.Now()
		if err := r.m.Start(ctx, name); err != nil {
			return err
		}
		if err := r.m.Ready(ctx, name); err != nil {
			return err
		}
		return r.once(id, what, name, time.Since(began))
	}
	for _, n := range all.Nodes[1:] {
		if err := ready("join-"+n.Name, "join: "+n.Name+" is ready with the first one's snapshot", n.Name); err != nil {
			return err
		}
	}
	last := all.Nodes[len(all.Nodes)-1].Name
	if err := r.m.Stop(ctx, last); err != nil {
		return err
	}
	if err := ready("start", "start: "+last+" is ready with its own state", last); err != nil {
		return err
	}
	r.cluster = r.m.Cluster()
	for i := range connsPerNode * len(r.cluster.Nodes) {
		link := client.NewLink(r.cluster.Nodes[i%len(r.cluster.Nodes)], r.cluster.TLS, dialWithin)
		if _, err := link.Conn(ctx); err != nil {
			return err
		}
		r.conns = append(r.conns, link)
	}
	r.alone = r.conns[len(r.conns)-1]
	r.conns = r.conns[:len(r.conns)-1]
	return nil
}

func (r *run) hangUp() error {
	if r.alone == nil {
		return client.CloseLinks(r.conns)
	}
	return errors.Join(client.CloseLinks(r.conns), client.CloseLinks([]*client.Link{r.alone}))
}

// once notes what happened once, and what the node that it happened to has taken for it.
func (r *run) once(id, what, name string, took time.Duration) error {
	for _, n := range r.m.Cluster().Nodes {
		if n.Name != name {
			continue
		}
		cpu, err := host.CPUTimes([]int{n.PID})
		if err != nil {
			return err
		}
		memory, err := host.ResidentMemory([]int{n.PID})
		if err != nil {
			return err
		}
		row := Row{ID: id, Name: what, Count: 1, Seconds: took.Seconds(), CPUSeconds: cpu[0].Seconds(), MemoryMiB: []float64{mib(memory)}}
		r.size.Rows = append(r.size.Rows, row)
		r.say("%s: %.2f s, %.2f s of CPU, %.0f MiB", what, row.Seconds, row.CPUSeconds, row.MemoryMiB[0])
	}
	return nil
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

func (r *run) pids() (out []int) {
	for _, n := range r.cluster.Nodes {
		out = append(out, n.PID)
	}
	return out
}

// timed is a tally, with the figures that the work has found besides.
type timed struct {
	*measure.Tally
	figures []Figure
}

func newTimed() *timed { return &timed{Tally: measure.NewTally()} }

// row measures what work does, while another client gets its object.
func (r *run) row(ctx context.Context, id, what string, work func(ctx context.Context, t *timed) error) error {
	before, err := host.CPUTimes(r.pids())
	if err != nil {
		return err
	}
	hook := r.hook.asked()
	t, other := newTimed(), newTimed()
	began := time.Now()
	otherCtx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { r.other(otherCtx, other) })
	err = work(ctx, t)
	took := time.Since(began)
	stop()
	wg.Wait()
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	after, err := host.CPUTimes(r.pids())
	if err != nil {
		return err
	}
	row := Row{
		ID: id, Name: what, Count: t.Times.TotalCount(), Seconds: took.Seconds(), Bytes: t.Bytes, Errors: t.Errors, OtherErrors: other.Errors, FirstError: cmp.Or(t.FirstError(), other.FirstError()),
		Latency: t.Times.Curve(), Other: other.Times.Latency(), Figures: append(t.figures, r.hook.since(hook, t.Times.TotalCount())...), latency: t.Times,
	}
	for i, pid := range r.pids() {
		row.CPUSeconds += (after[i] - before[i]).Seconds()
		memory, err := host.ResidentMemory([]int{pid})
		if err != nil {
			return err
		}
		row.MemoryMiB = append(row.MemoryMiB, mib(memory))
	}
	r.size.Rows = append(r.size.Rows, row)
	r.say("%s", row.line())
	return nil
}

// other is the other client: it gets one object at random times until ctx ends.
func (r *run) other(ctx context.Context, t *timed) {
	var wg sync.WaitGroup
	measure.Pace(ctx, r.clock, r.o.Gets, r.clock.Now(), time.Hour, func(due time.Duration) {
		wg.Go(func() {
			var buf bytes.Buffer
			_, err := r.alone.Do(context.WithoutCancel(ctx), client.Request{Method: http.MethodGet, Path: "/api/v1/namespaces/default/configmaps/other", Header: client.Plain}, &buf)
			t.Note(r.clock.Now()-due, buf.Len(), err)
		})
	})
	wg.Wait()
}

// paced sends requests at random times for the time of a row; their latency counts from when
// they were due. make must not block.
func (r *run) paced(ctx context.Context, t *timed, rate float64, make func(i int) (*client.Link, client.Request)) {
	r.pacedFor(ctx, t, r.o.Duration, rate, make)
}

func (r *run) pacedFor(ctx context.Context, t *timed, last time.Duration, rate float64, make func(i int) (*client.Link, client.Request)) {
	var wg sync.WaitGroup
	begin := r.clock.Now()
	i := 0
	measure.Pace(ctx, r.clock, rate, begin, begin+last, func(due time.Duration) {
		conn, req := make(i)
		i++
		wg.Go(func() {
			n, err := read(ctx, conn, req, io.Discard)
			t.Note(r.clock.Now()-due, n, err)
		})
	})
	wg.Wait()
}

// closed is a row of requests that some clients send without pauses, to the nodes in turn.
func (r *run) closed(ctx context.Context, id, what string, clients int, make func(i int) client.Request) error {
	return r.row(ctx, id, what, func(ctx context.Context, t *timed) error {
		r.workers(ctx, t, clients, func(_, i int) (int, error) {
			return read(ctx, r.conns[i%len(r.conns)], make(i), io.Discard)
		})
		return nil
	})
}

// workers do operations without pauses for the time of a row.
func (r *run) workers(ctx context.Context, t *timed, workers int, do func(worker, i int) (read int, err error)) {
	var wg sync.WaitGroup
	var next atomic.Int64
	end := r.clock.Now() + r.o.Duration
	for worker := range workers {
		wg.Go(func() {
			for r.clock.Now() < end && ctx.Err() == nil {
				i := int(next.Add(1) - 1)
				began := r.clock.Now()
				n, err := do(worker, i)
				t.Note(r.clock.Now()-began, n, err)
				if err != nil {
					measure.Pause(ctx, 100*time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
}

// read sends a request and copies the answer to out without keeping it: some are of a gigabyte.
func read(ctx context.Context, conn *client.Link, req client.Request, out io.Writer) (int, error) {
	resp, err := conn.Open(ctx, req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	n, err := io.Copy(out, resp.Body)
	return int(n), err
}
