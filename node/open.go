package node

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/internal/datadir"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/membership/pki"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore"
	"github.com/quorate/quorate/raftstore/disk"
	"github.com/quorate/quorate/raftstore/peer"
)

func (n *Node) openDir(context.Context) error {
	// Before anything is made in it: a directory like that is to be emptied.
	if err := disk.Unfinished(n.cfg.DataDir); err != nil {
		return err
	}
	if err := os.MkdirAll(n.cfg.DataDir, 0o700); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	lock, err := datadir.Lock(n.cfg.DataDir)
	if err != nil {
		return err
	}
	n.lock = lock
	// And again, now that it is ours. Before the identity: half way through a recovery
	// there may be none.
	return disk.Unfinished(n.cfg.DataDir)
}

func (n *Node) openPeers(context.Context) error {
	listener, err := listen(n.cfg.PeerListener, n.cfg.PeerListen)
	if err != nil {
		return fmt.Errorf("peer port: %w", err)
	}
	n.peers, err = peer.New(peer.Config{
		NodeID: n.identity.ID(), Credentials: n.pki, Listener: listener, Advertise: n.cfg.PeerAdvertise,
		Cluster: n.identity.Cluster, Removed: n.removed, Logger: n.log, Fatal: n.die,
		Traffic: func(id proto.NodeID) peer.Traffic { return n.metrics.Peer(string(id)) },
	})
	if err != nil {
		return errors.Join(fmt.Errorf("peer port: %w", err), listener.Close())
	}
	n.rpc = peer.NewTransport(n.peers)
	return nil
}

// removed says whether a member was removed, as far as this node's state knows: nothing
// before it is loaded.
func (n *Node) removed(id proto.NodeID) bool {
	s := n.state.Load()
	return s != nil && membership.IsRemoved(membershipKV{s}, id)
}

// ofRemoved refuses a client certificate of a node that was removed: anyone who has that
// node's disk has its key.
func (n *Node) ofRemoved(leaf *x509.Certificate) error {
	if len(leaf.URIs) == 0 { // a user's
		return nil
	}
	for _, id := range pki.NodesOf(leaf) {
		if n.removed(id) {
			return fmt.Errorf("it is that of node %s, which was removed from the cluster", id)
		}
	}
	return nil
}

// refuseCertificate is ofRemoved, and refuses the certificates that nodes show to kubelets: a kubelet that
// says of itself that it is at the address of a node would have one node ask another in that name.
func (n *Node) refuseCertificate(leaf *x509.Certificate) error {
	if leaf.Subject.CommonName == pki.KubeletUser && len(pki.NodesOf(leaf)) > 0 {
		return errors.New("it is for kubelets alone")
	}
	return n.ofRemoved(leaf)
}

func (n *Node) openStore(context.Context) (err error) {
	n.systemd.loading()
	began := time.Now()
	n.store, err = raftstore.Open(raftstore.Config{
		Dir: n.cfg.DataDir, Node: n.identity.ID(), Name: n.identity.Name(),
		Transport: n.rpc, Peers: n.peers, Cluster: n.identity.Cluster, Fatal: n.die, Logger: n.log,
		// The manager is made after the store.
		QuorumIsLost: func() bool { m := n.members.Load(); return m != nil && m.QuorumIsLost() },
		NameOf: func(idOrAddress string) string {
			if m := n.members.Load(); m != nil {
				return m.NameOf(idOrAddress)
			}
			return idOrAddress
		},
		Timing: raftstore.Timing{
			Heartbeat: n.cfg.HeartbeatTimeout, Election: n.cfg.ElectionTimeout, Lease: n.cfg.LeaseTimeout,
			NoLeader: n.cfg.NoLeaderTimeout, HungDisk: n.cfg.HungDiskTimeout,
			History: n.cfg.HistoryRetention, SnapshotInterval: n.cfg.SnapshotInterval,
		},
		Limits: raftstore.Limits{
			HistoryBytes: n.cfg.HistoryMaxBytes, TrailingLogs: n.cfg.TrailingLogs, SnapshotThreshold: n.cfg.SnapshotEntries,
			SnapshotLogBytes: n.cfg.SnapshotLogBytes, StorageBytes: n.cfg.storageBytes(),
			ReserveBytes: cmp.Or(n.cfg.DiskReserveBytes, -1),
		},
	})
	if err != nil {
		return err
	}
	n.state.Store(n.store)
	n.log.Info("the state is loaded", "applied", n.store.Applied(), "took", time.Since(began))
	n.store.Observe(n.metrics.LogWrite, n.metrics.BackendCommit, n.metrics.ReadIndexWait)
	n.store.ObserveSchedulingDelay(n.metrics.RaftDelay)
	n.store.ObserveRoundTrips(func(to proto.NodeID, d time.Duration) { n.metrics.PeerRoundTrip(string(to), d) })
	n.metrics.SetStore(n.storeStats)
	n.reader = consistency.NewReader(n.store, consistency.Options{MostRecentTimeout: n.cfg.NoLeaderTimeout, Observe: n.metrics.ReadWait})
	return nil
}

func (n *Node) openMembership(context.Context) (err error) {
	n.manager, err = membership.New(membership.Options{
		Dir: n.cfg.DataDir, Identity: n.identity, Consensus: consensus{n.store, n.identity}, KV: membershipKV{n.store},
		Peers: n.peers, Caller: peer.CallerOf, Certificates: n.pki,
		PeerAddress: n.cfg.PeerAdvertise, APIAddress: "https://" + n.cfg.APIAdvertise, Version: n.cfg.Version,
		BootstrapExpect: n.cfg.BootstrapExpect, Join: n.cfg.Join, NonVoter: n.cfg.Nonvoter,
		RemoveNonvoterAfter: n.cfg.RemoveNonvoterAfter,
		Notices:             n.notices,
		OnRemoved: func(proto.NodeID) {
			n.listener.Expel(n.ofRemoved)
			n.listener.ExpelKeys(func(key string) bool { return n.tokenKeys.Keys().Has(key) })
		},
		// Where there is no bound, clients may have asked for longer. A year is what pods have.
		TokenLifetime: max(membership.TokenLifetime, n.cfg.MaxTokenExpiry),
		Limits: membership.Limits{
			Stable: n.cfg.PromoteAfter,
			// A leader sends at least every fifth of this.
			Contact: max(time.Second, n.cfg.HeartbeatTimeout/2),
		},
		Logger: n.log, Refuse: n.refuse,
	})
	if err != nil {
		return err
	}
	n.members.Store(n.manager)
	n.store.Register(n.peers.GRPC(), peer.CallerOf, n.manager.LocalStatus)
	proto.RegisterMembershipServer(n.peers.GRPC(), n.manager)
	n.peers.Serve()
	return nil
}

// refuse ends what this node says about objects: its state is wrong. The process ends
// soon after.
func (n *Node) refuse(err error) {
	n.refusing.refuse(err)
	n.api.AbandonWatches()
}

// listen returns the listener that the node was given, or one of its own.
func listen(given net.Listener, addr string) (net.Listener, error) {
	if given != nil {
		return given, nil
	}
	return net.Listen("tcp", addr)
}
