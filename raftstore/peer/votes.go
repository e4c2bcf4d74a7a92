//lint:file-ignore SA1019 raft 1.7 still falls back on a field that it deprecates

package peer

import (
	"bytes"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/proto"
)

// EncodePeer returns what messages name a node by: <node-id>@<host:port>.
//
// Raft stores these bytes of a candidate as its vote, and answers a second request
// in the same term with yes if they are the same, without a look at the candidate's
// log. An address alone would let another node have the vote that was given to the
// one which had the address before it.
func (*Transport) EncodePeer(id raft.ServerID, addr raft.ServerAddress) []byte {
	return []byte(nodeAddress(proto.NodeID(id), string(addr)))
}

// DecodePeer returns the address in what EncodePeer made. So what Raft says about the
// leader has the address as it is in the configuration.
func (*Transport) DecodePeer(b []byte) raft.ServerAddress {
	if _, addr, ok := bytes.Cut(b, []byte{'@'}); ok {
		return raft.ServerAddress(addr)
	}
	return raft.ServerAddress(b)
}

// nameCandidate makes sure that a vote is stored under the id of the node that asks
// for it, which checkSender has compared with its certificate.
func nameCandidate(r *raft.RequestVoteRequest) error {
	// An empty Addr is refused too: raft would fall back on a field that it deprecates.
	id, addr, ok := bytes.Cut(r.Addr, []byte{'@'})
	if !ok || !bytes.Equal(id, r.ID) {
		return fmt.Errorf("%w: node %.200q asks for a vote for node %.200q at %.200q", ErrWrongNode, r.ID, id, addr)
	}
	return nil
}
