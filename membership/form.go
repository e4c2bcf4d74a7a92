package membership

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quorate/quorate/proto"
)

// firstTick is the pause after the first round of a forming node; the pauses
// double up to Options.Tick.
const firstTick = 20 * time.Millisecond

// forming is a node that is no part of a cluster yet.
type forming struct {
	*base
	discovered *discoveredPeers
}

// run returns when this node is part of a cluster. What it finds on disk goes
// before what it was told: flags are for the first start only.
func (f forming) run(ctx context.Context) error {
	has, err := f.raft.HasState()
	if err != nil {
		return fmt.Errorf("form: %w", err)
	}
	if saved := f.id.savedCluster(); saved != "" && !has {
		return fmt.Errorf("form: node %s of cluster %s: %w", f.id.ID(), saved, ErrStateLost)
	}
	if has {
		f.log.Info("existing state found; --bootstrap-expect is ignored, --join only serves to find members that have moved",
			"node", f.id.ID(), "cluster", f.id.Cluster())
	}
	var reason string
	pause := firstTick
	for {
		done, why, err := f.step(ctx)
		if err != nil {
			return err
		}
		if done {
			f.waiting.Store(nil)
			return f.persistChoice()
		}
		if why != reason {
			f.waiting.Store(&why)
			f.log.Info("waiting for a cluster", "reason", why)
			reason = why
		}
		if err := sleep(ctx, pause, f.discovered.wake); err != nil {
			return err
		}
		pause = min(2*pause, f.opt.Tick)
	}
}

// step makes one round. It is done when the configuration includes this
// node and the cluster has a name. Only errors that time cannot heal are errors.
func (f forming) step(ctx context.Context) (done bool, why string, err error) {
	conf := f.raft.Members()
	if c := f.raft.Cluster(); c != "" && f.id.Cluster() != c {
		// The replicated state knows better, for instance after a restore.
		f.id.setCluster(c)
	}
	if conf.Index == 1 && f.id.Cluster() == "" {
		// The first configuration names the cluster: a leader was faster than
		// this node, or it stopped before it wrote node.json.
		f.begin(nil, clusterOf(sortedServers(conf.Servers)))
	}
	if _, in := conf.Find(f.id.ID()); in && f.id.Cluster() != "" {
		return true, "", nil
	} else if len(conf.Servers) > 0 && !in {
		// Its log has not come to where it was added, or it was removed. Only
		// the leader can change either.
		return f.id.Cluster() != "", "this node is not in the configuration of the cluster", nil
	}
	v := f.look(ctx)
	a := decide(v)
	switch a.kind {
	case actBootstrap:
		return f.bootstrap(a)
	case actJoin:
		why, err := f.join(ctx, a)
		return false, why, err
	}
	if len(v.strangers) > 0 {
		slices.Sort(v.strangers)
		a.reason += "; another cluster secret than ours is at " + strings.Join(slices.Compact(v.strangers), ", ")
	}
	return false, a.reason, nil
}

// bootstrap starts a cluster with the agreed servers. All of them do the same.
func (f forming) bootstrap(a action) (bool, string, error) {
	agreed := serversAsMembers(a.servers)
	if a.adopted {
		agreed = nil // it has happened: there is nothing to agree on
	}
	if !f.begin(agreed, a.cluster) {
		return false, "another node has come", nil
	}
	if err := f.raft.Bootstrap(a.servers, a.cluster); err != nil {
		// The first leader was faster than we: then its log brings the
		// configuration.
		if has, herr := f.raft.HasState(); herr != nil || !has {
			return false, "", fmt.Errorf("bootstrap: %w", errors.Join(err, herr))
		}
	}
	f.log.Info("cluster started", "cluster", a.cluster, "servers", len(a.servers), "adopted", a.adopted)
	return false, "the first configuration is being written", nil
}

// begin notes the cluster that begins, if the discovered set is still the agreed one; any, if
// that is nil.
func (f forming) begin(agreed []*proto.Member, cluster proto.ClusterID) bool {
	return f.discovered.freeze(agreed, func() { f.id.setCluster(cluster) })
}

const asked = "the cluster has been asked to let this node in"

// join asks the node at an address to let this one in, and returns what came of it.
// Failures are retried by the next step, except the one that is final.
func (f forming) join(ctx context.Context, a action) (why string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*f.opt.CallTimeout)
	defer cancel()
	err = f.askToJoin(ctx, "", a.address)
	switch {
	case err == nil:
		f.discovered.freeze(nil, func() { f.id.setCluster(a.cluster) })
		f.log.Info("joined as a non-voter", "cluster", a.cluster)
	case errors.Is(err, ErrRemoved), errors.Is(err, ErrTooOld):
		return "", fmt.Errorf("join: %w", err)
	default:
		return fmt.Sprintf("%s, and has not yet; %s says: %v", asked, a.address, err), nil
	}
	return asked, nil
}

// askToJoin sends a Join for this node; for a member it announces an address.
func (b *base) askToJoin(ctx context.Context, id proto.NodeID, address string) error {
	conn, err := b.peers.Conn(id, address)
	if err != nil {
		return err
	}
	_, err = proto.NewMembershipClient(conn).Join(ctx, &proto.JoinRequest{Self: b.self()})
	return fromStatus(err)
}

// persistChoice makes the choice durable. The Raft state is on disk already.
func (f forming) persistChoice() error {
	f.discovered.freeze(nil, func() {})
	if err := f.id.saveCluster(); err != nil {
		return err
	}
	return f.discovered.forget()
}

// look says hello to all join addresses and discovered peers and to the members
// that those know.
func (f forming) look(ctx context.Context) view {
	self := f.self()
	v := view{self: self, expect: f.opt.BootstrapExpect, join: f.opt.Join, answers: map[string]*proto.HelloResponse{}}
	ask := map[string]bool{}
	for _, addr := range f.opt.Join {
		ask[addr] = true
	}
	for _, p := range f.discovered.known() {
		ask[p.PeerAddress] = true
	}
	// A second round asks the nodes that answers of the first one named.
	for range 2 {
		delete(ask, self.PeerAddress)
		v.strangers = append(v.strangers, f.helloAll(ctx, ask, v.answers)...)
		ask = map[string]bool{}
		for _, r := range v.answers {
			for _, p := range r.Known {
				if len(ask) < maxDiscoveredPeers && r.ClusterId == "" && p.NodeId != self.NodeId && !answered(v.answers, p) {
					ask[p.PeerAddress] = true
				}
			}
		}
		if len(ask) == 0 {
			break
		}
	}
	for _, addr := range slices.Sorted(maps.Keys(v.answers)) {
		r := v.answers[addr]
		if r.ClusterId != "" || r.Self.NodeId == self.NodeId || v.expect == 0 || int(r.BootstrapExpect) != v.expect {
			continue
		}
		if _, err := f.discovered.add(r.Self); err != nil {
			f.log.Warn("cannot record a peer", "node", r.Self.NodeId, "err", err)
		}
	}
	v.known = f.discovered.known()
	return v
}

func answered(answers map[string]*proto.HelloResponse, p *proto.Member) bool {
	for addr, r := range answers {
		if addr == p.PeerAddress || r.Self.GetNodeId() == p.NodeId {
			return true
		}
	}
	return false
}

// helloAll asks all addresses at once, adds the answers that came, and returns where
// nodes have other certificates than those of our secret.
func (b *base) helloAll(ctx context.Context, ask map[string]bool, answers map[string]*proto.HelloResponse) (strangers []string) {
	ctx, cancel := context.WithTimeout(ctx, b.opt.CallTimeout)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for addr := range ask {
		wg.Go(func() {
			r, err := b.hello(ctx, "", addr)
			if err != nil {
				b.log.Debug("no answer to hello", "address", addr, "err", err)
				if isStranger(err) {
					mu.Lock()
					strangers = append(strangers, addr)
					mu.Unlock()
				}
				return
			}
			mu.Lock()
			answers[addr] = r
			mu.Unlock()
		})
	}
	wg.Wait()
	return strangers
}

// isStranger says whether a handshake failed because the other node's certificate is
// none of our authority's. gRPC passes the reason on as text only.
func isStranger(err error) bool {
	return strings.Contains(err.Error(), x509.UnknownAuthorityError{}.Error())
}

// hello asks the node at an address: with an id, no other than that one.
func (b *base) hello(ctx context.Context, id proto.NodeID, addr string) (*proto.HelloResponse, error) {
	conn, err := b.peers.Conn(id, addr)
	if err != nil {
		return nil, err
	}
	r, err := proto.NewMembershipClient(conn).Hello(ctx, &proto.HelloRequest{
		Self: b.self(), ClusterId: string(b.id.Cluster()), BootstrapExpect: uint32(b.opt.BootstrapExpect),
	})
	if err != nil {
		return nil, fromStatus(err)
	}
	if err := checkMember(r.Self); err != nil {
		return nil, err
	}
	for _, p := range r.Known {
		if err := checkMember(p); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func serversAsMembers(servers []Server) []*proto.Member {
	out := make([]*proto.Member, 0, len(servers))
	for _, s := range servers {
		out = append(out, &proto.Member{NodeId: string(s.ID), PeerAddress: s.Address, Voter: s.Voter})
	}
	return out
}
