package membership

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"

	"github.com/quorate/quorate/membership/pki"
	"github.com/quorate/quorate/proto"
)

const (
	discoveredPeersFile    = "bootstrap.json"
	discoveredPeersVersion = 1
	// maxDiscoveredPeers bounds the nodes that a forming node keeps in mind.
	maxDiscoveredPeers = 64
	maxAddressBytes    = 512
)

// discoveredPeers are the nodes that this one has spoken to, itself included,
// before there was a cluster. Each answer to a Hello names them all, and is a
// promise: the set is on disk before it is told, and it only grows (a new node
// at a known address takes the old one's place: that one's disk was wiped).
// Why this keeps two clusters from starting: DESIGN.md, "Bootstrap".
type discoveredPeers struct {
	path string
	wake chan struct{} // one place; filled when the set has changed

	mu     sync.Mutex
	set    map[string]*proto.Member // by peer address; members are immutable
	closed bool                     // the node has chosen its cluster
}

type discoveredPeersJSON struct {
	Version int                  `json:"version"`
	Known   []discoveredPeerJSON `json:"known"`
}

type discoveredPeerJSON struct {
	NodeID      string `json:"nodeID"`
	Name        string `json:"name"`
	PeerAddress string `json:"peerAddress"`
	APIAddress  string `json:"apiAddress,omitempty"`
}

func loadDiscoveredPeers(path string, self *proto.Member) (*discoveredPeers, error) {
	d := &discoveredPeers{path: path, wake: make(chan struct{}, 1), set: map[string]*proto.Member{}}
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	if err == nil {
		var f discoveredPeersJSON
		if err := json.Unmarshal(data, &f); err != nil {
			return nil, fmt.Errorf("bootstrap: %s: %w", path, err)
		}
		if f.Version != discoveredPeersVersion {
			return nil, fmt.Errorf("bootstrap: %s has version %d, this release knows %d", path, f.Version, discoveredPeersVersion)
		}
		for _, k := range f.Known {
			if k.NodeID != self.NodeId { // our own address may have changed
				d.set[k.PeerAddress] = &proto.Member{NodeId: k.NodeID, Name: k.Name, PeerAddress: k.PeerAddress, ApiAddress: k.APIAddress, Voter: true}
			}
		}
	}
	d.set[self.PeerAddress] = self
	return d, nil
}

// add adds a node and returns the whole set. It is on disk when add returns.
// Once the node has chosen its cluster nobody is added, and the set is nil.
func (d *discoveredPeers) add(p *proto.Member) ([]*proto.Member, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, nil
	}
	old := d.set[p.PeerAddress]
	switch {
	case old == nil || old.NodeId != p.NodeId:
		if old == nil && len(d.set) >= maxDiscoveredPeers {
			return nil, fmt.Errorf("bootstrap: %d nodes know each other; no more are taken", len(d.set))
		}
		next := make(map[string]*proto.Member, len(d.set)+1)
		for addr, k := range d.set {
			if k.NodeId != p.NodeId { // the node has moved
				next[addr] = k
			}
		}
		next[p.PeerAddress] = p
		if err := d.write(next); err != nil {
			return nil, err
		}
		d.set = next
		select {
		case d.wake <- struct{}{}:
		default:
		}
	}
	return sorted(d.set), nil
}

// known returns the set, sorted by node id.
func (d *discoveredPeers) known() []*proto.Member {
	d.mu.Lock()
	defer d.mu.Unlock()
	return sorted(d.set)
}

// freeze ends the growth, if the set is still the given one; any, if it is nil.
// From then on this node speaks for its cluster, not for its set.
func (d *discoveredPeers) freeze(set []*proto.Member, commit func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if set != nil && !sameServers(serversOf(set), serversOf(sorted(d.set))) {
		return false
	}
	commit()
	d.closed = true
	return true
}

// forget removes the file: the Raft state has taken its place.
func (d *discoveredPeers) forget() error {
	if err := os.Remove(d.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("bootstrap: %w", err)
	}
	return nil
}

func (d *discoveredPeers) write(set map[string]*proto.Member) error {
	f := discoveredPeersJSON{Version: discoveredPeersVersion}
	for _, p := range sorted(set) {
		f.Known = append(f.Known, discoveredPeerJSON{p.NodeId, p.Name, p.PeerAddress, p.ApiAddress})
	}
	data, err := json.MarshalIndent(f, "", "  ")
	if err == nil {
		err = pki.WriteFile(d.path, append(data, '\n'), pki.ModeSecret)
	}
	if err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	return nil
}

func sorted(set map[string]*proto.Member) []*proto.Member {
	out := make([]*proto.Member, 0, len(set))
	for _, p := range set {
		out = append(out, p)
	}
	slices.SortFunc(out, func(x, y *proto.Member) int { return cmp.Compare(x.NodeId, y.NodeId) })
	return out
}

// serversOf returns the voters that members would be, sorted by id.
func serversOf(members []*proto.Member) []Server {
	out := make([]Server, 0, len(members))
	for _, p := range members {
		out = append(out, Server{ID: proto.NodeID(p.NodeId), Address: p.PeerAddress, Voter: true})
	}
	return sortedServers(out)
}

func sortedServers(servers []Server) []Server {
	out := slices.Clone(servers)
	slices.SortFunc(out, func(x, y Server) int { return cmp.Compare(x.ID, y.ID) })
	return out
}

func sameServers(a, b []Server) bool { return slices.Equal(a, b) }

// clusterOf is the id of the cluster that begins with these servers. Node ids
// are random, so it is unique; and from a configuration one can tell whether
// it is still the first one.
func clusterOf(servers []Server) proto.ClusterID {
	h := sha256.New()
	h.Write([]byte("quorate cluster 1\n"))
	for _, s := range servers {
		fmt.Fprintf(h, "%q %q %v\n", s.ID, s.Address, s.Voter)
	}
	return proto.ClusterID(hex.EncodeToString(h.Sum(nil)[:16]))
}
