package membership

import (
	"context"
	"maps"
	"slices"

	"github.com/quorate/quorate/proto"
)

// searchAfter is how many ticks in a row a node knows no leader before it searches
// for the members: an election ends sooner.
const searchAfter = 2

// search finds members that are not where the configuration says. A member that
// comes back under a new address announces it, which takes a leader; when a
// majority has moved there is none before the members have found each other. So a
// node without a leader says hello to the --join addresses and to the members, and
// notes who answers: the asked node learns the same of the caller. Addresses are
// only hints: each connection proves the node id by certificate. When a leader is
// there again it announces the new addresses, and the configuration takes the
// notes' place.
type search struct {
	*base
	asked map[string]bool // by address
}

func (s *search) run(ctx context.Context) {
	for missing := 0; sleep(ctx, s.opt.Tick, nil) == nil; {
		if id, _ := s.raft.Leader(); id != "" {
			missing = 0
			s.leave()
			continue
		}
		if missing++; missing >= searchAfter {
			s.once(ctx)
		}
	}
	s.leave()
}

// leave closes the connections of a search. Otherwise they would be kept, or
// tried again, for as long as the node runs.
func (s *search) leave() {
	for addr := range s.asked {
		s.peers.ForgetAddress(addr)
	}
	clear(s.asked)
}

func (s *search) once(ctx context.Context) {
	conf := s.raft.Members()
	ask := map[string]bool{}
	for _, addr := range s.opt.Join {
		ask[addr] = true
	}
	for _, s := range conf.Servers {
		ask[s.Address] = true // it may have moved back, or never have moved
	}
	delete(ask, s.opt.PeerAddress)
	maps.Copy(s.asked, ask)
	answers := map[string]*proto.HelloResponse{}
	s.helloAll(ctx, ask, answers)
	for _, r := range answers {
		if r.ClusterId == string(s.id.Cluster()) {
			s.found(r.Self)
		}
	}
}

// found notes where a member is that has just said so itself.
func (b *base) found(p *proto.Member) {
	conf := b.raft.Members()
	if p.PeerAddress == "" || p.NodeId == string(b.id.ID()) {
		return
	}
	i := slices.IndexFunc(conf.Servers, func(s Server) bool { return string(s.ID) == p.NodeId })
	if i < 0 {
		return
	}
	configured := conf.Servers[i].Address
	if configured != p.PeerAddress {
		b.log.Info("a member was found at another address than the configuration's",
			"node", p.NodeId, "name", p.Name, "configured", configured, "found", p.PeerAddress)
	}
	b.peers.Found(proto.NodeID(p.NodeId), configured, p.PeerAddress)
}
