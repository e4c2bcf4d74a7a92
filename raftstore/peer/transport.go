package peer

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/proto"
)

// Transport is the raft.Transport between nodes. It differs from the
// raft.NetworkTransport inside it in what would be unsafe otherwise:
//
//   - There is no heartbeat fast path: heartbeats go through Raft's main loop
//     like every other message. Handled on the side they change the term under
//     a deposed leader's hands, whose next write then lands in its log with the
//     new leader's term, and the state machines differ for ever.
//   - Peers are dialled by node id: another node at the address is refused.
//   - Close ends inbound streams as well.
type Transport struct {
	*raft.NetworkTransport
	layer raft.StreamLayer
}

var (
	_ raft.Transport   = (*Transport)(nil)
	_ raft.WithPreVote = (*Transport)(nil)
	_ raft.WithClose   = (*Transport)(nil)
)

// NewTransport starts the Raft transport of a Host. resolve returns the current
// address of a node; while it knows none, the address in Raft's configuration
// is used.
func NewTransport(h *Host, resolve func(proto.NodeID) (addr string, ok bool)) *Transport {
	return newTransport(h.Layer(), byNode(resolve), 10*time.Second, h.cfg.Logger)
}

// newTransport takes any stream layer, so that tests can run in virtual time.
func newTransport(layer raft.StreamLayer, addresses raft.ServerAddressProvider, timeout time.Duration, logger *slog.Logger) *Transport {
	return &Transport{
		NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
			Stream:                layer,
			MaxPool:               3,
			Timeout:               timeout,
			MaxRPCsInFlight:       2,
			ServerAddressProvider: addresses,
			Logger:                hclogTo(logger),
		}),
		layer: layer,
	}
}

// SetHeartbeatHandler does nothing, which leaves the fast path off.
func (*Transport) SetHeartbeatHandler(func(raft.RPC)) {}

// EncodePeer returns the plain address, which ends up in messages and in the
// leader's address as others see it.
func (*Transport) EncodePeer(_ raft.ServerID, addr raft.ServerAddress) []byte {
	return []byte(addr)
}

// CloseStreams closes the streams in both directions; new ones can be opened.
func (t *Transport) CloseStreams() {
	t.NetworkTransport.CloseStreams()
	if l, ok := t.layer.(interface{ CloseConns() }); ok {
		l.CloseConns()
	}
}

// Close ends the transport, its layer and all streams.
func (t *Transport) Close() error {
	err := t.NetworkTransport.Close()
	t.CloseStreams()
	return err
}

// byNode resolves to addresses that name the node, see nodeAddress.
type byNode func(proto.NodeID) (string, bool)

func (f byNode) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	if addr, ok := f(proto.NodeID(id)); ok {
		return nodeAddress(proto.NodeID(id), addr), nil
	}
	return "", fmt.Errorf("no address is known for node %s", id)
}
