package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/host"
	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/report"
)

// bench is one run: the connections, the objects, and what is known of them.
type bench struct {
	Options
	target    *Target
	progress  report.Progress
	namespace string
	conns     []*client.Conn
	// versions holds each object's resourceVersion. An object is written by one worker, or
	// by the one that has it from the pool, so nobody waits and nobody conflicts.
	versions [][]byte
	pool     *pool
	bodies   bodies
	made     atomic.Int64 // objects beyond those of the namespace
	// round numbers changes, so that each one changes something. Rounds rise
	// from the start time on; runs that share a namespace do not meet.
	round int64
	// left are the paths to delete at the end, in the order in which they were made, and
	// atEnd what else ends then.
	left  []string
	atEnd []func()
}

// ErrStopped is what Run returns beside the report when its context has ended before it was
// done: the report has what was measured until then.
var ErrStopped = errors.New("stopped before the end")

const (
	prepareWithin = 10 * time.Minute
	cleanWithin   = 5 * time.Minute
	// countedWithin bounds a row that ends with its objects.
	countedWithin = 10 * time.Minute
	warmup        = time.Second // of an open loop
)

// Run measures a target as often as it is asked to, and makes and deletes what it needs: a
// namespace for each time, with its objects. Errors are of the options, of a target that
// cannot do what is asked for, does not answer, or costs nobody knows what. Operations that
// fail are in the report.
func Run(ctx context.Context, target Target, o Options, progress report.Progress) (*Report, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	chosen, err := o.chosen()
	if err != nil {
		return nil, err
	}
	if chosen, err = target.check(chosen, slices.Equal(o.Rows, []string{"all"})); err != nil {
		return nil, err
	}
	r := newReport(&o, &target)
	for turn := range o.Repeat {
		if o.Repeat > 1 {
			progress.Say("run %d of %d", turn+1, o.Repeat)
		}
		one, err := runOnce(ctx, &target, o, chosen, progress, turn+1 < o.Repeat)
		if one != nil {
			r.Runs = append(r.Runs, *one)
		}
		if err == nil && ctx.Err() != nil {
			err = ErrStopped
		}
		if err != nil {
			if errors.Is(err, ErrStopped) || ctx.Err() != nil {
				r.Stopped = true
				err = ErrStopped
			}
			r.finish()
			return r, err
		}
	}
	r.finish()
	return r, nil
}

// runOnce measures all rows once. more says that there are further runs: then nothing is kept.
func runOnce(ctx context.Context, target *Target, o Options, chosen []row, progress report.Progress, more bool) (_ *RunReport, err error) {
	dialing, cancel := context.WithTimeout(ctx, o.Timeout)
	conns, err := target.connect(dialing, o.Connections)
	cancel()
	if err != nil {
		return nil, err
	}
	defer client.CloseAll(conns)
	b := newBench(o, target, conns)
	b.progress = progress
	defer func() {
		for _, f := range b.atEnd {
			f()
		}
		if !o.Keep || more {
			err = errors.Join(err, b.clean(context.WithoutCancel(ctx)))
		}
	}()
	return b.measure(ctx, chosen)
}

func newBench(o Options, t *Target, conns []*client.Conn) *bench {
	b := &bench{Options: o, target: t, conns: conns, versions: make([][]byte, o.Objects), round: time.Now().UnixNano(), namespace: o.Namespace, pool: newPool(o.Objects)}
	if b.namespace == "" {
		b.namespace = "bench-" + strconv.FormatInt(time.Now().Unix(), 36) + strconv.FormatUint(uint64(rand.Uint32N(36*36)+36*36), 36)
	}
	return b
}

// conn is worker w's connection.
func (b *bench) conn(w int) *client.Conn { return b.conns[w%len(b.conns)] }

func (b *bench) collectionOf(namespace string) string {
	return "/api/v1/namespaces/" + namespace + "/configmaps"
}

func (b *bench) collection() string { return b.collectionOf(b.namespace) }

func (b *bench) path(i int) string { return b.collection() + "/" + name(i) }

// elsewhere is the namespace of objects that a mix or a rate creates.
func (b *bench) elsewhere() string { return b.namespace + "-new" }

// leave remembers to delete something at the end.
func (b *bench) leave(path string) { b.left = append(b.left, path) }

// measure works through the rows, after it has seen to the objects.
func (b *bench) measure(ctx context.Context, chosen []row) (*RunReport, error) {
	there, err := b.makeNamespace(ctx, b.namespace)
	if err != nil {
		return nil, err
	}
	paced := b.Rate > 0 || b.Sweep
	if !there && (paced || chosen[0].name != "create") {
		b.progress.Say("creating %d objects", b.Objects)
		if err := b.createAll(ctx); err != nil {
			return nil, err
		}
	}
	r := &RunReport{Date: time.Now().UTC().Truncate(time.Second)}
	if err := b.calibrateInto(ctx, r); err != nil {
		return nil, err
	}
	for i := range chosen {
		one := &chosen[i]
		b.progress.Say("measuring %s", one.title)
		if err := b.prepareRow(ctx, one); err != nil {
			return r, fmt.Errorf("measure %s: %w", one.name, err)
		}
		if b.Sweep {
			s, err := b.sweepRow(ctx, one)
			if s != nil {
				r.Sweeps = append(r.Sweeps, *s)
			}
			if err != nil {
				return r, fmt.Errorf("measure %s: %w", one.name, err)
			}
			continue
		}
		measured, err := b.row(ctx, one)
		if measured != nil && (measured.Ops > 0 || !measured.Cut) {
			r.Rows = append(r.Rows, *measured)
		}
		if err != nil {
			return r, fmt.Errorf("measure %s: %w", one.name, err)
		}
		if ctx.Err() != nil {
			return r, ErrStopped
		}
	}
	if err := b.calibrateInto(ctx, r); err != nil {
		return r, err
	}
	pids, _ := b.target.PIDs()
	m, err := host.MemoryOf(pids)
	r.ResidentBytes, r.ProportionalBytes, r.AnonymousBytes = m.Resident, m.Proportional, m.Anonymous
	if err != nil || !b.Goals {
		return r, err
	}
	select { // for memory that is given back
	case <-ctx.Done():
		return r, ErrStopped
	case <-time.After(atRest):
	}
	m, err = host.MemoryOf(pids)
	r.RestBytes, r.RestProportionalBytes, r.RestAnonymousBytes = m.Resident, m.Proportional, m.Anonymous
	return r, err
}

// atRest is how long after the last row memory is measured again.
const atRest = 10 * time.Second

// calibrateInto measures the bare server if that is asked for.
func (b *bench) calibrateInto(ctx context.Context, r *RunReport) error {
	if !b.Calibrate {
		return nil
	}
	b.progress.Say("measuring a bare server")
	one, err := b.bareCost(ctx)
	if err == nil {
		r.Bare = append(r.Bare, one)
	}
	return err
}

// prepareRow does what comes before a row and is not measured.
func (b *bench) prepareRow(ctx context.Context, r *row) error {
	ctx, cancel := context.WithTimeout(ctx, prepareWithin)
	defer cancel()
	if r.prepare != nil {
		if err := r.prepare(ctx, b); err != nil {
			return err
		}
	}
	for _, v := range r.verbs() {
		if v == create && !r.counted || v == create && (b.Rate > 0 || b.Sweep) {
			if _, err := b.makeNamespace(ctx, b.elsewhere()); err != nil {
				return err
			}
			continue // bodies are encoded as they are needed
		}
		if err := b.prepareVerb(ctx, v); err != nil {
			return err
		}
	}
	return nil
}

// createAll makes the objects.
func (b *bench) createAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, countedWithin)
	defer cancel()
	if err := b.prepareVerb(ctx, create); err != nil {
		return err
	}
	t := newTally(1)
	closedLoop(ctx, b.Workers, 0, t, b.closed(&row{verb: create, counted: true}, b.Workers))
	if err := errors.Join(t.first, ctx.Err()); err != nil {
		return fmt.Errorf("create the objects: %w", err)
	}
	return nil
}

// row measures one row.
func (b *bench) row(ctx context.Context, r *row) (*Row, error) {
	t := newTally(max(1, len(r.mix)))
	defer b.tell(r.name, t)()
	pids, _ := b.target.PIDs()
	if b.Rate > 0 {
		warm := b.open(r, b.Rate, min(warmup, b.Duration))
		warm.run(ctx, newTally(len(t.parts)))
	}
	whole := ctx
	allocated := b.heap(whole)
	before, err := host.CPUTimes(pids)
	if err != nil {
		return nil, err
	}
	switch {
	case b.Rate > 0:
		b.open(r, b.Rate, b.Duration).run(ctx, t)
	case r.run != nil:
		ctx, cancel := context.WithTimeout(ctx, countedWithin)
		defer cancel()
		if err := r.run(ctx, b, t); err != nil && !t.cut {
			return nil, err
		}
	default:
		workers, length, within := b.Workers, b.Duration, b.Duration+b.Timeout
		if r.workers > 0 {
			workers = min(r.workers, workers)
		}
		if r.counted {
			length, within = 0, countedWithin
		}
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		closedLoop(ctx, workers, length, t, b.closed(r, workers))
	}
	after, err := host.CPUTimes(pids)
	if err != nil {
		return nil, err
	}
	out := b.newRow(r, t, before, after)
	out.perOperation(allocated, b.heap(whole))
	return &out, nil
}

// closed is the operation of a row in a closed loop.
func (b *bench) closed(r *row, workers int) operation {
	bufs := make([]bytes.Buffer, workers)
	return func(ctx context.Context, w, n int) (int, error) {
		v, part := r.verb, 0
		if r.mix != nil {
			part = r.mix.at(rand.Float64())
			v = verb(r.mix[part].Verb)
		}
		i := n*workers + w
		switch {
		case r.counted && i >= b.Objects:
			return 0, errDone
		case !r.counted:
			i = b.pick(v, w, n, workers)
		}
		err := b.operate(ctx, v, w, i, &bufs[w])
		if err != nil && v == update && ctx.Err() == nil {
			// Nobody knows what the object's version is now.
			_ = b.learn(ctx, w, i, &bufs[w])
		}
		return part, err
	}
}

var buffers = sync.Pool{New: func() any { return &bytes.Buffer{} }}

// open is a row's open loop.
func (b *bench) open(r *row, rate float64, length time.Duration) *openLoop {
	return &openLoop{rate: rate, length: length, timeout: b.Timeout, clock: measure.NewStopwatch(), pace: measure.Pace, one: func(n int) func(context.Context) (int, error) {
		v, part, i := r.verb, 0, rand.IntN(b.Objects)
		if r.mix != nil {
			part = r.mix.at(rand.Float64())
			v = verb(r.mix[part].Verb)
		}
		switch {
		case v == create:
			i = b.Objects + int(b.made.Add(1)-1)
		case v.writesOne():
			var ok bool
			if i, ok = b.pool.take(); !ok {
				return nil
			}
		}
		return func(ctx context.Context) (int, error) {
			buf := buffers.Get().(*bytes.Buffer)
			defer buffers.Put(buf)
			err := b.operate(ctx, v, n, i, buf)
			if v.writesOne() {
				b.giveBack(ctx, v, n, i, err, buf)
			}
			return part, err
		}
	}}
}

// giveBack lets others write an object. After an error of an update nobody knows the
// object's version: it is read first, behind the back of who counts the time. An object of
// which that fails is not written again.
func (b *bench) giveBack(ctx context.Context, v verb, w, i int, err error, buf *bytes.Buffer) {
	if err == nil || v != update {
		b.pool.give(i)
		return
	}
	again, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.Timeout)
	b.pool.later.Go(func() {
		defer cancel()
		if b.learn(again, w, i, &bytes.Buffer{}) == nil {
			b.pool.give(i)
		}
	})
}

// tell reports how a row stands until the returned function is called.
func (b *bench) tell(name string, t *tally) func() {
	began, was := time.Now(), int64(0)
	return b.progress.Tell(func(since time.Duration) string {
		ok, failed := t.counts()
		defer func() { was = ok }()
		return fmt.Sprintf("%s  %.1f s  %d operations, %.0f/s  %d errors", name, time.Since(began).Seconds(), ok, float64(ok-was)/since.Seconds(), failed)
	})
}

// makeNamespace makes a namespace and says whether it was there before; if so, it is
// expected to hold the objects of a run that kept them.
func (b *bench) makeNamespace(ctx context.Context, namespace string) (there bool, err error) {
	if slices.Contains(b.left, "/api/v1/namespaces/"+namespace) {
		return false, nil
	}
	var buf bytes.Buffer
	if b.target.Etcd {
		b.leave("/api/v1/namespaces/" + namespace)
		a, err := b.etcd(ctx, 0, "Range", client.EtcdRange([]byte(prefix(namespace)), end(prefix(namespace)), 1, false), &buf)
		return a.Count > 0, err
	}
	body := []byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"` + namespace + `"}}`)
	_, err = b.conn(0).Do(ctx, client.Request{Method: http.MethodPost, Path: "/api/v1/namespaces", Header: client.JSONBody, Body: body}, &buf)
	if client.Refused(err, http.StatusConflict) {
		there, err = true, nil
	}
	if err == nil {
		b.leave(b.collectionOf(namespace))
		b.leave("/api/v1/namespaces/" + namespace)
	}
	return there, err
}

// clean deletes what the run made.
func (b *bench) clean(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cleanWithin)
	defer cancel()
	b.pool.later.Wait()
	var errs []error
	var buf bytes.Buffer
	for _, path := range b.left {
		var err error
		if b.target.Etcd {
			err = b.cleanEtcd(ctx, path[len("/api/v1/namespaces/"):])
		} else {
			_, err = b.conn(0).Do(ctx, client.Request{Method: http.MethodDelete, Path: path, Header: client.Plain}, &buf)
		}
		if err != nil && !client.Refused(err, http.StatusNotFound) {
			errs = append(errs, fmt.Errorf("%s is left behind: %w", path, err))
		}
	}
	return errors.Join(errs...)
}
