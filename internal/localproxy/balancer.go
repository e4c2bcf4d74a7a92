package localproxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/loglimit"
)

// Config of a Balancer. Zero values stand for the defaults.
type Config struct {
	// Nodes are the addresses, host:port, to begin with.
	Nodes []string
	// Seeds are addresses that connections go to while none of the nodes is well: the list may be
	// of before all of them moved, or wrong, and anyone who reads it needs a node for that.
	Seeds []string
	// Itself is the address of the listener that Run is called with. It is not dialled.
	Itself net.Addr
	// Probe returns how one node is asked. Default: for /readyz.
	Probe func(address string) Probe
	// Every is how often nodes are asked, and how long an answer may take; a node that has failed
	// Failures times in a row is dead. Default: 1 s and 3 times.
	Every    time.Duration
	Failures int
	// Unready is how long a node may answer that it is not ready, while others are, before its
	// connections end. Default: 15 s, which is longer than a node takes to finish requests at its end.
	Unready time.Duration
	// MaxConnections at once. Default: 4096.
	MaxConnections int
	Log            *slog.Logger
}

// Probe asks one node.
type Probe interface {
	// Ask reports whether the node is ready. Errors: there was no answer.
	Ask(ctx context.Context) (ready bool, err error)
	// Close ends its connections.
	Close()
}

const (
	// dialTime bounds a dial of one node; there are others.
	dialTime = time.Second
	// maxNodes bounds the nodes, those that are no longer members included.
	maxNodes = 64
)

// health of a node. New connections go to the first that there is.
type health int

const (
	ready health = iota
	unknown
	unready
	failing // it did not answer, or could not be dialled, the last time
	dead
)

var healths = [...]string{"ready", "unknown", "not ready", "failing", "dead"}

func (h health) String() string { return healths[h] }

// node is one that is or was a member.
type node struct {
	address string

	// guarded by Balancer.mu
	listed   bool
	seed     bool // never changes
	health   health
	failures int
	since    time.Time // unready since then
	conns    map[*pair]struct{}
	end      context.CancelFunc // of its probes
}

// pair is a connection to a node and, if the Balancer accepted it, that of its client.
type pair struct{ client, server net.Conn }

func (p *pair) close() {
	if p.client != nil {
		_ = p.client.Close() // there is nobody to tell
	}
	_ = p.server.Close()
}

// Balancer passes connections to nodes. Safe for concurrent use.
type Balancer struct {
	cfg  Config
	warn *loglimit.Limiter
	slot chan struct{} // one for each connection that was accepted

	mu      sync.Mutex
	nodes   map[string]*node
	running context.Context // nil before Run and after it
	wg      sync.WaitGroup  // probes and connections; added to by Run, and under mu while running is not nil
}

// New returns a Balancer. It does nothing before Run.
func New(cfg Config) *Balancer {
	if cfg.Every == 0 {
		cfg.Every = time.Second
	}
	if cfg.Failures == 0 {
		cfg.Failures = 3
	}
	if cfg.Unready == 0 {
		cfg.Unready = 15 * time.Second
	}
	if cfg.MaxConnections == 0 {
		cfg.MaxConnections = 4096
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	b := &Balancer{cfg: cfg, warn: loglimit.New(time.Second), slot: make(chan struct{}, cfg.MaxConnections), nodes: map[string]*node{}}
	if cfg.Probe == nil {
		b.cfg.Probe = func(address string) Probe { return newReadyz(address, b.dialer()) }
	}
	for _, a := range cfg.Seeds {
		b.nodes[a] = &node{address: a, seed: true, health: unknown, conns: map[*pair]struct{}{}}
	}
	b.SetNodes(cfg.Nodes)
	return b
}

// Nodes are the members that connections may go to, sorted.
func (b *Balancer) Nodes() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []string
	for _, n := range b.nodes {
		if n.listed {
			all = append(all, n.address)
		}
	}
	slices.Sort(all)
	return all
}

// SetNodes says which nodes are members now. Connections to others stay until these end them: the
// same node may have had another name. The address of this proxy itself is left out. An empty list changes
// nothing: there is nothing better to try.
func (b *Balancer) SetNodes(addresses []string) {
	addresses = b.others(addresses)
	if len(addresses) == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.nodes {
		n.listed = slices.Contains(addresses, n.address)
		b.dropLocked(n)
	}
	for _, a := range addresses {
		if b.nodes[a] != nil || len(b.nodes) >= maxNodes {
			continue
		}
		b.nodes[a] = &node{address: a, listed: true, health: unknown, conns: map[*pair]struct{}{}}
		b.probeLocked(b.nodes[a])
	}
}

// others are the addresses that are not this proxy's.
func (b *Balancer) others(addresses []string) (out []string) {
	for _, a := range addresses {
		if !IsItself(b.cfg.Itself, a) {
			out = append(out, a)
		}
	}
	return out
}

// dropLocked forgets a node that is no member and no seed, and has no connections.
func (b *Balancer) dropLocked(n *node) {
	if n.listed || n.seed || len(n.conns) > 0 {
		return
	}
	delete(b.nodes, n.address)
	if n.end != nil {
		n.end()
	}
}

// Run passes what l accepts until ctx ends. It closes l and all connections.
func (b *Balancer) Run(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	b.mu.Lock()
	b.running = ctx
	for _, n := range b.nodes {
		b.probeLocked(n)
	}
	b.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() }) // Accept tells
	defer func() {
		stop()
		cancel()
		_ = l.Close() // it may be closed
		b.mu.Lock()
		b.running = nil
		for _, n := range b.nodes {
			for p := range n.conns {
				p.close()
			}
		}
		b.mu.Unlock()
		b.wg.Wait()
	}()
	for {
		c, err := l.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = c.Close() // it comes too late
			}
			return nil
		}
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return fmt.Errorf("listen: %w", err)
			}
			// Out of descriptors: some will come back.
			b.warn.Warn(b.cfg.Log, "failed to accept a connection, trying again", "err", err)
			if !sleep(ctx, 100*time.Millisecond) {
				return nil
			}
			continue
		}
		select {
		case b.slot <- struct{}{}:
		default:
			b.warn.Warn(b.cfg.Log, "closed a connection: there are too many", "max", b.cfg.MaxConnections)
			_ = c.Close() // it was not used
			continue
		}
		b.wg.Go(func() {
			defer func() { <-b.slot }()
			b.pass(ctx, c)
		})
	}
}

// pass passes the bytes of one connection.
func (b *Balancer) pass(ctx context.Context, client net.Conn) {
	n, p, err := b.dial(ctx, client)
	if err != nil {
		b.warn.Warn(b.cfg.Log, "closed a connection: no node can be dialled", "err", err)
		_ = client.Close() // nothing was said on it
		return
	}
	defer b.forget(n, p)
	var wg sync.WaitGroup
	half := func(to, from net.Conn) {
		if _, err := io.Copy(to, from); err != nil {
			p.close()
		} else if c, ok := to.(interface{ CloseWrite() error }); !ok || c.CloseWrite() != nil {
			p.close()
		}
	}
	wg.Go(func() { half(p.server, p.client) })
	half(p.client, p.server)
	wg.Wait()
}

// forget ends a connection.
func (b *Balancer) forget(n *node, p *pair) {
	p.close()
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(n.conns, p)
	if b.nodes[n.address] == n {
		b.dropLocked(n)
	}
}

// dial connects to the best node that there is. client may be nil.
func (b *Balancer) dial(ctx context.Context, client net.Conn) (*node, *pair, error) {
	errs := []error{}
	for _, n := range b.order() {
		limited, cancel := context.WithTimeout(ctx, dialTime)
		c, err := b.dialer().DialContext(limited, "tcp", n.address)
		cancel()
		if err != nil {
			if ctx.Err() != nil {
				return nil, nil, context.Cause(ctx)
			}
			errs = append(errs, err)
			b.cannotDial(n, err)
			continue
		}
		p := &pair{client, c}
		b.mu.Lock()
		over := b.running == nil
		if !over {
			n.conns[p] = struct{}{}
		}
		b.mu.Unlock()
		if over {
			_ = c.Close() // nothing was said on it
			return nil, nil, net.ErrClosed
		}
		return n, p, nil
	}
	return nil, nil, errors.Join(append(errs, errors.New("no node is left"))...)
}

// order are the members, the best one first: by their health, then by how many connections they
// have; those that are alike in no order. Seeds that are no members come behind members that are well,
// and before those that are not.
func (b *Balancer) order() []*node {
	type ranked struct {
		*node
		turn   int
		health health
		conns  int
	}
	var all []ranked
	b.mu.Lock()
	for _, n := range b.nodes {
		if !n.listed && !n.seed {
			continue
		}
		turn := 0
		if !n.listed {
			turn = 1
		}
		if n.health >= failing {
			turn += 2
		}
		all = append(all, ranked{n, turn, n.health, len(n.conns)})
	}
	b.mu.Unlock()
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	slices.SortStableFunc(all, func(x, y ranked) int {
		return cmp.Or(cmp.Compare(x.turn, y.turn), cmp.Compare(x.health, y.health), cmp.Compare(x.conns, y.conns))
	})
	out := make([]*node, len(all))
	for i, r := range all {
		out[i] = r.node
	}
	return out
}

// cannotDial notes that nobody listens at a node. What else is wrong with it is found out by probes.
func (b *Balancer) cannotDial(n *node, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := n.health
	n.health = max(was, failing)
	b.sayLocked(n, was, err, 0)
}

// Dial connects to a node, whatever the address. The connection ends when the node is dead. It works
// while Run does.
func (b *Balancer) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	n, p, err := b.dial(ctx, nil)
	if err != nil {
		return nil, err
	}
	return &dialled{p.server, sync.OnceFunc(func() { b.forget(n, p) })}, nil
}

// dialled is a connection that is forgotten when it is closed.
type dialled struct {
	net.Conn
	forget func()
}

func (d *dialled) Close() error {
	err := d.Conn.Close()
	d.forget()
	return err
}

// sleep reports whether ctx has not ended meanwhile.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
