package node

import (
	"context"
	"time"
)

// stop is the ordered shutdown: no new work, leadership to another, let what
// runs finish.
func (n *Node) stop() {
	n.log.Info("stopping")
	n.systemd.stopping()
	n.health.Shutdown()
	wrong := n.refusing.reason() != nil
	// Load balancers that watch /readyz have this long to send clients elsewhere.
	if !wrong {
		pause(context.Background(), n.cfg.ShutdownDelay)
	}
	ctx, cancel := context.WithTimeout(context.Background(), n.cfg.ShutdownGrace)
	defer cancel()
	if wrong {
		n.endRequests(ctx) // no watch may go on
	}
	// Leadership first: while it moves, requests still find a leader through us.
	t, cancelTransfer := context.WithTimeout(ctx, transferBound)
	if err := n.manager.StepDown(t); err != nil {
		n.log.Warn("leadership was not handed over", "err", err)
	}
	cancelTransfer()
	if n.cfg.ShutdownRetryAfter {
		// New requests get 429 and Retry-After, as long as others are not finished.
		n.endRequests(ctx)
		if err := n.api.Drain(ctx); err != nil {
			n.log.Warn("not all requests have ended", "err", err)
		}
	}
	n.endConnections(ctx)
}

// endConnections ends the requests and the connections of the API. Clients learn that their
// connections end (GOAWAY) before their watches do. In the other
// order they would ask for the next watch here, be refused, and lose a second.
func (n *Node) endConnections(ctx context.Context) {
	shutdown, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- n.http.Shutdown(shutdown)
		stop()
	}()
	pause(ctx, goingAway)
	n.endRequests(ctx)
	if n.dialers.tunnels != nil {
		n.dialers.tunnels.Close() // requests that used them have had their time
	}
	if n.listener.End(shutdown) == nil {
		stop() // there is nothing to wait for; Shutdown would see that later
		<-ended
	} else if err := n.shutdownError(ended); err != nil {
		n.log.Warn("not all requests have ended", "err", err)
	}
	_ = n.http.Close()
}

// shutdownError is what the server's Shutdown returns, which has done that, or whose time is over. Then it may still wait
// for a client that does not read.
func (n *Node) shutdownError(ended <-chan error) error {
	select {
	case err := <-ended:
		return err
	default:
		n.listener.Abandon()
		return <-ended
	}
}

// endRequests refuses new requests and ends the watches.
func (n *Node) endRequests(ctx context.Context) {
	if err := n.api.Shutdown(ctx); err != nil {
		n.log.Warn("not all watches have ended", "err", err)
	}
}

// goingAway is the time for the news that connections end (GOAWAY in HTTP/2) to
// reach the clients. Until then all requests are served.
const goingAway = 100 * time.Millisecond

// transferBound is how long leadership may take to change hands at shutdown.
const transferBound = 3 * time.Second

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
