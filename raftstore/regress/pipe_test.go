package regress

import (
	"log/slog"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/pipes"
	"github.com/quorate/quorate/raftstore/peer"
)

// pipeNetwork is a network that nodes join with a real transport.
type pipeNetwork struct{ *pipes.Network }

func newPipes() pipeNetwork { return pipeNetwork{pipes.New()} }

// library joins a node with raft.NetworkTransport; its address is its id.
func (n pipeNetwork) library(id raft.ServerID) transport {
	return raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: n.Join(raft.ServerAddress(id)), MaxPool: 3, Timeout: 2 * time.Second, Logger: hclog.NewNullLogger(),
	})
}

// ours joins a node with peer.Transport.
func (n pipeNetwork) ours(id raft.ServerID) transport {
	same := func(_ raft.ServerID, a raft.ServerAddress) raft.ServerAddress { return a }
	return peer.NewTransportOn(n.Join(raft.ServerAddress(id)), same, 2*time.Second, slog.New(slog.DiscardHandler), false)
}
