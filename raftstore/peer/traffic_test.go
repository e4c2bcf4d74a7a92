package peer

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

// ledger is the Traffic of each node that one host talks with.
type ledger struct{ nodes sync.Map }

type account struct{ sent, received, failed atomic.Int64 }

func (a *account) Sent(n int)     { a.sent.Add(int64(n)) }
func (a *account) Received(n int) { a.received.Add(int64(n)) }
func (a *account) Failed()        { a.failed.Add(1) }

func (l *ledger) of(id proto.NodeID) *account {
	a, _ := l.nodes.LoadOrStore(id, &account{})
	return a.(*account)
}

func (l *ledger) install(c *Config) {
	c.Traffic = func(id proto.NodeID) Traffic { return l.of(id) }
}

// TestTraffic: what one end has sent is what the other has received, but for the
// handshake, whose bytes are nobody's yet; both protocols count; a message that
// does not arrive is a failure.
func TestTraffic(t *testing.T) {
	a := newAuthority(t)
	var one, two ledger
	h1, _ := startHost(t, a, "n1", one.install)
	h2, _ := startHost(t, a, "n2", two.install)
	t1, t2 := newTestTransport(h1), newTestTransport(h2)
	defer t1.Close()
	serveWith(t2, func(rpc raft.RPC) { rpc.Respond(&raft.AppendEntriesResponse{Success: true}, nil) })

	const entry = 100_000
	var resp raft.AppendEntriesResponse
	req := &raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ID: []byte("n1"), Addr: []byte(h1.Addr())}, Entries: []*raft.Log{{Index: 1, Data: make([]byte, entry)}}}
	must.OK(t, t1.AppendEntries("n2", raft.ServerAddress(h2.Addr()), req, &resp))
	sent := one.of("n2").sent.Load()
	if sent < entry || sent > entry+entry/10 {
		t.Errorf("n1 has sent %d bytes to n2 for an entry of %d", sent, entry)
	}
	// What came together with the end of the handshake is not counted here.
	if got := two.of("n1").received.Load(); got < entry/2 || got > sent {
		t.Errorf("n2 has received %d bytes of the %d that n1 sent", got, sent)
	}
	conn, err := h1.Conn("n2", h2.Addr())
	must.OK(t, err)
	if _, err := proto.NewPeerClient(conn).LeaderLost(t.Context(), &proto.LeaderLostRequest{}); err != nil {
		t.Fatal(err)
	}
	if one.of("n2").sent.Load() == sent || two.of("n1").sent.Load() == 0 {
		t.Error("a call is not counted")
	}
	if n := one.of("n2").failed.Load(); n != 0 {
		t.Errorf("%d failures", n)
	}
	t2.Close()
	must.OK(t, h2.Close())
	for end := time.Now().Add(20 * time.Second); ; {
		err := t1.AppendEntries("n2", raft.ServerAddress(h2.Addr()), req, &resp)
		if err != nil && one.of("n2").failed.Load() > 0 {
			break
		}
		if err == nil {
			err = errors.New("a closed host answers")
		}
		if time.Now().After(end) {
			t.Fatal(fmt.Errorf("%w; failures are not counted", err))
		}
	}
}

func newTestTransport(h *Host) *Transport {
	t := NewTransport(h)
	t.Admit(nil)
	return t
}
