package peer

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/loglimit"
	"github.com/quorate/quorate/proto"
)

const (
	// maxIdle streams are kept per peer. Raft uses up to three at once: votes or
	// entries, heartbeats, and one while a pipeline winds down.
	maxIdle = 3
	// rpcTimeout bounds an exchange that carries no snapshot.
	rpcTimeout = 10 * time.Second
	// snapshotStall bounds how long a snapshot may make no progress.
	snapshotStall = 30 * time.Second
	// restoreBase and restorePerMiB bound how long a follower may take to load a
	// snapshot that it has received.
	restoreBase   = time.Minute
	restorePerMiB = time.Second
)

// Transport is the raft.Transport between nodes: wire.go's frames on the
// streams of a Layer. It differs from raft.NetworkTransport in what would be
// unsafe or wasteful for us:
//
//   - A message of an earlier term than the entries that it carries is neither sent
//     nor taken: see checkTerms.
//   - There is no heartbeat fast path: heartbeats go through Raft's main loop
//     like every other message. Handled on the side they change the term under
//     a deposed leader's hands, whose next write then lands in its log with the
//     new leader's term, and the state machines differ for ever.
//   - A failed answer in a pipeline is not handed to Raft, which would count it
//     as contact with a follower and prolong the leader's lease.
//   - Votes belong to nodes, not to addresses: see EncodePeer.
//   - Peers are dialled by node id: another node at the address is refused.
//   - What is read and sent at once is bounded in bytes.
//   - A snapshot goes on behind a connection that breaks: see resume.go.
//   - A call on an idle stream that turns out to be dead is made again on a
//     fresh one. Raft's messages may arrive twice.
//   - Close ends inbound streams as well.
type Transport struct {
	layer   raft.StreamLayer
	failed  func(raft.ServerID) // a message had no answer
	address func(raft.ServerID, raft.ServerAddress) raft.ServerAddress
	timeout time.Duration
	logger  *slog.Logger
	logs    *loglimit.Limiter

	consumer chan raft.RPC
	done     chan struct{} // closed by Close
	// admitting is closed by Admit; nil: everybody is admitted.
	admitting chan struct{}
	admit     atomic.Pointer[func(req any, id raft.ServerID, addr raft.ServerAddress) error]
	wg        sync.WaitGroup

	// installing is the term of the snapshot that Raft takes, or of the last one; urgent counts
	// the requests that should not wait for it.
	installing atomic.Uint64
	urgent     atomic.Int64

	mu       sync.Mutex
	closed   bool
	incoming map[string]*incoming // snapshots that can be resumed
	cut      chan struct{}        // closed by CloseStreams, which makes another one
	idle     map[raft.ServerAddress][]*stream
	open     map[net.Conn]struct{} // every stream, in both directions
}

var (
	_ raft.Transport   = (*Transport)(nil)
	_ raft.WithPreVote = (*Transport)(nil)
	_ raft.WithClose   = (*Transport)(nil)
)

// NewTransport starts the Raft transport of a Host, on its Layer. Nodes are dialled
// at the address in Raft's configuration, or where Found says that they are.
// Closing the transport closes the Layer; a Host can have a new transport after
// that.
func NewTransport(h *Host) *Transport {
	t := newTransport(h.Layer(), func(id raft.ServerID, configured raft.ServerAddress) raft.ServerAddress {
		return nodeAddress(proto.NodeID(id), h.whereabouts(proto.NodeID(id), string(configured)))
	}, rpcTimeout, h.cfg.Logger)
	if of := h.cfg.Traffic; of != nil {
		t.failed = func(id raft.ServerID) { of(proto.NodeID(id)).Failed() }
	}
	t.admitting = make(chan struct{})
	t.wg.Go(t.accept)
	return t
}

// NewTransportOn starts a transport on any stream layer: over pipes, a whole
// cluster runs in virtual time. address turns a node's id and configured
// address into what the layer dials; timeout bounds dialling and each exchange
// that carries no snapshot.
//
// With admitting, Admit decides whose requests Raft sees, and nothing is handed to it before.
func NewTransportOn(layer raft.StreamLayer, address func(raft.ServerID, raft.ServerAddress) raft.ServerAddress, timeout time.Duration, logger *slog.Logger, admitting bool) *Transport {
	t := newTransport(layer, address, timeout, logger)
	if admitting {
		t.admitting = make(chan struct{})
	}
	t.wg.Go(t.accept)
	return t
}

func newTransport(layer raft.StreamLayer, address func(raft.ServerID, raft.ServerAddress) raft.ServerAddress, timeout time.Duration, logger *slog.Logger) *Transport {
	t := &Transport{
		layer:    layer,
		failed:   func(raft.ServerID) {},
		address:  address,
		timeout:  timeout,
		logger:   logger,
		logs:     loglimit.New(time.Second),
		consumer: make(chan raft.RPC),
		done:     make(chan struct{}),
		idle:     map[raft.ServerAddress][]*stream{},
		open:     map[net.Conn]struct{}{},
		incoming: map[string]*incoming{},
		cut:      make(chan struct{}),
	}
	return t
}

// Consumer returns the requests of other nodes.
func (t *Transport) Consumer() <-chan raft.RPC { return t.consumer }

// LocalAddr returns the advertised address.
func (t *Transport) LocalAddr() raft.ServerAddress {
	return raft.ServerAddress(t.layer.Addr().String())
}

// SetHeartbeatHandler does nothing, which leaves the fast path off.
func (t *Transport) SetHeartbeatHandler(func(raft.RPC)) {}

// AppendEntries sends entries and waits for the answer. A batch of more than
// 8 MiB is cut, in req itself: Raft sends the rest with the next request.
func (t *Transport) AppendEntries(id raft.ServerID, to raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	trim(req)
	boundCommit(req)
	return t.call(id, to, kindAppendEntries, req, resp)
}

// RequestVote asks for a vote.
func (t *Transport) RequestVote(id raft.ServerID, to raft.ServerAddress, req *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	return t.call(id, to, kindRequestVote, req, resp)
}

// RequestPreVote asks whether a vote would be given. Without this method Raft
// would silently do without pre-votes.
func (t *Transport) RequestPreVote(id raft.ServerID, to raft.ServerAddress, req *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	return t.call(id, to, kindRequestPreVote, req, resp)
}

// TimeoutNow has a node campaign at once.
func (t *Transport) TimeoutNow(id raft.ServerID, to raft.ServerAddress, req *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	return t.call(id, to, kindTimeoutNow, req, resp)
}

// wantedEvery is how often Deliver looks whether its request is still wanted.
const wantedEvery = 5 * time.Millisecond

// Deliver hands a request of this node's own to its Raft, as if it had come on a stream,
// and reports whether Raft has taken it. Until Raft's main loop has the time, wanted is
// asked again and again; the request is withdrawn when it says no, or when ctx ends. A
// request on a stream cannot be withdrawn: Raft sees it whenever it comes to it. The
// answer is dropped. wanted must not wait.
func (t *Transport) Deliver(ctx context.Context, req any, wanted func() bool) bool {
	rpc := raft.RPC{Command: req, RespChan: make(chan raft.RPCResponse, 1)}
	t.urgent.Add(1)
	defer t.urgent.Add(-1)
	again := time.NewTicker(wantedEvery)
	defer again.Stop()
	for wanted() {
		select {
		case t.consumer <- rpc:
			return true
		case <-again.C:
		case <-ctx.Done():
			return false
		case <-t.done:
			return false
		}
	}
	return false
}

// DeliverAtOnce is Deliver if Raft's main loop takes the request without waiting.
func (t *Transport) DeliverAtOnce(req any) bool {
	select {
	case t.consumer <- raft.RPC{Command: req, RespChan: make(chan raft.RPCResponse, 1)}:
		return true
	default:
		return false
	}
}

// patientWriter renews the deadline with each step.
type patientWriter struct{ s *stream }

func (w *patientWriter) Write(p []byte) (int, error) {
	if err := w.s.SetWriteDeadline(time.Now().Add(snapshotStall)); err != nil {
		return 0, err
	}
	return w.s.Write(p)
}

// call makes one exchange.
func (t *Transport) call(id raft.ServerID, to raft.ServerAddress, k kind, req, resp any) error {
	if err := checkTerms(req); err != nil {
		return err
	}
	addr := t.address(id, to)
	s, err := t.take(addr)
	if err != nil {
		t.failed(id)
		return err
	}
	err = s.call(t.timeout, k, req, resp)
	if stale := s.used && err != nil && !isRemote(err) && !errors.Is(err, os.ErrDeadlineExceeded); stale {
		// The peer was restarted since; its other idle streams are dead too.
		t.drop(s)
		t.dropIdle(addr)
		if s, err = t.dial(addr); err != nil {
			t.failed(id)
			return err
		}
		err = s.call(t.timeout, k, req, resp)
	}
	if err != nil && !isRemote(err) {
		t.failed(id)
		t.drop(s)
		return err
	}
	t.putBack(s)
	return err
}

// take returns an idle stream, or a new one.
func (t *Transport) take(addr raft.ServerAddress) (*stream, error) {
	t.mu.Lock()
	if list := t.idle[addr]; len(list) > 0 {
		s := list[len(list)-1]
		t.idle[addr] = list[:len(list)-1]
		t.mu.Unlock()
		return s, nil
	}
	t.mu.Unlock()
	return t.dial(addr)
}

func (t *Transport) dial(addr raft.ServerAddress) (*stream, error) {
	conn, err := t.layer.Dial(addr, t.timeout)
	if err != nil {
		return nil, err
	}
	if !t.register(conn) {
		conn.Close()
		return nil, raft.ErrTransportShutdown
	}
	return newStream(conn, addr), nil
}

func (t *Transport) putBack(s *stream) {
	s.used = true
	t.mu.Lock()
	_, open := t.open[s.Conn] // false after CloseStreams
	if list := t.idle[s.target]; open && len(list) < maxIdle {
		t.idle[s.target] = append(list, s)
		t.mu.Unlock()
		return
	}
	t.mu.Unlock()
	t.drop(s)
}

func (t *Transport) drop(s *stream) {
	t.mu.Lock()
	delete(t.open, s.Conn)
	t.mu.Unlock()
	s.Close()
}

func (t *Transport) dropIdle(addr raft.ServerAddress) {
	t.mu.Lock()
	list := t.idle[addr]
	delete(t.idle, addr)
	t.mu.Unlock()
	for _, s := range list {
		t.drop(s)
	}
}

// register notes an open connection; it is false once the transport is closed.
func (t *Transport) register(c net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.open[c] = struct{}{}
	return true
}

// cutOff is closed when the streams of now are closed by CloseStreams.
func (t *Transport) cutOff() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cut
}

// CloseStreams closes the streams in both directions; new ones can be opened. No snapshot
// goes on behind it.
func (t *Transport) CloseStreams() {
	t.mu.Lock()
	close(t.cut)
	t.cut = make(chan struct{})
	open := t.open
	t.open, t.idle = map[net.Conn]struct{}{}, map[raft.ServerAddress][]*stream{}
	t.mu.Unlock()
	for c := range open {
		c.Close()
	}
}

// Close ends the transport, its layer, all streams and goroutines. Requests
// that Raft has not answered get no answer. The transport also ends, by itself,
// when its layer is closed.
func (t *Transport) Close() error {
	err := t.layer.Close()
	t.end()
	t.wg.Wait()
	return err
}

// end closes everything but does not wait.
func (t *Transport) end() {
	t.mu.Lock()
	if !t.closed {
		t.closed = true
		close(t.done)
	}
	t.mu.Unlock()
	t.CloseStreams()
}
