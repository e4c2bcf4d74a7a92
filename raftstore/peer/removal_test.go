package peer

import (
	"errors"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

// removable starts host "b" that knows of a removal when gone is set.
func removable(t *testing.T, a *authority, id proto.NodeID) (at *Host, gone *atomic.Bool) {
	gone = new(atomic.Bool)
	at, _ = startHost(t, a, "b", func(c *Config) {
		c.Removed = func(of proto.NodeID) bool { return of == id && gone.Load() }
	})
	return at, gone
}

// TestRemovedIsRefused: with certificates that are still valid, a node that was removed
// may say Hello and ask to Join, and nothing else. What it had open ends.
func TestRemovedIsRefused(t *testing.T) {
	a := newAuthority(t)
	from, _ := startHost(t, a, "a", nil)
	other, _ := startHost(t, a, "c", nil)
	at, gone := removable(t, a, "a")
	ctx := inTime(t)

	calls := peerOf(t, from, "b", at.Addr())
	exchange, err := calls.Exchange(ctx)
	must.OK(t, err)
	ask := func() error {
		if err := exchange.Send(&proto.PeerRequest{Id: 1}); err != nil {
			return err
		}
		_, err := exchange.Recv()
		return err
	}
	if err := ask(); err != nil {
		t.Fatalf("before the removal: %v", err)
	}
	layer := at.Layer()
	defer layer.Close()
	stream, err := from.Layer().DialNode("b", at.Addr(), 5*time.Second)
	must.OK(t, err)
	defer stream.Close()
	if _, err := layer.Accept(); err != nil {
		t.Fatal(err)
	}
	offers(t, from, "b", at.Addr())
	awaitParked(t, at, "a", true)
	member := peerOf(t, other, "b", at.Addr())

	gone.Store(true)
	at.Expel("a")

	if err := ask(); err == nil {
		t.Error("an exchange that was open before the removal goes on")
	}
	_ = stream.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := stream.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a Raft stream that was open before the removal goes on: %v", err)
	}
	awaitParked(t, at, "a", false)
	if _, err := calls.LeaderLost(ctx, &proto.LeaderLostRequest{}); status.Code(err) != codes.PermissionDenied && status.Code(err) != codes.Unavailable {
		t.Errorf("a call: %v", err)
	}
	// On a connection made after the removal.
	from.forget("b")
	conn, err := from.Conn("b", at.Addr())
	must.OK(t, err)
	_, err = proto.NewPeerClient(conn).LeaderLost(ctx, &proto.LeaderLostRequest{})
	if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), ErrRemoved.Error()) {
		t.Errorf("a call on a new connection: %v", err)
	}
	again, err := proto.NewPeerClient(conn).Exchange(ctx)
	if err == nil {
		_, err = again.Recv()
	}
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("an exchange on a new connection: %v", err)
	}
	m := proto.NewMembershipClient(conn)
	if _, err := m.Change(ctx, &proto.ChangeRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a change: %v", err)
	}
	if _, err := m.Hello(ctx, &proto.HelloRequest{}); err != nil {
		t.Errorf("hello: %v", err)
	}
	if _, err := m.Join(ctx, &proto.JoinRequest{}); err != nil {
		t.Errorf("join: %v", err)
	}
	if c, err := from.Layer().DialNode("b", at.Addr(), 5*time.Second); err == nil {
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a new Raft stream lives: %v", err)
		}
		c.Close()
	}
	if _, err := member.LeaderLost(ctx, &proto.LeaderLostRequest{}); err != nil {
		t.Errorf("another member's call: %v", err)
	}
}

// TestRemovedVotes: a node that was cut off before its removal comes back and stands for
// election. Nobody hears it, so no term moves.
func TestRemovedVotes(t *testing.T) {
	a := newAuthority(t)
	from, _ := startHost(t, a, "a", nil)
	at, gone := removable(t, a, "a")
	gone.Store(true)
	from.Found("b", "", at.Addr())
	sender, receiver := NewTransport(from), NewTransport(at)
	receiver.Admit(nil)
	defer sender.Close()
	defer receiver.Close()
	go func() {
		for {
			select {
			case rpc := <-receiver.Consumer():
				t.Errorf("a message came through: %T", rpc.Command)
				rpc.Respond(nil, errors.New("no"))
			case <-receiver.done:
				return
			}
		}
	}()
	if err := sender.RequestPreVote("b", "", &raft.RequestPreVoteRequest{RPCHeader: ofA, Term: 9}, new(raft.RequestPreVoteResponse)); err == nil {
		t.Error("a pre-vote was answered")
	}
	if err := sender.RequestVote("b", "", &raft.RequestVoteRequest{RPCHeader: ofA, Term: 9}, new(raft.RequestVoteResponse)); err == nil {
		t.Error("a vote was answered")
	}
	if err := sender.AppendEntries("b", "", &raft.AppendEntriesRequest{RPCHeader: ofA, Term: 9}, new(raft.AppendEntriesResponse)); err == nil {
		t.Error("entries were answered")
	}
}

// TestRemovedLeaderIsNotServedBackwards: what a node has offered, and the removed node
// has taken, is an open connection like any other.
func TestRemovedLeaderIsNotServedBackwards(t *testing.T) {
	a := newAuthority(t)
	_, refuses := deaf(t)
	from, _ := startHost(t, a, "a", nil)
	at, gone := removable(t, a, "a")
	offers(t, at, "a", from.Addr())
	awaitParked(t, from, "b", true)
	ctx := inTime(t)
	exchange, err := peerOf(t, from, "b", refuses).Exchange(ctx)
	must.OK(t, err)
	must.OK(t, exchange.Send(&proto.PeerRequest{Id: 1}))
	if _, err := exchange.Recv(); err != nil {
		t.Fatal(err)
	}
	gone.Store(true)
	at.Expel("a")
	if _, err := exchange.Recv(); err == nil || errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
		t.Errorf("the exchange goes on: %v", err)
	}
}
