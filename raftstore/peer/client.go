package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	"github.com/quorate/quorate/proto"
)

// grpcClient is the connection to one peer.
type grpcClient struct {
	addr string
	conn *grpc.ClientConn
}

// Conn returns the gRPC connection to the node id at addr, or where Found says
// that it is instead; it connects when it is first used. It is shared: do not close it. There is one per node, and when
// a node's address changes the old one is closed, which fails its calls. With
// id "" any peer may answer at addr; those connections are shared by address.
//
// Calls carry this node and its cluster in their metadata. Messages are bounded
// to 16 MiB. A lost connection is dialled again within 200 ms.
func (h *Host) Conn(id proto.NodeID, addr string) (*grpc.ClientConn, error) {
	key := id
	if id == "" {
		key = anyoneAt(addr)
	} else if !validNodeID(string(id)) {
		return nil, fmt.Errorf("connect to %s: node id %q is not valid", addr, id)
	}
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil, ErrClosed
	}
	addr = h.whereaboutsLocked(key, addr)
	old := h.clients[key]
	if old != nil && old.addr == addr {
		h.mu.Unlock()
		return old.conn, nil
	}
	conn, err := h.newClient(id, addr) // does no I/O
	if err != nil {
		h.mu.Unlock()
		return nil, fmt.Errorf("connect to node %s at %s: %w", id, addr, err)
	}
	h.clients[key] = &grpcClient{addr: addr, conn: conn}
	h.mu.Unlock()
	if old != nil {
		old.conn.Close()
	}
	return conn, nil
}

// forget closes the connection that calls to a node are made on, if there is one.
// For a member that was removed there is Expel.
func (h *Host) forget(id proto.NodeID) {
	h.mu.Lock()
	old := h.clients[id]
	delete(h.clients, id)
	h.mu.Unlock()
	if old != nil {
		old.conn.Close()
	}
}

func (h *Host) newClient(id proto.NodeID, addr string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(clientCreds{}),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return h.dialCalls(ctx, id, addr) }),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithIdleTimeout(0),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 160 * time.Millisecond,
			},
			MinConnectTimeout: h.cfg.HandshakeTimeout,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second, PermitWithoutStream: true}),
		grpc.WithInitialWindowSize(streamWindow),
		grpc.WithInitialConnWindowSize(connWindow),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithChainUnaryInterceptor(h.signUnary),
		grpc.WithChainStreamInterceptor(h.signStream),
	)
}

func (h *Host) signUnary(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	return invoke(h.signed(ctx), method, req, reply, cc, opts...)
}

func (h *Host) signStream(
	ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	return open(h.signed(ctx), desc, cc, method, opts...)
}

// signed adds to a call who makes it.
func (h *Host) signed(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, metaNode, string(h.cfg.NodeID), metaCluster, string(h.cfg.Cluster()))
}

// clientCreds takes connections that Host.dialCalls has authenticated.
type clientCreds struct{ creds }

func (clientCreds) ClientHandshake(_ context.Context, _ string, c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	known, ok := c.(*tlsConn)
	if !ok {
		c.Close()
		return nil, nil, errors.New("connection was not authenticated")
	}
	return known, authInfoOf(known.node), nil
}

func (clientCreds) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("credentials are for the client side")
}

func (c clientCreds) Clone() credentials.TransportCredentials { return c }
