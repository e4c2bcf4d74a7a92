//go:build linux && amd64

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quorate/quorate/test/judges/check"
	"github.com/quorate/quorate/test/judges/history"
	"github.com/quorate/quorate/test/judges/wire"
)

// Mix is the load of a scenario; zero fields mean the defaults.
type Mix struct {
	Clients, Watchers, Keys int
	Writes                  float64       // share of operations
	Think                   time.Duration // mean pause of a client between operations
	WatchLife               time.Duration // mean time after which a watcher cuts its watch
	Padding                 int           // bytes of an object at most, besides its value
	Back                    int           // revisions that exact reads and watches reach back
	MostRecent              bool          // reads are Most Recent only
	Pinned                  bool          // a client asks one node only
}

func (m Mix) withDefaults() Mix {
	set := func(p *int, n int) {
		if *p == 0 {
			*p = n
		}
	}
	set(&m.Clients, 8)
	set(&m.Watchers, 8)
	set(&m.Keys, 16)
	set(&m.Padding, 1000)
	set(&m.Back, 100)
	if m.Writes == 0 {
		m.Writes = 0.5
	}
	if m.Think == 0 {
		m.Think = 15 * time.Millisecond
	}
	if m.WatchLife == 0 {
		m.WatchLife = 3 * time.Second
	}
	return m
}

// Scenario is one way to treat a cluster badly.
type Scenario struct {
	Name  string
	About string
	Shape Shape
	Mix   Mix
	// Length is how long the faults last.
	Length time.Duration
	// Nemesis makes the faults until ctx ends, and returns what the product did
	// wrong under them. What it leaves broken is healed afterwards.
	Nemesis func(ctx context.Context, r *run) error
	// ShortHistory: the window is shorter than the faults, so watchers may have to
	// list again, and the log is recorded while it lasts.
	ShortHistory bool
	// Must names what has to be counted at least once: without it the run was no test.
	Must []string
}

// Result is one run of a scenario.
type Result struct {
	Scenario string           `json:"scenario"`
	Seed     uint64           `json:"seed"`
	History  *history.History `json:"-"`
	Verdict  *check.Verdict   `json:"verdict"`
	// Failures are what went wrong besides the verdict.
	Failures []string       `json:"failures"`
	Counts   map[string]int `json:"counts"` // what else was counted
	Took     time.Duration  `json:"took"`
}

// OK reports whether the run showed nothing wrong.
func (r *Result) OK() bool { return len(r.Failures) == 0 && r.Verdict != nil && r.Verdict.OK() }

// run is one run of a scenario.
type run struct {
	c     *Cluster
	s     Scenario
	mix   Mix
	rng   *rand.Rand // of the nemesis
	dir   string
	begin time.Time
	from  uint64 // revision before the first operation
	seen  wire.Seen
	acked atomic.Int64

	mu       sync.Mutex
	asked    []*Node // the nodes that clients ask
	faults   []history.Fault
	failures []string
	counts   map[string]int
}

func (r *run) now() time.Duration { return time.Since(r.begin) }

// fail notes something that must not be.
func (r *run) fail(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.failures) < 50 {
		r.failures = append(r.failures, fmt.Sprintf("at %s: ", r.now().Round(time.Millisecond))+fmt.Sprintf(format, args...))
	}
}

func (r *run) count(what string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[what] += n
}

// fault notes the beginning of a fault; the function it returns notes the end.
func (r *run) fault(kind, detail string, restart bool, nodes ...*Node) (over func()) {
	f := history.Fault{Kind: kind, Detail: detail, Restart: restart, Begin: r.now()}
	for _, n := range nodes {
		f.Nodes = append(f.Nodes, n.Name)
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		f.End = r.now()
		r.faults = append(r.faults, f)
	}
}

func (r *run) targets() []*Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

func (r *run) setTargets(nodes ...*Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = slices.Clone(nodes)
}

func (r *run) anyNode(rng *rand.Rand) *Node {
	nodes := r.targets()
	return nodes[rng.IntN(len(nodes))]
}

func (r *run) node(name string) *Node {
	for _, n := range r.c.Nodes() {
		if n.Name == name {
			return n
		}
	}
	return nil
}

func (r *run) key(rng *rand.Rand) string { return fmt.Sprintf("cm-%02d", rng.IntN(r.mix.Keys)) }

// Play runs a scenario once, with the binary, in an empty directory. An error
// means that the run says nothing.
func Play(ctx context.Context, s Scenario, seed uint64, binary, dir string) (_ *Result, err error) {
	began := time.Now()
	if s.ShortHistory == slices.ContainsFunc(s.Shape.Settings, func(f string) bool { return strings.HasPrefix(f, "--history-retention=9m") }) {
		return nil, fmt.Errorf("%s: a history of 9m, or ShortHistory", s.Name)
	}
	c, err := NewCluster(dir, binary, s.Shape)
	if err != nil {
		return nil, err
	}
	end := sync.OnceValue(c.Close)
	defer func() { err = errors.Join(err, end()) }()
	r := &run{c: c, s: s, mix: s.Mix.withDefaults(), rng: rand.New(rand.NewPCG(seed, 0)), dir: dir, begin: time.Now(),
		counts: map[string]int{}}
	c.surprise = func(n *Node, err error) { r.fail("%s ended: %v\n%s", n.Name, err, n.lastWords()) }
	if err := c.Start(ctx); err != nil {
		return nil, err
	}
	r.setTargets(c.Nodes()...)
	c.Joined = r.targets
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	h, err := r.play(ctx, seed)
	if err != nil {
		return nil, err
	}
	if err := end(); err != nil { // the judges need the processors
		return nil, err
	}
	res := &Result{Scenario: s.Name, Seed: seed, History: h, Counts: r.counts, Took: time.Since(began)}
	// Without the log the judges would have to guess what happened, for hours.
	if len(h.Log) > 0 {
		res.Verdict = check.All(h)
	} else {
		r.fail("there is no log: not judged")
		res.Verdict = &check.Verdict{Name: s.Name, Seed: seed}
	}
	if h.Relists > 0 {
		r.fail("%d watchers had to list again, though the history was long enough", h.Relists)
	}
	for _, what := range s.Must {
		if r.counts[what] == 0 {
			r.fail("nothing was counted as %q: the run was no test of that", what)
		}
	}
	res.Failures = r.failures
	return res, nil
}

// prepare makes the namespace; the log is read from there on.
func (r *run) prepare(ctx context.Context) error {
	k := newClient(r.c)
	defer k.close()
	n := r.c.Nodes()[0]
	return await(ctx, 20*time.Second, "a namespace", func() error {
		a, err := k.call(ctx, n, wire.Request{Method: "POST", Path: "/api/v1/namespaces",
			Body: []byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"` + namespace + `"}}`)})
		if err != nil {
			return err
		}
		if a.Code != 201 && a.Code != 409 {
			return fmt.Errorf("%d: %s", a.Code, a.Body)
		}
		var list wire.Object
		if err := n.getJSON(ctx, collection, &list); err != nil {
			return err
		}
		r.from = list.Revision()
		r.seen.Note(history.Item{Revision: r.from})
		return nil
	})
}

// play makes load and faults, heals, and collects what happened.
func (r *run) play(ctx context.Context, seed uint64) (*history.History, error) {
	load, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	var callers []*caller
	var watchers []*watcher
	for i := range r.mix.Clients {
		k := newCaller(r, i+1, rand.New(rand.NewPCG(seed, uint64(i)+1)), r.mix)
		if r.mix.Pinned {
			k.home = r.c.Nodes()[i%len(r.c.Nodes())]
			if i >= len(r.c.Nodes()) && r.mix.MostRecent { // one writer per node is enough
				k.mix.Writes = 0
			}
		}
		callers = append(callers, k)
		wg.Go(func() { k.loop(load) })
	}
	for i := range r.mix.Watchers {
		w := newWatcher(r, 100+i, rand.New(rand.NewPCG(seed, uint64(i)+100)))
		watchers = append(watchers, w)
		wg.Go(func() { w.loop(load) })
	}
	var recorders []*tail
	if r.s.ShortHistory {
		for range 3 {
			t := newTail(r, nil)
			recorders = append(recorders, t)
			wg.Go(func() { t.follow(load, 0) })
		}
	}
	err := r.awaitAcks(ctx, 30, time.Minute)
	if err == nil {
		faults, cancel := context.WithTimeout(ctx, r.s.Length)
		err = r.s.Nemesis(faults, r)
		cancel()
		if err != nil {
			r.fail("%v", err)
		}
		if err = r.heal(ctx); err == nil {
			err = r.awaitAcks(ctx, 30, time.Minute)
		}
	}
	stop()
	wg.Wait()
	h := &history.History{Name: r.s.Name, Seed: seed, LogFrom: r.from, Faults: r.faults}
	for _, k := range callers {
		h.Ops = append(h.Ops, k.Ops...)
	}
	for _, w := range watchers {
		h.Watches = append(h.Watches, w.Watches...)
		if r.s.ShortHistory {
			h.Overtaken += w.relists
		} else {
			h.Relists += w.relists
		}
	}
	if err != nil {
		r.fail("it did not recover: %v", err)
	}
	r.collect(ctx, h, recorders)
	return h, nil
}

// awaitAcks waits until some more writes were acknowledged.
func (r *run) awaitAcks(ctx context.Context, n int64, within time.Duration) error {
	goal := r.acked.Load() + n
	return await(ctx, within, "acknowledged writes", func() error {
		if got := r.acked.Load(); got < goal {
			return fmt.Errorf("%d of %d", got, goal)
		}
		return nil
	})
}

// heal takes all faults away, starts what is down, and waits until all is well.
func (r *run) heal(ctx context.Context) error {
	if r.c.Switch != nil {
		r.c.Switch.Heal()
	}
	for _, n := range r.targets() {
		if n.disk != nil {
			n.disk.Heal()
		}
		if n.clock != nil {
			if err := n.clock.Set(0); err != nil {
				return err
			}
		}
		if err := n.Signal(syscall.SIGCONT); err != nil {
			return err
		}
		if p := n.current(); p != nil && p.expected.Load() {
			_, _ = n.Gone(2 * time.Second) // it may be on its way, or have survived
		}
		n.Trust()
		if !n.Alive() {
			if err := n.Start(); err != nil {
				return err
			}
		}
	}
	var errs []error
	for _, n := range r.targets() {
		errs = append(errs, n.AwaitReady(ctx, time.Minute))
	}
	return errors.Join(errs...)
}

// checkLogs looks for what no node may ever print.
func (r *run) checkLogs() {
	for _, n := range r.c.Nodes() {
		b, err := os.ReadFile(n.logFile())
		if err != nil {
			r.fail("%v", err)
			continue
		}
		for _, bad := range []string{"panic: ", "fatal error: ", "WARNING: DATA RACE"} {
			if at := strings.Index(string(b), bad); at >= 0 {
				r.fail("%s printed: %.2000s", n.Name, b[at:])
			}
		}
	}
}
