package peer

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/quorate/quorate/proto"
)

// WatchConn keeps the gRPC connection to a peer open and calls lost from the
// calling goroutine each time that it ends after it was ready, and when it cannot
// be made from the beginning: a peer may end before its first connection is up,
// and nothing else would tell. Until the connection is ready again lost is not
// called twice. It returns when
// ctx ends, the Host is closed, or the node's connection was replaced (another
// address) or forgotten.
//
// A process that was killed shows here within a millisecond or so, since its
// kernel closes the connection; one that is paused or cut off shows after the
// keepalive, in 15 s.
func (h *Host) WatchConn(ctx context.Context, id proto.NodeID, addr string, lost func()) {
	conn, err := h.Conn(id, addr)
	if err != nil {
		return
	}
	WatchClient(ctx, conn, lost)
}

// WatchClient is WatchConn for a connection of one's own.
func WatchClient(ctx context.Context, conn *grpc.ClientConn, lost func()) {
	reported := false
	for {
		state := conn.GetState()
		switch state {
		case connectivity.Shutdown:
			return
		case connectivity.Ready:
			reported = false
		case connectivity.TransientFailure:
			if !reported {
				reported = true
				lost()
			}
		case connectivity.Idle:
			conn.Connect()
		}
		if !conn.WaitForStateChange(ctx, state) {
			return
		}
		if state == connectivity.Ready {
			reported = true
			lost()
		}
	}
}

// Refused reports that nobody listens at addr although the machine is there: a
// fresh dial is refused at once, so the process that listened has ended. It is
// false in all other cases, doubtful ones included (no answer, no route, ctx
// ended). It takes at most 100 ms beyond the network's answer.
func (h *Host) Refused(ctx context.Context, addr string) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.ctx, cancel)()
	// A dying process may still take a connection into its backlog and reset
	// it. So may a living one that has too many connections; only the next dial
	// tells them apart.
	for range 5 {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return errors.Is(err, syscall.ECONNREFUSED)
		}
		c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		_, err = c.Read(make([]byte, 1))
		c.Close()
		if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			return false // it is being served: a TLS server waits for us to speak
		}
	}
	return false
}
