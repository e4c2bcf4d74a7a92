package tunnel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"
	"github.com/quorate/quorate/apiserver/backends/egress"
)

// Config of a Server.
type Config struct {
	// Allowed reports whether the user who has sent a request for a tunnel is still known by the same
	// credential, and may still open it. The request's context ends after askTime, and with the tunnel.
	Allowed func(r *http.Request) bool
	// Opened is called with the request of each tunnel that was opened, and what it returns when that has ended. Nil: nobody
	// wants to know.
	Opened func(r *http.Request) (ended func())
	// Direct dials what no tunnel leads to.
	Direct egress.DialFunc
	// Recheck is how often that is asked. Default: a minute.
	Recheck time.Duration
	Log     *slog.Logger
}

const (
	// maxTunnels bounds those of nodes, and maxOffers those that offer networks; maxNetworks how many
	// one may offer.
	maxTunnels, maxOffers, maxNetworks = 5000, 64, 16
	recheck                            = time.Minute
	// askTime bounds the question whether a tunnel may stay, for which a node without a quorum waits.
	askTime = 5 * time.Second
)

// Server has the tunnels to one node. Safe for concurrent use.
type Server struct {
	cfg Config

	mu     sync.Mutex
	nodes  map[string]*session
	offers map[string]*session // by the agent's name
	closed bool
	wg     sync.WaitGroup // added to under mu while not closed
}

// NewServer returns a Server without tunnels.
func NewServer(cfg Config) *Server {
	if cfg.Recheck == 0 {
		cfg.Recheck = recheck
	}
	if cfg.Opened == nil {
		cfg.Opened = func(*http.Request) func() { return func() {} }
	}
	return &Server{cfg: cfg, nodes: map[string]*session{}, offers: map[string]*session{}}
}

// session is one tunnel.
type session struct {
	*yamux.Session
	name     string
	from     net.Addr
	networks []netip.Prefix
	streams  chan struct{}           // one for each connection
	opening  chan struct{}           // one for each that is being made
	agent    string                  // the word of the agent's process, empty if it has none
	next     atomic.Pointer[session] // the one that has taken its place
}

// OwnNode reports whether a path is that of the tunnel of a user's own node.
func OwnNode(user, path string) bool {
	name, ok := strings.CutPrefix(user, "system:node:")
	return ok && name != "" && path == nodesPath+name
}

// ServeHTTP makes a tunnel of a request that was authorized.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x, table, limit, err := s.newSession(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if r.ProtoMajor != 1 || r.Header.Get("Upgrade") != protocol || r.ContentLength != 0 {
		w.Header().Set("Upgrade", protocol)
		http.Error(w, "a tunnel is an upgrade of an HTTP/1.1 request to "+protocol, http.StatusUpgradeRequired)
		return
	}
	s.mu.Lock()
	room := s.roomLocked(table, limit, x)
	s.mu.Unlock()
	if !room {
		http.Error(w, "too many tunnels", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Connection", "Upgrade")
	w.Header().Set("Upgrade", protocol)
	w.WriteHeader(http.StatusSwitchingProtocols)
	conn, in, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return // the client is gone
	}
	if in.Reader.Buffered() > 0 {
		_ = conn.Close() // it does not speak the protocol
		return
	}
	x.from = conn.RemoteAddr()
	if x.Session, err = yamux.Client(&guarded{ReadWriteCloser: conn}, config()); err != nil {
		_ = conn.Close() // it is nobody's
		return
	}
	if !s.add(table, limit, x) {
		_ = x.Close() // there is nobody to tell
		return
	}
	ended := s.cfg.Opened(r)
	go func() {
		defer s.wg.Done()
		defer ended()
		// Values without the end of the request, which is over.
		s.watch(r.WithContext(context.WithoutCancel(r.Context())), table, x)
	}()
}

// newSession is what a request asks for, and where it goes.
func (s *Server) newSession(r *http.Request) (x *session, table map[string]*session, limit int, err error) {
	x = &session{streams: make(chan struct{}, maxStreams), opening: make(chan struct{}, maxOpening), agent: agentOf(r)}
	if name, ok := strings.CutPrefix(r.URL.Path, nodesPath); ok {
		x.name = name
		if name == "" || len(name) > 253 || strings.Contains(name, "/") {
			return nil, nil, 0, errors.New("no name of a node")
		}
		return x, s.nodes, maxTunnels, nil
	}
	if r.URL.Path != networksPath {
		return nil, nil, 0, fmt.Errorf("%s is no tunnel", r.URL.Path)
	}
	q := r.URL.Query()
	if x.name = q.Get("agent"); x.name == "" || len(x.name) > 253 {
		return nil, nil, 0, errors.New("no name of an agent")
	}
	all := q["network"]
	if len(all) == 0 || len(all) > maxNetworks {
		return nil, nil, 0, fmt.Errorf("%d networks: must be from 1 to %d", len(all), maxNetworks)
	}
	for _, text := range all {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, nil, 0, err
		}
		x.networks = append(x.networks, p.Masked())
	}
	return x, s.offers, maxOffers, nil
}

// agentOf is the word of an agent's process. It is kept for as long as the tunnel is: one that is longer than agents
// make it is as none.
func agentOf(r *http.Request) string {
	word := r.Header.Get(agentHeader)
	if len(word) > maxAgentWord {
		return ""
	}
	return strings.Clone(word) // not with the rest of the headers
}

// roomLocked reports whether there is room for a tunnel.
func (s *Server) roomLocked(table map[string]*session, limit int, x *session) bool {
	return !s.closed && (len(table) < limit || table[x.name] != nil)
}

// add makes a tunnel the one of its name. The one before ends: mostly it was cut, and its agent has opened
// it again.
func (s *Server) add(table map[string]*session, limit int, x *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.roomLocked(table, limit, x) {
		return false // others have come meanwhile
	}
	if before := table[x.name]; before != nil {
		before.next.Store(x)
		go before.yield() // ends after tellTime
	}
	table[x.name] = x
	s.wg.Add(1)
	return true
}

// watch waits until a tunnel ends, and ends it when its user may not have it any more, or when the agent
// opens a stream, which is not the protocol.
func (s *Server) watch(r *http.Request, table map[string]*session, x *session) {
	path := r.URL.Path
	s.cfg.Log.Info("a tunnel was opened", "path", path, "name", x.name, "networks", x.networks, "from", x.from)
	opened := make(chan struct{})
	go func() { // ends with the session
		defer close(opened)
		if stream, err := x.AcceptStream(); err == nil {
			_ = stream.Close() // the session ends
		}
	}()
	tick := time.NewTicker(s.cfg.Recheck)
	defer tick.Stop()
	why := "closed"
	for over := false; !over; {
		select {
		case <-x.CloseChan():
			over = true
		case <-opened:
			if !x.IsClosed() {
				why = "the agent has opened a stream"
			}
			over = true
		case <-tick.C:
			if !s.allowed(r, x) && !x.IsClosed() {
				over, why = true, "its user's credential has ended, or does not allow it any more"
			}
		}
	}
	_ = x.Close() // there is nobody to tell
	<-opened
	s.mu.Lock()
	if table[x.name] == x {
		delete(table, x.name)
	}
	s.mu.Unlock()
	next := x.next.Load()
	switch {
	case next == nil || why != "closed":
		s.cfg.Log.Info("a tunnel has ended", "path", path, "name", x.name, "from", x.from, "why", why)
	case x.sameAgent(next):
		s.cfg.Log.Info("a tunnel has ended", "path", path, "name", x.name, "from", x.from, "why", "its agent has opened it again", "by", next.from)
	default:
		s.cfg.Log.Warn("a tunnel has ended", "path", path, "name", x.name, "from", x.from, "why", anotherAgent, "by", next.from)
	}
}

func (x *session) sameAgent(as *session) bool { return x.agent != "" && x.agent == as.agent }

// yield ends a tunnel whose place another has taken. It says so to an agent that is another one, and waits
// for a moment until that knows.
func (x *session) yield() {
	defer x.Close() // there is nobody to tell
	next := x.next.Load()
	if x.sameAgent(next) {
		return
	}
	end := time.AfterFunc(tellTime, func() { _ = x.Close() }) // whatever waits ends with that
	defer end.Stop()
	stream, err := x.OpenStream()
	if err != nil {
		return // it has ended
	}
	host, _, _ := net.SplitHostPort(next.from.String()) // without the port, which is another one each time
	if writeText(stream, nil, replacedPrefix+anotherAgent+", from "+host) == nil {
		_ = readAnswer(stream) // it says nothing
	}
	_ = stream.Close() // the session ends
}

// allowed reports whether a tunnel may stay. Nobody waits for the answer when it has ended.
func (s *Server) allowed(r *http.Request, x *session) bool {
	ctx, cancel := context.WithTimeout(r.Context(), askTime)
	defer cancel()
	go func() { // ends with ctx
		select {
		case <-x.CloseChan():
			cancel()
		case <-ctx.Done():
		}
	}()
	return s.cfg.Allowed(r.WithContext(ctx))
}

// Close ends all tunnels and waits for them.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	for _, table := range []map[string]*session{s.nodes, s.offers} {
		for _, x := range table {
			_ = x.Close() // there is nobody to tell
		}
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// Dial connects to an address: through the tunnel of the node that the context names, else through one
// whose networks contain the address, else directly.
func (s *Server) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return s.dial(ctx, network, address, s.cfg.Direct)
}

// Has reports whether a node has opened a tunnel.
func (s *Server) Has(node string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[node] != nil
}

// Or is Dial for callers that dial directly in a way of their own, such as one that refuses addresses.
func (s *Server) Or(direct egress.DialFunc) egress.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return s.dial(ctx, network, address, direct)
	}
}

func (s *Server) dial(ctx context.Context, network, address string, direct egress.DialFunc) (net.Conn, error) {
	for _, x := range s.route(ctx, address) {
		conn, err := x.dial(ctx, address)
		if err == nil || !x.IsClosed() || ctx.Err() != nil {
			return conn, err
		}
		// The tunnel has ended meanwhile. Another may be there, and the network of this host.
		s.cfg.Log.Debug("cannot dial through a tunnel", "name", x.name, "address", address, "err", err)
	}
	return direct(ctx, network, address)
}

// route returns the tunnels that lead to an address, those to try first in front.
func (s *Server) route(ctx context.Context, address string) (out []*session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if node := egress.NodeFrom(ctx); node != "" {
		if x := s.nodes[node]; x != nil {
			return []*session{x}
		}
	}
	if len(s.offers) == 0 {
		return nil
	}
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil // a name
	}
	ip := to.Addr().Unmap()
	for _, x := range s.offers {
		for _, p := range x.networks {
			if p.Contains(ip) {
				out = append(out, x)
				break
			}
		}
	}
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// dial has the agent dial.
func (x *session) dial(ctx context.Context, address string) (_ net.Conn, err error) {
	if len(address) > maxText {
		return nil, fmt.Errorf("an address of %d bytes", len(address))
	}
	ctx, cancel := context.WithTimeout(ctx, 2*dialTime)
	defer cancel()
	for _, slot := range []chan struct{}{x.streams, x.opening} {
		select {
		case slot <- struct{}{}:
		case <-ctx.Done():
			if slot == x.opening {
				<-x.streams
			}
			return nil, context.Cause(ctx)
		case <-x.CloseChan():
			if slot == x.opening {
				<-x.streams
			}
			return nil, errEnded
		}
	}
	defer func() {
		<-x.opening
		if err != nil {
			<-x.streams
		}
	}()
	stream, err := x.OpenStream()
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = stream.SetDeadline(time.Unix(1, 0)) }) // it takes every time
	if err = writeText(stream, nil, address); err == nil {
		err = readAnswer(stream)
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = stream.Close() // it is of no use
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("tunnel %s: connect to %s: %w", x.name, address, err)
	}
	return &conn{stream, target(address), sync.OnceFunc(func() { <-x.streams })}, nil
}

// conn is a connection through a tunnel.
type conn struct {
	*yamux.Stream
	to   target
	free func()
}

func (c *conn) Close() error {
	defer c.free()
	return c.Stream.Close()
}

func (c *conn) RemoteAddr() net.Addr { return c.to }

// target is an address that the agent was asked for.
type target string

func (target) Network() string  { return "tcp" }
func (t target) String() string { return string(t) }
