package cluster

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Link is a TCP connection's way to a node that a test can make long: what
// others send to the node arrives later, its answers at once. A node that
// advertises a link's address as its peer address hears from its leader late,
// while its own questions to others take another way. It listens on loopback.
type Link struct {
	Addr string // what to advertise

	target   string
	delay    atomic.Int64 // time.Duration
	silent   atomic.Bool
	silence  context.Context // ends with Silence
	silenced context.CancelFunc
	listener net.Listener
	ctx      context.Context
	stop     context.CancelFunc
	wg       sync.WaitGroup
}

// linkBuffer bounds what is under way on a link, in reads of linkRead bytes.
const (
	linkBuffer = 4096
	linkRead   = 16 << 10
)

// NewLink starts a link to target without a delay. Close it.
func NewLink(target string) (*Link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("link to %s: %w", target, err)
	}
	ctx, stop := context.WithCancel(context.Background())
	l := &Link{Addr: listener.Addr().String(), target: target, listener: listener, ctx: ctx, stop: stop}
	l.silence, l.silenced = context.WithCancel(ctx)
	l.wg.Go(l.accept)
	return l, nil
}

// Delay sets how late what is sent from now on arrives.
func (l *Link) Delay(d time.Duration) { l.delay.Store(int64(d)) }

// Delayed delays the link until the end of the test.
func (l *Link) Delayed(t testing.TB, d time.Duration) {
	l.Delay(d)
	t.Cleanup(func() { l.Delay(0) })
}

// Silence ends what goes over the link now; connections that begin later are
// accepted and get no answer. Nobody can dial the node any more, while it can dial
// others.
func (l *Link) Silence() {
	l.silent.Store(true)
	l.silenced()
}

// Close ends all connections and returns when that is done.
func (l *Link) Close() error {
	l.stop()
	err := l.listener.Close()
	l.wg.Wait()
	return err
}

func (l *Link) accept() {
	for {
		from, err := l.listener.Accept()
		if err != nil {
			return // closed
		}
		l.wg.Go(func() { l.connect(from) })
	}
}

// connect serves one connection until either side ends it.
func (l *Link) connect(from net.Conn) {
	if l.silent.Load() {
		<-l.ctx.Done()
		from.Close()
		return
	}
	ctx, cancel := context.WithCancel(l.silence)
	defer cancel()
	to, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", l.target)
	if err != nil {
		from.Close()
		return
	}
	stop := context.AfterFunc(ctx, func() {
		from.Close()
		to.Close()
	})
	defer stop()
	packets := make(chan packet, linkBuffer)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer cancel()
		l.read(ctx, from, packets)
	})
	wg.Go(func() {
		defer cancel()
		write(ctx, packets, to)
	})
	wg.Go(func() {
		defer cancel()
		buf := make([]byte, linkRead)
		for {
			n, err := to.Read(buf)
			if n > 0 {
				if _, err := from.Write(buf[:n]); err != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	wg.Wait()
}

// packet is what one read returned, and when it is to arrive.
type packet struct {
	bytes  []byte
	arrive time.Time
}

func (l *Link) read(ctx context.Context, from net.Conn, packets chan<- packet) {
	for {
		buf := make([]byte, linkRead)
		n, err := from.Read(buf)
		if n > 0 {
			select {
			case packets <- packet{buf[:n], time.Now().Add(time.Duration(l.delay.Load()))}:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func write(ctx context.Context, packets <-chan packet, to net.Conn) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var p packet
		select {
		case p = <-packets:
		case <-ctx.Done():
			return
		}
		timer.Reset(time.Until(p.arrive))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		if _, err := to.Write(p.bytes); err != nil {
			return
		}
	}
}
