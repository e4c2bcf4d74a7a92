package membership

import (
	"encoding/json"
	"fmt"

	"github.com/quorate/quorate/proto"
)

// Tables of the KV. Names and contents are on disk: add, never change.
const (
	// TableMembers holds what each node says about itself, by node id.
	TableMembers = "quorate/members"
	// TableSuffrage holds the operators' word against a vote, by node id: it is
	// there from a demotion to the next promotion.
	TableSuffrage = "quorate/suffrage"
	// TableRemoved holds the nodes that were removed, by node id. They are kept
	// for ever: an id must not come back.
	TableRemoved = "quorate/removed"
	// TableDiverged holds what nodes have found that had to stop because their state was
	// wrong, by node id, until they are removed.
	TableDiverged = "quorate/diverged"
	// TableTokenKeys holds the public keys that service account tokens are verified with, by
	// node id.
	TableTokenKeys = "quorate/token-keys"
	// TableTokens holds join tokens, by token id, without their secrets.
	TableTokens = "quorate/tokens"
	// TableTokenUses holds one key <token id>/<n> for each use.
	TableTokenUses = "quorate/token-uses"
)

// memberRecord is a value of TableMembers.
type memberRecord struct {
	Name        string `json:"name"`
	PeerAddress string `json:"peerAddress"`
	APIAddress  string `json:"apiAddress"`
	WantsVote   bool   `json:"wantsVote"`
	Version     string `json:"version,omitempty"`
}

// records returns TableMembers. Values that cannot be read are left out: a newer
// release may have written them.
func (b *base) records() (map[proto.NodeID]memberRecord, error) {
	raw, err := b.kv.List(TableMembers)
	if err != nil {
		return nil, fmt.Errorf("members: %w", err)
	}
	out := make(map[proto.NodeID]memberRecord, len(raw))
	for id, v := range raw {
		var r memberRecord
		if json.Unmarshal(v, &r) == nil {
			out[proto.NodeID(id)] = r
		}
	}
	return out, nil
}

// members returns the configuration with names and API addresses, as far as
// this node's state knows them.
func (b *base) members() (Configuration, []*proto.Member, error) {
	conf := b.raft.Members()
	if len(conf.Servers) == 0 {
		return conf, nil, nil
	}
	recs, err := b.records()
	if err != nil {
		return conf, nil, err
	}
	out := make([]*proto.Member, 0, len(conf.Servers))
	for _, s := range conf.Servers {
		p := &proto.Member{NodeId: string(s.ID), PeerAddress: s.Address, Voter: s.Voter}
		if r, ok := recs[s.ID]; ok {
			p.Name, p.ApiAddress = r.Name, r.APIAddress
		}
		if s.ID == b.id.ID() { // known before the record is written
			p.Name, p.ApiAddress = b.id.Name(), b.opt.APIAddress
		}
		out = append(out, p)
	}
	return conf, out, nil
}

// APIAddresses returns the URLs under which clients reach the members, as far as this
// node's state knows them. Safe for concurrent use.
func (b *base) APIAddresses() ([]string, error) {
	_, members, err := b.members()
	var out []string
	for _, p := range members {
		if p.ApiAddress != "" {
			out = append(out, p.ApiAddress)
		}
	}
	return out, err
}

// resolve finds a member by id or by name.
func resolve(members []*proto.Member, want string) (*proto.Member, error) {
	var found *proto.Member
	for _, p := range members {
		if p.NodeId == want {
			return p, nil
		}
		if p.Name == want && want != "" {
			if found != nil {
				return nil, fmt.Errorf("member %q: %w", want, ErrAmbiguous)
			}
			found = p
		}
	}
	if found == nil {
		return nil, fmt.Errorf("member %.100q: %w", want, ErrNotFound)
	}
	return found, nil
}
