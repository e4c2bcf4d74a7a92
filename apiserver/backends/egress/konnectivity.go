package egress

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/apiserver/pkg/server/egressselector/metrics"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"
)

// konnectivity is a Konnectivity server on a Unix socket: anyone who may open it may use it.
type konnectivity struct{ socket string }

// dial makes a connection through an own tunnel, as the library has them: one each.
func (k *konnectivity) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if err := checkTarget(address); err != nil {
		return nil, err
	}
	return observed(ctx, metrics.ProtocolGRPC, metrics.TransportUDS, k.open, func(ctx context.Context, t tunnel) (net.Conn, error) {
		// Not all that the library does meanwhile ends with the context.
		stop := context.AfterFunc(ctx, t.end)
		conn, err := t.DialContext(ctx, network, address)
		if !stop() && err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			t.end()
			return nil, fmt.Errorf("egress proxy %s: connect to %s: %w", k.socket, address, err)
		}
		return konnectivityConn{conn, t.end, peerAddress{network, address}}, nil
	})
}

// tunnel is the library's, and what ends it.
type tunnel struct {
	client.Tunnel
	end context.CancelFunc
}

func (k *konnectivity) open(ctx context.Context) (tunnel, error) {
	// The tunnel outlives the dial.
	life, end := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, end)
	// Not grpc.WithBlock, as upstream has it: that tries again until the time is over where there is no
	// server. Without it the first stream waits for the connection, and fails with it.
	made, err := client.CreateSingleUseGrpcTunnelWithContext(ctx, life, "passthrough:///konnectivity",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", k.socket)
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		end()
		return tunnel{}, fmt.Errorf("egress proxy %s: %w", k.socket, err)
	}
	return tunnel{made, end}, nil
}

// konnectivityConn is the library's connection with what it lacks: addresses, and an end of its
// tunnel that waits for nobody's answer.
type konnectivityConn struct {
	net.Conn
	end context.CancelFunc
	to  peerAddress
}

// Close tells the proxy. The library waits for its answer, for 10 s; nobody else does.
func (c konnectivityConn) Close() error {
	go func() {
		defer c.end()
		_ = c.Conn.Close() // there is nobody to tell
	}()
	return nil
}

func (c konnectivityConn) LocalAddr() net.Addr  { return peerAddress{c.to.network, "konnectivity"} }
func (c konnectivityConn) RemoteAddr() net.Addr { return c.to }

// peerAddress is one that was asked for.
type peerAddress struct{ network, address string }

func (a peerAddress) Network() string { return a.network }
func (a peerAddress) String() string  { return a.address }
