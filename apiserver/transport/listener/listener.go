package listener

import (
	"container/list"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/transport/h2"
)

// Listener is the API's listener. It bounds how many connections there are: each
// costs a descriptor, which the log and the other nodes need too, and memory (some
// 90 kB on HTTP/2). Anybody can open one, so they are of two sorts: those of guests, on
// which no request has been authenticated yet, and those of users.
//
// Guests make room first. One address may have half of all connections as guests; above
// that its oldest goes. Above the bound of all, the oldest goes of the address that has
// the most guests: addresses take turns, and who shares an address with an
// attacker has as long to authenticate as it takes that one to open as many connections.
// The newest would be the wrong one to refuse: silent connections would keep everybody
// else out for as long as they may live.
//
// Users leave a tenth to guests, so that there is always a way in. Above that, a user who
// has more than a quarter makes room: the longest idle connection goes, which its client
// notices least, or the newest. If there is no such user, the longest idle one of all
// goes; if all are at work, the newest of the user who has the most.
type Listener struct {
	net.Listener
	limit      int // of all
	perAddress int // guests
	userLimit  int

	handshakes *handshakes
	turns      *turns        // of bulk writes
	ownTime    time.Duration // see there
	// guestAnswers bounds the answers to guests on HTTP/2 that may not have been taken yet.
	guestAnswers int
	handlers     atomic.Int64 // at work, on HTTP/2

	mu       sync.Mutex
	answers  int // of all guests' connections
	accepted uint64
	guests   *shares  // by address
	users    *shares  // by name
	idle     idleList // users' connections
}

// New bounds a listener. limit is how many connections there may be, guests and users: see Limit.
func New(l net.Listener, limit int) *Listener {
	return &Listener{
		Listener: l, limit: limit, perAddress: max(1, limit/2), userLimit: max(1, limit-max(1, limit/10)),
		handshakes: newHandshakes(), turns: newTurns(), ownTime: ownTime, guestAnswers: guestAnswers, guests: newShares(), users: newShares(),
	}
}

// Guard has a server take its connections as this listener bounds them. The server must have its
// Handler and its TLSConfig by now, and is to serve this listener, and no other. With standard it serves HTTP/2 by
// net/http, else by package h2.
func (l *Listener) Guard(s *http.Server, standard bool) {
	s.Handler = l.bounded(s.Handler)
	s.ConnState, s.ConnContext = l.state, connContext
	s.ReadHeaderTimeout = readHeaderTimeout
	// Waits for the handshake's turn; the configuration is the server's own, or the one that it would return itself.
	s.TLSConfig.GetConfigForClient = l.handshakes.before(s.TLSConfig.GetConfigForClient)
	if !standard {
		h2.Configure(s)
	}
}

// readHeaderTimeout is how long a client may take for a handshake and for a request's head.
const readHeaderTimeout = 10 * time.Second

// Limit is how many connections the API may have of those that are asked for:
// a quarter of the descriptors stays with everything else.
func Limit(asked int) int {
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) != nil {
		return asked
	}
	return int(min(uint64(asked), max(1, files.Cur/4*3)))
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := l.connection(raw)
		victim := l.add(c)
		if victim != nil {
			_ = victim.Close()
		}
		if victim != c {
			return c, nil
		}
	}
}

func (l *Listener) connection(raw net.Conn) *connection {
	return &connection{Conn: raw, in: l, raw: rawOf(raw), since: time.Now(), address: addressOf(raw)}
}

// add counts a connection. victim is the one that has to go for it, if any: already
// forgotten, and to be closed.
func (l *Listener) add(c *connection) (victim *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accepted++
	c.number = l.accepted
	l.guests.add(c.address, c)
	switch {
	case c.holder.conns.Len() > l.perAddress:
		victim = c.holder.oldest()
	case l.guests.count+l.users.count <= l.limit:
		return nil
	case l.guests.count > 1:
		victim = l.guests.most().oldest()
	case l.idle.count > 0:
		victim = l.longestIdle()
	default:
		victim = c
	}
	l.forget(victim)
	return victim
}

// longestIdle is the user's connection that is missed least: of the user who has more
// than a quarter, or of all. There must be one that is idle.
func (l *Listener) longestIdle() *connection {
	idle := &l.idle
	if h := l.crowding(); h != nil && h.idle.count > 0 {
		idle = &h.idle
	}
	return idle.longest()
}

// crowding is the user who has the most connections, if that is more than a quarter of
// what users may have. One connection crowds nobody.
func (l *Listener) crowding() *holder {
	if l.users.count == 0 {
		return nil
	}
	if h := l.users.most(); h.conns.Len() > 1 && 4*h.conns.Len() > l.userLimit {
		return h
	}
	return nil
}

// known makes a guest's connection one of a user. leaf is the certificate that the
// client has shown, or nil.
func (l *Listener) known(c *connection, user string, leaf *x509.Certificate) (victim *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.holder == nil || c.user.Load() {
		return nil
	}
	l.taken(c)
	l.guests.remove(c)
	l.users.add(user, c)
	c.idle, c.idleOf = l.idle.add(c), c.holder.idle.add(c)
	c.leaf = leaf
	c.name.Store(&user)
	c.user.Store(true)
	if l.users.count <= l.userLimit {
		return nil
	}
	most, crowd := l.users.most(), l.crowding()
	switch {
	case crowd != nil && crowd.idle.count == 0:
		victim = crowd.newest()
	case l.idle.count > 0:
		victim = l.longestIdle()
	case most.conns.Len() > c.holder.conns.Len():
		victim = most.newest()
	default:
		victim = c
	}
	l.forget(victim)
	return victim
}

// Expel closes the connections of users whose certificate is refused from now on: what is
// under way on them, watches for instance, was authenticated before.
func (l *Listener) Expel(refused func(*x509.Certificate) error) {
	var gone []*connection
	l.mu.Lock()
	for _, h := range l.users.holders {
		for e := h.conns.Front(); e != nil; e = e.Next() {
			if c := e.Value.(*connection); c.leaf != nil && refused(c.leaf) != nil {
				gone = append(gone, c)
			}
		}
	}
	l.mu.Unlock()
	for _, c := range gone {
		_ = c.Close()
	}
}

// forget no longer counts a connection; it may be called again.
func (l *Listener) forget(c *connection) {
	l.busy(c)
	l.taken(c)
	if c.holder == nil {
		return
	}
	if c.user.Load() {
		l.idle.remove(c.idle)
		c.holder.idle.remove(c.idleOf)
		l.users.remove(c)
	} else {
		l.guests.remove(c)
	}
}

// state is the server's ConnState.
func (l *Listener) state(conn net.Conn, s http.ConnState) {
	c := connectionOf(conn)
	if c == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if s == http.StateIdle {
		c.noteIdle(conn.(*tls.Conn))
	} else {
		c.noteIdle(nil)
	}
	switch {
	case c.user.Load():
		l.moved(c, s)
	case s == http.StateIdle:
		l.taken(c)
	}
}

// moved notes whether a user's connection is idle. It needs l.mu.
func (l *Listener) moved(c *connection, s http.ConnState) {
	switch {
	case c.holder == nil:
	case s == http.StateIdle && !c.isIdle:
		c.isIdle = true
		l.idle.idle(c.idle)
		c.holder.idle.idle(c.idleOf)
	case s != http.StateIdle:
		l.busy(c)
	}
}

// busy notes that a connection is not idle; it may be called again.
func (l *Listener) busy(c *connection) {
	if c.isIdle {
		c.isIdle = false
		l.idle.busy(c.idle)
		c.holder.idle.busy(c.idleOf)
	}
}

// addressOf is whose guest a connection is: an IPv4 address, or the /64 of an IPv6
// one, which is what a single host has.
func addressOf(conn net.Conn) string {
	from, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return ""
	}
	address := from.AddrPort().Addr().Unmap()
	if address.Is6() {
		return netip.PrefixFrom(address.WithZone(""), 64).Masked().String()
	}
	return address.String()
}

func connectionOf(conn net.Conn) *connection {
	outer, ok := conn.(*tls.Conn)
	if !ok {
		return nil
	}
	c, _ := outer.NetConn().(*connection)
	return c
}

// NetConn is the connection that was accepted.
func (c *connection) NetConn() net.Conn { return c.Conn }

type connectionKey struct{}

type connKey struct{}

// WithConn is the context of a connection's requests, for http.Server.ConnContext: Conn finds it there. Servers
// that are guarded have it.
func WithConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// Conn is the connection on which a request has come; nil: its context does not say. It is net/http's to read,
// write and close.
func Conn(ctx context.Context) net.Conn {
	conn, _ := ctx.Value(connKey{}).(net.Conn)
	return conn
}

// connContext is the server's ConnContext: requests know their connection.
func connContext(ctx context.Context, conn net.Conn) context.Context {
	ctx = WithConn(auth.WithConnection(ctx), conn)
	if c := connectionOf(conn); c != nil {
		c.untaken = labelled(c)
		return context.WithValue(ctx, connectionKey{}, c)
	}
	return ctx
}

// Authenticator finds the user of a request, as package apiserver wants it.
type Authenticator interface {
	// Authenticate returns the user, or an error that becomes 401.
	Authenticate(r *http.Request) (*auth.User, error)
}

// Greet is an Authenticator that notes the user of each connection of a guarded server. refuse is
// what Expel is given when more certificates are refused; nil: there are none.
func Greet(a Authenticator, refuse func(*x509.Certificate) error) Authenticator {
	return greeter{a, refuse}
}

// greeter is what Greet returns.
type greeter struct {
	Authenticator
	// refuse is asked again when a connection is known for what it is: from there on
	// Expel finds it.
	refuse func(*x509.Certificate) error
}

// Authenticate implements Authenticator.
func (g greeter) Authenticate(r *http.Request) (*auth.User, error) {
	u, err := g.Authenticator.Authenticate(r)
	if err != nil || u.Name == auth.Anonymous {
		return u, err
	}
	c, ok := r.Context().Value(connectionKey{}).(*connection)
	if !ok || c.user.Load() {
		return u, nil
	}
	var leaf *x509.Certificate
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		leaf = r.TLS.PeerCertificates[0]
	}
	if victim := c.in.known(c, u.Name, leaf); victim != nil {
		_ = victim.Close()
	}
	if leaf != nil && g.refuse != nil && g.refuse(leaf) != nil {
		return nil, auth.ErrUnauthorized
	}
	return u, nil
}

// connection is one of them.
type connection struct {
	net.Conn
	in      *Listener
	since   time.Time
	address string          // as addressOf has it
	number  uint64          // in the order of acceptance
	untaken context.Context // of goroutines whose answers wait; written before there are requests
	// broken: a write has failed, and perhaps half of it is out.
	broken atomic.Bool
	writes atomic.Int32 // under way

	outer      *tls.Conn // while it has no request; guarded by in.mu
	idleSince  time.Time // guarded by in.mu
	halfClosed bool      // by End; guarded by in.mu
	// user: a request on it was authenticated. Written under in.mu.
	user atomic.Bool
	// name is the user's, once there is one.
	name atomic.Pointer[string]

	raw   syscall.RawConn // nil: it has no descriptor, and its writes wait for no turn
	turn  turn
	keeps atomic.Bool // turn.keep

	keys    []string               // of the tokens of its requests; guarded by in.mu
	lastKey atomic.Pointer[string] // of the last one

	leaf    *x509.Certificate // that the user has shown; guarded by in.mu
	answers int               // to a guest, since there was no stream; guarded by in.mu
	holder  *holder           // nil: not counted any more; guarded by in.mu
	place   *list.Element     // among the holder's; guarded by in.mu
	isIdle  bool              // of a user's; guarded by in.mu
	idle    *list.Element     // in in.idle, of a user's; guarded by in.mu
	idleOf  *list.Element     // in the holder's; guarded by in.mu

	// shaking: it has a place among the handshakes. Written under their lock, as ended
	// and waits.
	shaking atomic.Bool
	// again: the client was asked for another hello, which was not answered yet.
	again atomic.Bool
	ended bool
	waits *waiter
}

// Read implements net.Conn. After a HelloRetryRequest, what comes waits for its turn among
// the handshakes. There is no place for a client that is waited for: one that sends a part
// of its hello would keep it.
func (c *connection) Read(b []byte) (int, error) {
	if !c.again.Load() {
		return c.Conn.Read(b)
	}
	c.in.handshakes.done(c)
	n, err := c.Conn.Read(b)
	if n > 0 && err == nil {
		err = c.in.handshakes.turn(c)
	}
	return n, err
}

// Write implements net.Conn. After a write that failed there is no other: crypto/tls
// says goodbye on a connection whose deadline cut a record, and the client would read that
// as the record's rest and complain of a forgery instead of an end.
func (c *connection) Write(b []byte) (int, error) {
	if c.shaking.Load() {
		c.again.Store(isRetry(b))
		c.in.handshakes.done(c) // the answer is there
	}
	if c.broken.Load() {
		return 0, net.ErrClosed
	}
	c.writes.Add(1)
	var n int
	var err error
	switch {
	case c.raw == nil:
		n, err = c.Conn.Write(b)
	case len(b) <= ownRecord:
		n, err = c.writeOwn(b)
	case len(b) >= bulkWrite || c.keeps.Load():
		n, err = c.writeInTurns(b)
	default:
		n, err = c.Conn.Write(b)
	}
	c.writes.Add(-1)
	if err != nil {
		c.broken.Store(true)
	}
	return n, err
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.in.mu.Lock()
	c.in.forget(c)
	c.in.mu.Unlock()
	c.in.handshakes.end(c)
	c.Release()
	return c.Conn.Close()
}
