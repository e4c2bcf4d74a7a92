package peer

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

// deaf returns an address at which connections begin and nobody answers, and one
// at which they are refused.
func deaf(t *testing.T) (silent, refuses string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	t.Cleanup(func() { l.Close() })
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	defer gone.Close()
	return l.Addr().String(), gone.Addr().String()
}

// offers runs Offer until the test ends or stop is called.
func offers(t *testing.T, from *Host, to proto.NodeID, addr string) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { from.Offer(ctx, to, addr) })
	stop = func() { cancel(); wg.Wait() }
	t.Cleanup(stop)
	return stop
}

func (h *Host) parkedFrom(id proto.NodeID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.parked[id] != nil
}

func awaitParked(t *testing.T, h *Host, id proto.NodeID, want bool) {
	t.Helper()
	await(t, "what "+string(id)+" has offered", func() bool { return h.parkedFrom(id) == want })
}

// TestReverse: a node that can dial and not be dialled is asked over what it has
// offered, as itself, in both ways of not being dialled.
func TestReverse(t *testing.T) {
	a := newAuthority(t)
	silent, refuses := deaf(t)
	for name, addr := range map[string]string{"silent": silent, "refuses": refuses} {
		t.Run(name, func(t *testing.T) {
			asker, _ := startHost(t, a, "asker", nil)
			leader, _ := startHost(t, a, "leader", nil)
			other, _ := startHost(t, a, "other", nil)
			offers(t, other, "asker", asker.Addr())
			awaitParked(t, asker, "other", true)
			call := func(within time.Duration) error {
				ctx, cancel := context.WithTimeout(t.Context(), within)
				defer cancel()
				stream, err := peerOf(t, asker, "leader", addr).Exchange(ctx)
				if err == nil {
					err = stream.Send(&proto.PeerRequest{Id: 1})
				}
				if err == nil {
					_, err = stream.Recv()
				}
				return err
			}
			if err := call(time.Second); status.Code(err) != codes.Unavailable && status.Code(err) != codes.DeadlineExceeded {
				t.Fatalf("without an offer of its own: %v", err)
			}
			stop := offers(t, leader, "asker", asker.Addr())
			awaitParked(t, asker, "leader", true)
			await(t, "a call over the offer", func() bool { return call(5*time.Second) == nil })
			awaitParked(t, asker, "leader", true) // the next one waits already
			stop()
			awaitParked(t, asker, "leader", false)
			if err := call(5 * time.Second); err != nil {
				t.Errorf("what is in use ended with the offer: %v", err)
			}
		})
	}
}

// TestReverseIsNotTaken: while the node can be dialled nothing is taken, and the
// newest of a node's offers is the one that counts.
func TestReverseIsNotTaken(t *testing.T) {
	a := newAuthority(t)
	asker, _ := startHost(t, a, "asker", nil)
	leader, _ := startHost(t, a, "leader", nil)
	offers(t, leader, "asker", asker.Addr())
	awaitParked(t, asker, "leader", true)
	asker.mu.Lock()
	before := asker.parked["leader"]
	asker.mu.Unlock()
	if _, err := peerOf(t, asker, "leader", leader.Addr()).Status(inTime(t), &proto.StatusRequest{}); err != nil && status.Code(err) != codes.Unimplemented {
		t.Fatal(err)
	}
	asker.mu.Lock()
	after := asker.parked["leader"]
	asker.mu.Unlock()
	if before != after || after == nil {
		t.Error("the offer was taken although the node can be dialled")
	}
	offers(t, leader, "asker", asker.Addr())
	await(t, "the newer offer replaces the older", func() bool {
		asker.mu.Lock()
		defer asker.mu.Unlock()
		now := asker.parked["leader"]
		return now != nil && now != before
	})
}
