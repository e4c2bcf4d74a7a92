package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore"
	"github.com/quorate/quorate/raftstore/disk"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/peer"
)

// node is one process: the parts of a quorate node that are below TLS and the
// membership manager, put together as package node does. Package node itself cannot run here: it
// listens on real ports, with TLS, and a bubble of virtual time waits for no system call.
type node struct {
	seat *seat
	name string
	host *host
	disk *drive
	end  chan struct{} // closed when the process ends

	raftPort *listener
	grpcPort *listener
	grpc     *grpc.Server
	peers    *peers
	rpc      *peer.Transport
	store    *raftstore.Store
	reader   *consistency.Reader
	api      *apiserver.Server

	ending atomic.Bool
	opened chan struct{} // closed when Open has returned or the process has ended
}

// seat is a machine: a name, a directory, and at most one process at a time.
type seat struct {
	c    *cluster
	name string
	rng  *rand.Rand
	// timing of this machine; a slow one stands for a process that is stopped now
	// and then: its timers come late.
	timing raftstore.Timing
	// joined: it has been a member, which a node writes down beside its state.
	joined atomic.Bool

	mu      sync.Mutex
	dir     string // that the next start finds
	starts  int
	down    int // how many faults keep it down
	current *node
	removed bool
	// lost: its log was lost or put back from an old copy; refused: and it has noticed.
	lost, refused bool
	// old: its directory was put back to an older copy, and it has acknowledged since what others know.
	old bool
	// drained: clients are sent elsewhere, as by a balancer that looks at /readyz.
	drained bool
}

func (s *seat) drain(drained bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drained = drained
}

func (s *seat) isDrained() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drained
}

// cluster is the raftstore.Config.Cluster of its processes. The state knows it better,
// where there is one.
func (s *seat) cluster() proto.ClusterID {
	if !s.joined.Load() {
		return ""
	}
	return "sim"
}

var builtin = sync.OnceValues(kinds.Builtin)

// start begins a process on what is in the seat's directory. It returns when the
// store is open, or an error that a person would have to look at.
func (s *seat) start() error {
	c := s.c
	s.mu.Lock()
	if s.current != nil || s.down > 0 || s.removed || s.refused || c.closed() {
		s.mu.Unlock()
		return nil
	}
	s.starts++
	n := &node{seat: s, name: s.name, host: c.net.boot(s.name), end: make(chan struct{}), opened: make(chan struct{})}
	n.disk = newDrive(s.dir, n.host, rand.New(rand.NewPCG(s.rng.Uint64(), 0)), c.profile.sync)
	s.current = n
	s.mu.Unlock()

	err := n.open()
	if errors.Is(err, errEndedOpening) {
		<-n.end // fatal judges why, and has it started again
	}
	switch {
	case n.ended():
		return nil
	case err != nil:
		n.crash(false, false)
		return fmt.Errorf("%s does not start: %w", s.name, err)
	}
	return nil
}

// errEndedOpening is open's error if fatal was called meanwhile.
var errEndedOpening = errors.New("ended while it opened its store")

// open puts the parts together, ports first.
func (n *node) open() (err error) {
	c := n.seat.c
	logger := slog.New(ear{c.logs(n.name), n.name, c.trace})
	n.raftPort, n.grpcPort = n.host.listen("raft"), n.host.listen("grpc")
	n.grpc = newGRPC()
	n.peers = newPeers(n.host)
	n.rpc = peer.NewTransportOn(layer{n.raftPort}, nodeAddress, rpcTimeout, slog.New(slog.DiscardHandler), true)
	limits := c.profile.limits
	limits.ReserveBytes = 256 << 10
	cfg := raftstore.Config{
		Dir: n.disk.dir, Node: proto.NodeID(n.name), Name: n.name, Peers: n.peers, Logger: logger,
		Transport: &narrowing{
			&doubling{Transport: n.rpc, trace: c.trace, chance: c.profile.double, after: 50 * time.Millisecond, rng: rand.New(rand.NewPCG(n.seat.rng.Uint64(), 1))},
			n.host,
		},
		Cluster: n.seat.cluster,
		Fatal:   n.fatal,
		Timing:  n.seat.timing, Limits: limits,
		TestHooks: raftstore.TestHooks{Commit: n.disk.commit, Applied: n.applied, SegmentBytes: c.profile.segment},
	}
	// Fatal ends the goroutine that calls it, Open's too.
	done := make(chan error, 1)
	go func() {
		err := errEndedOpening
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v", p)
			}
			done <- err
		}()
		n.store, err = raftstore.Open(cfg)
	}()
	err = <-done
	defer close(n.opened)
	if err != nil {
		return err
	}
	n.store.Register(n.grpc, callerOf, nil)
	n.reader = consistency.NewReader(n.store, consistency.Options{})
	registry, err := builtin()
	if err != nil {
		return err
	}
	n.api, err = apiserver.New(apiserver.Config{
		Store: n.store, Reads: n.reader,
		Kinds:         func() *kinds.Registry { return registry },
		Authenticator: admin{}, Log: slog.New(slog.DiscardHandler),
		Limits: apiserver.Limits{Bookmark: c.profile.bookmark, Write: 4 * time.Second},

		ResponseCompression: true, UnauthenticatedHTTP2DOSMitigation: true, WatchList: true,
	})
	if err != nil {
		return err
	}
	c.tasks.Go(func() { _ = n.grpc.Serve(n.grpcPort) })
	return nil
}

// admin is everybody.
type admin struct{}

func (admin) Authenticate(*http.Request) (*auth.User, error) {
	return &auth.User{Name: "sim", Groups: []string{auth.Masters, auth.Authenticated}}, nil
}

func (n *node) ended() bool {
	select {
	case <-n.end:
		return true
	default:
		return false
	}
}

// applied is the store's raftstore.TestHooks.Applied.
func (n *node) applied(l *raft.Log, r mvcc.Result) {
	if !n.ended() {
		n.seat.joined.Store(true)
		n.seat.c.trace.apply(n.name, l, r)
	}
}

// fatal is what ends the process in production, at once and for good. Here the
// caller goes on as a ghost: cut off, and the image is taken when it has let go of
// its locks. Raft's main loop would panic after a failed write of the log: it ends
// instead.
func (n *node) fatal(err error) {
	if n.host.kill(false) {
		// One that ends without a fault would do so again and again.
		again := n.seat.c.note(n, err)
		n.seat.c.tasks.Go(func() { n.crash(false, again) })
	}
	if strings.HasPrefix(err.Error(), "log: ") {
		runtime.Goexit()
	}
}

// crash ends the process: first for everybody else, then for its disk. What is
// left of it is stopped in the background, on a directory that nobody reads.
func (n *node) crash(machine, restart bool) {
	n.host.kill(machine)
	if n.ending.Swap(true) {
		return
	}
	close(n.end)
	s, c := n.seat, n.seat.c
	s.mu.Lock()
	next := filepath.Join(c.dir, fmt.Sprintf("%s.%d", s.name, s.starts))
	if err := n.disk.crash(next); err != nil {
		c.fail("%s: %v", s.name, err)
	}
	s.dir, s.current = next, nil
	s.mu.Unlock()
	c.tasks.Go(func() {
		// Whatever was under way settles first: Raft does not answer what it drops
		// when it is shut down.
		time.Sleep(100 * time.Millisecond)
		n.stop()
		_ = os.RemoveAll(n.disk.dir)
	})
	if restart {
		c.tasks.Go(func() {
			time.Sleep(restartAfter)
			s.restart()
		})
	}
}

// restartAfter is what the supervisor of a process waits, as systemd does.
const restartAfter = 200 * time.Millisecond

// restart starts the process, again and again while it cannot.
func (s *seat) restart() {
	for range 100 {
		err := s.start()
		s.mu.Lock()
		up := s.current != nil || s.down > 0 || s.removed || s.refused
		refused := s.lost && errors.Is(err, disk.ErrLogLost) || s.old && errors.Is(err, raftstore.ErrEntriesLost)
		s.refused = s.refused || refused
		s.mu.Unlock()
		if refused {
			s.c.count("refused to start: " + why(err).Error())
			return
		}
		if err == nil && up || s.c.closed() {
			return
		}
		if err != nil && !s.c.excused(err) {
			s.c.fail("%v", err)
			return
		}
		time.Sleep(restartAfter)
	}
	s.c.fail("%s cannot be started", s.name)
}

// why is the reason of a start that was refused.
func why(err error) error {
	if errors.Is(err, raftstore.ErrEntriesLost) {
		return raftstore.ErrEntriesLost
	}
	return disk.ErrLogLost
}

// stop closes what is left of a process.
func (n *node) stop() {
	<-n.opened
	if n.api != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		_ = n.api.Shutdown(ctx)
		cancel()
	}
	if n.reader != nil {
		n.reader.Close()
	}
	if n.store != nil {
		_ = n.store.Close()
	}
	n.rpc.CloseStreams()
	_ = n.rpc.Close()
	n.grpc.Stop()
	n.grpcPort.Close()
	n.peers.close()
}

// quit ends the process in good order, as SIGTERM does.
func (n *node) quit(handOver bool) {
	if handOver && n.store.IsLeader() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_ = n.store.TransferLeadership(ctx, "")
		cancel()
	}
	if n.ending.Swap(true) {
		return
	}
	close(n.end)
	n.stop()
	n.host.kill(false)
	n.seat.mu.Lock()
	n.seat.current = nil
	n.seat.mu.Unlock()
}

// running returns the seat's process if its store is open.
func (s *seat) running() *node {
	s.mu.Lock()
	n := s.current
	s.mu.Unlock()
	if n == nil {
		return nil
	}
	select {
	case <-n.opened:
		if n.api != nil && !n.ended() {
			return n
		}
	default:
	}
	return nil
}

// expected are the ends of processes that faults explain.
var expected = []error{errIO, errFull, disk.ErrHungDisk, disk.ErrEndRefused, raftstore.ErrTransferStuck, raftstore.ErrInstallLoop, raftstore.ErrDeadEntries, raftstore.ErrEntriesLost}
