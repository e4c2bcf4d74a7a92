package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/apiserver/controllers"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore"
	"github.com/quorate/quorate/test/judges/history"
	"github.com/quorate/quorate/test/judges/wire"
)

// cluster is machines on a network, and what is known of the run.
type cluster struct {
	profile profile
	rng     *rand.Rand // used while the cluster is set up; not shared
	net     *network
	trace   *trace
	seen    wire.Seen
	dir     string
	began   time.Time
	output  io.Writer // log lines of nodes; nil for none

	tasks  sync.WaitGroup
	ending chan struct{}

	mu     sync.Mutex
	seats  []*seat
	faults []history.Fault
	broken []string
	ends   map[string]int // why processes ended by themselves
}

func newCluster(p profile, seed uint64, dir string, output io.Writer) *cluster {
	rng := rand.New(rand.NewPCG(seed, 1))
	return &cluster{
		profile: p, rng: rng, dir: dir, output: output,
		net:   newNetwork(rand.New(rand.NewPCG(seed, 2)), p.network),
		trace: newTrace(),
		began: time.Now(), ending: make(chan struct{}), ends: map[string]int{},
	}
}

func (c *cluster) now() time.Duration { return time.Since(c.began) }

func (c *cluster) closed() bool {
	select {
	case <-c.ending:
		return true
	default:
		return false
	}
}

// fail notes that something is wrong with the cluster.
func (c *cluster) fail(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.broken) < 20 {
		c.broken = append(c.broken, fmt.Sprintf("%v: ", c.now().Round(time.Microsecond))+fmt.Sprintf(format, args...))
	}
}

// note is told why a process ended by itself, and reports whether a fault explains it.
func (c *cluster) note(n *node, err error) bool {
	for _, e := range expected {
		if errors.Is(err, e) && (n.seat.isOld() || e != raftstore.ErrEntriesLost) {
			c.count(e.Error())
			c.mu.Lock()
			now := c.now()
			c.faults = append(c.faults, history.Fault{Kind: "fatal", Nodes: []string{n.name}, Begin: now, End: now + restartAfter, Detail: err.Error(), Restart: true})
			c.mu.Unlock()
			return true
		}
	}
	c.fail("%s ended itself: %v", n.name, err)
	return false
}

// count counts why processes ended by themselves or did not start.
func (c *cluster) count(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ends[why]++
}

// excused reports whether a fault explains that a node does not start.
func (c *cluster) excused(err error) bool { return errors.Is(err, errIO) || errors.Is(err, errFull) }

func (c *cluster) logs(node string) slog.Handler {
	if c.output == nil {
		return nil
	}
	return slog.NewTextHandler(c.output, nil).WithAttrs([]slog.Attr{slog.String("node", node)})
}

// add gives the cluster a machine with an empty directory.
func (c *cluster) add(name string, timing raftstore.Timing) *seat {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &seat{
		c: c, name: name, timing: timing, dir: filepath.Join(c.dir, name+".0"),
		rng: rand.New(rand.NewPCG(uint64(len(c.seats)), c.rng.Uint64())),
	}
	c.seats = append(c.seats, s)
	return s
}

// nodeAddress is what is dialled: as over TLS, another node at the address is refused.
func nodeAddress(id raft.ServerID, addr raft.ServerAddress) raft.ServerAddress {
	return raft.ServerAddress(id) + "@" + addr
}

// form starts the first machines and makes them a cluster.
func (c *cluster) form(ctx context.Context) error {
	if err := c.bootstrap(); err != nil {
		return err
	}
	if err := c.ready(ctx); err != nil {
		return err
	}
	for i := range c.profile.nonvoters {
		s := c.add(fmt.Sprintf("x%d", i+1), c.profile.timing)
		if err := s.start(); err != nil {
			return err
		}
		if err := c.member(ctx, "add", s.name); err != nil {
			return err
		}
	}
	return nil
}

// bootstrap starts the voters and gives them their first configuration.
func (c *cluster) bootstrap() error {
	var servers []raftstore.Server
	for i := range c.profile.voters {
		s := c.add(fmt.Sprintf("n%d", i+1), c.profile.timingOf(i))
		servers = append(servers, raftstore.Server{ID: proto.NodeID(s.name), Address: s.name, Voter: true})
		if err := s.start(); err != nil {
			return err
		}
	}
	for _, s := range c.all() {
		if err := s.running().store.Bootstrap(servers, "sim"); err != nil {
			return err
		}
	}
	return nil
}

// ready waits until there is a leader, and makes the namespaces as a node does.
func (c *cluster) ready(ctx context.Context) error {
	for {
		if l := c.leader(); l != nil && controllers.EnsureNamespaces(ctx, l.api.Objects()) == nil {
			return nil
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("no leader in a healthy cluster: %w", err)
		}
	}
}

func (c *cluster) all() []*seat {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*seat(nil), c.seats...)
}

// members are the machines that have not been removed.
func (c *cluster) members() []*seat {
	var out []*seat
	for _, s := range c.all() {
		s.mu.Lock()
		if !s.removed {
			out = append(out, s)
		}
		s.mu.Unlock()
	}
	return out
}

// anySeat is a machine to talk to.
func (c *cluster) anySeat(rng *rand.Rand) *seat {
	m := c.members()
	if len(m) == 0 {
		return nil
	}
	return m[rng.IntN(len(m))]
}

// leader returns the newest node that is ready to lead, or nil.
func (c *cluster) leader() *node {
	var found *node
	var term uint64
	for _, s := range c.members() {
		if n := s.running(); n != nil && n.store.IsLeader() {
			if t := n.store.Status().Term; found == nil || t > term {
				found, term = n, t
			}
		}
	}
	return found
}

// member changes the membership: add, promote, demote or remove.
func (c *cluster) member(ctx context.Context, change, name string) error {
	var err error
	for ctx.Err() == nil {
		l := c.leader()
		if l == nil {
			if sleep(ctx, 50*time.Millisecond) != nil {
				break
			}
			continue
		}
		id := proto.NodeID(name)
		switch change {
		case "add":
			err = l.store.AddNonvoter(ctx, id, c.net.address(name), 0)
		case "promote":
			err = l.store.AddVoter(ctx, id, c.net.address(name), 0)
		case "demote":
			err = l.store.DemoteVoter(ctx, id, 0)
		case "remove":
			err = l.store.RemoveServer(ctx, id, 0)
		}
		if err == nil {
			return nil
		}
		if sleep(ctx, 100*time.Millisecond) != nil {
			break
		}
	}
	return errors.Join(fmt.Errorf("%s %s: %w", change, name, context.Cause(ctx)), err)
}

// recovery is how long a healed cluster has until all nodes are alike.
const recovery = 90 * time.Second

// settle heals everything and waits until all members have applied the same.
func (c *cluster) settle() {
	c.net.heal()
	for _, s := range c.members() {
		s.mu.Lock()
		s.down = 0
		n := s.current
		s.mu.Unlock()
		if n != nil {
			n.host.pause(false)
			n.disk.set(func(d *drive) { d.fail, d.slow = nil, 0 })
		}
	}
	for _, s := range c.members() {
		c.tasks.Go(s.restart)
	}
	c.strangers()
	ctx, cancel := context.WithTimeout(context.Background(), recovery)
	defer cancel()
	// A leader that has not learnt yet that two of three have moved loses its quorum, and nobody could
	// be elected: the members would have to be dialled where they were. Membership's search finds them.
	c.net.found.Store(true)
	c.announce(ctx)
	c.foundOld(ctx)
	c.retire(ctx)
	same := 0
	for same < 3 {
		if sleep(ctx, 50*time.Millisecond) != nil {
			c.fail("the healed cluster did not come to rest within %v: %s", recovery, c.positions())
			return
		}
		if c.alike() {
			same++
		} else {
			same = 0
		}
	}
}

// strangers ends machines that are no members: those whose change did not come to
// its end.
func (c *cluster) strangers() {
	ctx, cancel := context.WithTimeout(context.Background(), recovery)
	defer cancel()
	for {
		if l := c.leader(); l != nil {
			_, servers := l.store.Members()
			if l.store.IsLeader() {
				known := map[string]bool{}
				for _, m := range servers {
					known[string(m.ID)] = true
				}
				for _, s := range c.members() {
					if !known[s.name] {
						s.leave()
					}
				}
				return
			}
		}
		if sleep(ctx, 50*time.Millisecond) != nil {
			return
		}
	}
}

// leave ends a machine for good.
func (s *seat) leave() {
	s.mu.Lock()
	s.removed = true
	current := s.current
	s.mu.Unlock()
	if current != nil {
		<-current.opened
		current.quit(false)
	}
}

// alike reports whether there is a leader and all members have applied the same.
func (c *cluster) alike() bool {
	l := c.leader()
	if l == nil {
		return false
	}
	at := l.store.Applied()
	for _, s := range c.members() {
		n := s.running()
		if n == nil || n.store.Applied() != at || n.store.Behind() > 0 {
			return false
		}
	}
	return true
}

func (c *cluster) positions() string {
	text := ""
	for _, s := range c.members() {
		if n := s.running(); n != nil {
			st := n.store.Status()
			text += fmt.Sprintf("%s %s term %d commit %d applied %d last %d; ", s.name, st.Role, st.Term, st.Commit, st.Applied, st.LastLogIndex)
		} else {
			text += s.name + " is down; "
		}
	}
	return text
}

// states are what the members hold.
func (c *cluster) states() []history.State {
	var out []history.State
	for _, s := range c.members() {
		if n := s.running(); n != nil {
			state := n.store.State()
			m := state.Mark()
			out = append(out, history.State{
				Node: s.name, Revision: uint64(m.Applied), Hash: fmt.Sprintf("%016x", m.Hash), Floor: uint64(state.Floor()),
			})
		}
	}
	return out
}

// close stops all processes and waits for everything that was started.
func (c *cluster) close() {
	close(c.ending)
	for _, s := range c.all() {
		s.mu.Lock()
		n := s.current
		s.mu.Unlock()
		if n != nil {
			c.tasks.Go(func() {
				<-n.opened
				n.quit(false)
			})
		}
	}
	c.tasks.Wait()
}
