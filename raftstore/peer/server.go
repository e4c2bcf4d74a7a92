package peer

import (
	"context"
	"errors"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/proto"
)

const (
	metaCluster = "quorate-cluster"
	metaNode    = "quorate-node"

	// maxMessage bounds a gRPC message in either direction.
	maxMessage = 16 << 20
	// Windows of fixed size. Fixed, because the estimator that would adapt them
	// sends a ping per burst of data, which costs more than it gains between
	// servers that keep a handful of connections.
	streamWindow, connWindow = 4 << 20, 16 << 20
)

// clusterless are the methods that work across clusters: how a node finds out
// that there is one, and how it becomes a member.
var clusterless = map[string]bool{
	"/quorate.v1.Membership/Hello": true,
	"/quorate.v1.Membership/Join":  true,
}

// nameless are the methods that a node may call before it knows its cluster: a leader that has added it sends it
// entries before that.
var nameless = map[string]bool{"/quorate.v1.Peer/Acknowledged": true}

func (h *Host) newServer() *grpc.Server {
	return grpc.NewServer(
		grpc.Creds(serverCreds{}),
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if err := h.checkCall(ctx, info.FullMethod); err != nil {
				return nil, err
			}
			return next(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if err := h.checkCall(s.Context(), info.FullMethod); err != nil {
				return err
			}
			return next(srv, s)
		}),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxSendMsgSize(maxMessage),
		grpc.MaxHeaderListSize(16<<10),
		grpc.MaxConcurrentStreams(1024),
		grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(connWindow),
		grpc.ConnectionTimeout(h.cfg.HandshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)
}

// GRPC returns the gRPC server of the port. Register services before Serve.
func (h *Host) GRPC() *grpc.Server { return h.grpc }

// Serve begins to serve calls and returns. Calls that arrived earlier have
// waited; calling it again does nothing.
func (h *Host) Serve() {
	h.serveOnce.Do(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.closed {
			return
		}
		h.wg.Go(func() {
			if err := h.grpc.Serve(h.calls); err != nil && h.ctx.Err() == nil {
				h.cfg.Fatal(err)
			}
		})
	})
}

// checkCall refuses a call whose metadata contradicts the certificate, one of a node
// that was removed, and one from another cluster.
func (h *Host) checkCall(ctx context.Context, method string) error {
	caller, ok := CallerOf(ctx)
	if !ok {
		return status.Error(codes.Unauthenticated, "the caller is not a peer")
	}
	if said := one(ctx, metaNode); said != string(caller) {
		return status.Errorf(codes.PermissionDenied, "%s says %q, the certificate is that of node %s", metaNode, said, caller)
	}
	if clusterless[method] {
		return nil
	}
	if err := h.checkRemoved(caller); err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	ours := h.cfg.Cluster()
	if ours == "" {
		return nil
	}
	if theirs := one(ctx, metaCluster); theirs != string(ours) && (theirs != "" || !nameless[method]) {
		return status.Errorf(codes.FailedPrecondition, "this node is in cluster %s, the caller %s in %q", ours, caller, theirs)
	}
	return nil
}

// one returns the value of a key, or "" unless there is exactly one.
func one(ctx context.Context, key string) string {
	if v := metadata.ValueFromIncomingContext(ctx, key); len(v) == 1 {
		return v[0]
	}
	return ""
}

// CallerOf returns the node that makes the call which a handler's ctx belongs
// to, as its certificate names it. It is false outside of calls to this port.
func CallerOf(ctx context.Context) (proto.NodeID, bool) {
	p, ok := grpcpeer.FromContext(ctx)
	if !ok {
		return "", false
	}
	info, ok := p.AuthInfo.(authInfo)
	return info.node, ok
}

// authInfo says who is at the other end of a gRPC connection.
type authInfo struct {
	credentials.CommonAuthInfo
	node proto.NodeID
}

func (authInfo) AuthType() string { return "quorate-peer" }

func authInfoOf(node proto.NodeID) authInfo {
	return authInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}, node}
}

// serverCreds takes connections that Host.welcome has authenticated.
type serverCreds struct{ notClient }

func (serverCreds) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	in, ok := c.(*inbound)
	if !ok {
		return nil, nil, errors.New("connection was not authenticated")
	}
	return in, authInfoOf(in.node), nil
}

func (serverCreds) Clone() credentials.TransportCredentials { return serverCreds{} }

type notClient struct{ creds }

func (notClient) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("credentials are for the server side")
}

// creds is what both sides have in common.
type creds struct{}

func (creds) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

func (creds) OverrideServerName(string) error { return nil }
