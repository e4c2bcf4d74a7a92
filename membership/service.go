package membership

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/proto"
)

// caller returns the node that calls; said must be the same one if it is given.
func (m *Manager) caller(ctx context.Context, said *proto.Member) (proto.NodeID, error) {
	id, ok := m.opt.Caller(ctx)
	if !ok {
		return "", status.Error(codes.Unauthenticated, "the caller is not a peer")
	}
	if said != nil {
		if err := checkMember(said); err != nil {
			return "", status.Error(codes.InvalidArgument, err.Error())
		}
		if said.NodeId != string(id) {
			return "", status.Errorf(codes.PermissionDenied, "the certificate is that of node %s, the message speaks for %.130q", id, said.NodeId)
		}
	}
	return id, nil
}

// Hello implements proto.MembershipServer.
func (m *Manager) Hello(ctx context.Context, req *proto.HelloRequest) (*proto.HelloResponse, error) {
	if req.Self == nil {
		return nil, status.Error(codes.InvalidArgument, "no member given")
	}
	id, err := m.caller(ctx, req.Self)
	if err != nil {
		return nil, err
	}
	if err := m.checkCallerIsNotRemoved(id, req.ClusterId); err != nil {
		return nil, toStatus(err)
	}
	expect := m.opt.BootstrapExpect
	resp := &proto.HelloResponse{Self: m.self(), BootstrapExpect: uint32(expect)}
	if m.id.Cluster() == "" && req.ClusterId == "" {
		known := m.discovered.known()
		// A node that is not to bootstrap, or differently, is not recorded.
		if expect > 0 && int(req.BootstrapExpect) == expect && req.Self.NodeId != string(m.id.ID()) {
			var err error
			if known, err = m.discovered.add(req.Self); err != nil {
				return nil, status.Error(codes.ResourceExhausted, err.Error())
			}
		}
		// known is nil if the node has chosen its cluster since.
		if resp.Known = known; known != nil {
			return resp, nil
		}
	}
	if req.ClusterId != "" && req.ClusterId == string(m.id.Cluster()) {
		m.found(req.Self) // a member that searches: see search
		if m.raft.IsLeader() {
			m.noteCaller(id)
		}
	}
	_, members, err := m.members()
	if err != nil {
		return nil, toStatus(err)
	}
	resp.ClusterId, resp.Known = string(m.id.Cluster()), members
	return resp, nil
}

// Join implements proto.MembershipServer.
func (m *Manager) Join(ctx context.Context, req *proto.JoinRequest) (*proto.JoinResponse, error) {
	if req.Self == nil {
		return nil, status.Error(codes.InvalidArgument, "no member given")
	}
	if _, err := m.caller(ctx, req.Self); err != nil {
		return nil, err
	}
	if m.id.Cluster() == "" {
		return nil, status.Error(codes.Unavailable, "this node is not part of a cluster yet")
	}
	members, err := m.change(ctx, &proto.ChangeRequest{Kind: proto.ChangeKind_CHANGE_ADD, Member: req.Self})
	if err != nil {
		return nil, toStatus(err)
	}
	return &proto.JoinResponse{ClusterId: string(m.id.Cluster()), Members: members}, nil
}

// Change implements proto.MembershipServer. Only members may call it.
func (m *Manager) Change(ctx context.Context, req *proto.ChangeRequest) (*proto.ChangeResponse, error) {
	id, err := m.caller(ctx, nil)
	if err != nil {
		return nil, err
	}
	conf := m.raft.Members()
	if _, ok := conf.Find(id); !ok {
		return nil, status.Errorf(codes.PermissionDenied, "node %s %s", id, ErrNotMember)
	}
	if req.Hops > maxHops {
		return nil, status.Error(codes.InvalidArgument, fmt.Sprintf("forwarded %d times; the limit is %d", req.Hops, maxHops))
	}
	members, err := m.change(ctx, req)
	if err != nil {
		return nil, toStatus(err)
	}
	return &proto.ChangeResponse{Members: members}, nil
}
