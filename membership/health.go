package membership

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/quorate/quorate/proto"
)

// health is what the leader knows about the members. It is empty on any other
// node.
type health struct {
	mu     sync.Mutex
	term   uint64
	probes map[proto.NodeID]probe
}

// survey asks every member for its status and returns the facts for a decision.
func (c *changes) survey(ctx context.Context) facts {
	conf := c.raft.Members()
	own := c.raft.Status(ctx) // before the questions, so a lag can only be too large
	answers := c.askAll(ctx, conf.Servers)
	now := c.opt.Now()

	c.health.mu.Lock()
	defer c.health.mu.Unlock()
	if c.health.term != own.Term {
		c.health.term, c.health.probes = own.Term, nil
	}
	next := make(map[proto.NodeID]probe, len(answers))
	for id, a := range answers {
		p := a.probe(own)
		if p.caughtUp(c.opt.Limits) == "" {
			p.since = now
			if old := c.health.probes[id]; !old.since.IsZero() {
				p.since = old.since
			}
		}
		next[id] = p
	}
	c.health.probes = next
	voters, missing := 0, 0
	for _, s := range conf.Servers {
		if s.Voter {
			voters++
			if next[s.ID].err != "" {
				missing++
			}
		}
	}
	if 2*missing >= voters && missing > 0 {
		c.quorum.suspect() // who is missing is known when the lease ends, and writes fail
	}
	return facts{self: c.id.ID(), conf: conf, health: maps.Clone(next), limits: c.opt.Limits, now: now, names: c.names()}
}

// names are the members' names, as far as they are known.
func (b *base) names() map[proto.NodeID]string {
	_, members, err := b.members()
	if err != nil {
		return nil // ids do as well
	}
	out := make(map[proto.NodeID]string, len(members))
	for _, p := range members {
		out[proto.NodeID(p.NodeId)] = p.Name
	}
	return out
}

// NameOf is the name of the member with an id or a peer address; what it is given, if it is none that
// this node knows.
func (b *base) NameOf(idOrAddress string) string {
	_, members, err := b.members()
	if err != nil {
		return idOrAddress
	}
	for _, p := range members {
		if p.Name != "" && (p.NodeId == idOrAddress || p.PeerAddress == idOrAddress) {
			return p.Name
		}
	}
	return idOrAddress
}

// resetHealth forgets everything: this node does not lead.
func (c *changes) resetHealth() {
	c.health.mu.Lock()
	defer c.health.mu.Unlock()
	c.health.probes = nil
}

// statusAnswer is a member's answer to Status, or the error.
type statusAnswer struct {
	status *proto.NodeStatus
	err    error
}

func (a statusAnswer) probe(leader *proto.NodeStatus) probe {
	if a.err != nil {
		return probe{err: a.err.Error()}
	}
	p := probe{
		alive: true, term: a.status.Term, last: a.status.LastLogIndex,
		contact: time.Duration(a.status.LastContactMs) * time.Millisecond,
		hears:   a.status.Term == leader.Term && a.status.LeaderId == leader.NodeId,
	}
	if leader.LastLogIndex > p.last {
		p.behind = leader.LastLogIndex - p.last
	}
	return p
}

// askAll asks all servers at once, each bounded by CallTimeout.
func (b *base) askAll(ctx context.Context, servers []Server) map[proto.NodeID]statusAnswer {
	ctx, cancel := context.WithTimeout(ctx, b.opt.CallTimeout)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	out := make(map[proto.NodeID]statusAnswer, len(servers))
	for _, s := range servers {
		wg.Go(func() {
			var a statusAnswer
			if s.ID == b.id.ID() {
				a.status = b.LocalStatus(ctx)
			} else {
				a.status, a.err = b.askStatus(ctx, s)
			}
			mu.Lock()
			out[s.ID] = a
			mu.Unlock()
		})
	}
	wg.Wait()
	return out
}

func (b *base) askStatus(ctx context.Context, s Server) (*proto.NodeStatus, error) {
	conn, err := b.peers.Conn(s.ID, s.Address)
	if err != nil {
		return nil, err
	}
	st, err := proto.NewPeerClient(conn).Status(ctx, &proto.StatusRequest{})
	if err != nil {
		return nil, unreached(fromStatus(err), s.Address, b.opt.CallTimeout)
	}
	return st, nil
}
