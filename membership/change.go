package membership

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/quorate/quorate/proto"
)

const (
	// maxHops bounds the forwarding of a change: from the node that was asked to
	// the leader, and no further.
	maxHops = 1
	// changeAttempts bounds how often a node looks for the leader again.
	changeAttempts = 5
	changePause    = 100 * time.Millisecond
)

// lockChanges waits until no other change is under way on this node.
func (m *Manager) lockChanges(ctx context.Context) error {
	select {
	case m.changing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("another membership change is under way: %w", context.Cause(ctx))
	}
}

func (m *Manager) unlockChanges() { <-m.changing }

// change carries out a change wherever the leader is, and returns the members
// after it. Every kind is idempotent, so a try whose outcome is unknown is
// followed by another one.
func (m *Manager) change(ctx context.Context, req *proto.ChangeRequest) ([]*proto.Member, error) {
	var err error
	unknown := false
	for attempt := range changeAttempts {
		if attempt > 0 {
			if serr := sleep(ctx, changePause<<attempt, nil); serr != nil {
				return nil, errors.Join(outcome(err, unknown), serr)
			}
		}
		var members []*proto.Member
		members, err = m.changeOnce(ctx, req)
		switch {
		case err == nil:
			return members, nil
		case unknown && req.Kind == proto.ChangeKind_CHANGE_REMOVE && errors.Is(err, ErrNotFound):
			_, members, err = m.members()
			return members, err // the earlier try has removed it
		case errors.Is(err, errNotReached):
			unknown = true
		case errors.Is(err, ErrNotLeader), errors.Is(err, ErrNoLeader), errors.Is(err, ErrConflict):
		default:
			return nil, err
		}
		if req.Hops >= maxHops {
			return nil, err // the node that was asked first tries again
		}
	}
	return nil, outcome(err, unknown)
}

// outcome is the error of the last try, with what is to be known of an earlier one.
func outcome(err error, unknown bool) error {
	if !unknown || errors.Is(err, errNotReached) {
		return err
	}
	return fmt.Errorf("%w; an earlier try got %w and may have been carried out", err, errNotReached)
}

func (m *Manager) changeOnce(ctx context.Context, req *proto.ChangeRequest) ([]*proto.Member, error) {
	if m.raft.IsLeader() {
		if err := m.lead(ctx, req); err != nil {
			return nil, err
		}
		_, members, err := m.members()
		return members, err
	}
	if req.Hops >= maxHops {
		return nil, fmt.Errorf("%s: %w", m.id.Name(), ErrNotLeader)
	}
	id, address := m.raft.Leader()
	if id == "" || id == m.id.ID() { // none, or elected but not ready
		return nil, ErrNoLeader
	}
	conn, err := m.peers.Conn(id, address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*m.opt.CallTimeout)
	defer cancel()
	resp, err := proto.NewMembershipClient(conn).Change(ctx, &proto.ChangeRequest{
		Kind: req.Kind, Member: req.Member, Force: req.Force, Hops: req.Hops + 1, KeepTokensSeconds: req.KeepTokensSeconds,
	})
	if err != nil {
		if err = fromStatus(err); errors.Is(err, ErrNotMember) {
			err = fmt.Errorf("%s %w: it was removed", m.id.Name(), ErrNotMember) // by its name
		}
		return nil, err
	}
	return resp.Members, nil
}

// lead carries out a change on the leader.
func (m *Manager) lead(ctx context.Context, req *proto.ChangeRequest) error {
	if req.Kind == proto.ChangeKind_CHANGE_ADD {
		if err := m.checkReached(ctx, req.Member); err != nil {
			return err
		}
	}
	if err := m.lockChanges(ctx); err != nil {
		return err
	}
	defer m.unlockChanges()
	if req.Kind == proto.ChangeKind_CHANGE_ADD {
		return m.add(ctx, req.Member)
	}
	f, err := m.survey(ctx)
	if err != nil {
		return err
	}
	if req.Kind == proto.ChangeKind_CHANGE_TRANSFER && req.Member.GetNodeId() == "" && req.Member.GetName() == "" {
		return m.transferLocked(ctx, f, "", "")
	}
	_, members, err := m.members()
	if err != nil {
		return err
	}
	want := req.Member.GetNodeId()
	if want == "" {
		want = req.Member.GetName()
	}
	p, err := resolve(members, want)
	if err != nil {
		return err
	}
	target, ok := f.conf.Find(proto.NodeID(p.NodeId))
	if !ok {
		return fmt.Errorf("member %s: %w", p.NodeId, ErrConflict)
	}
	switch req.Kind {
	case proto.ChangeKind_CHANGE_TRANSFER:
		return m.transferLocked(ctx, f, target.ID, "")
	case proto.ChangeKind_CHANGE_PROMOTE:
		return m.promote(ctx, f, target, req.Force)
	case proto.ChangeKind_CHANGE_DEMOTE:
		return m.demote(ctx, f, target, req.Force)
	case proto.ChangeKind_CHANGE_REMOVE:
		if req.KeepTokensSeconds > maxKeepTokensSeconds {
			return fmt.Errorf("%w: remove %s: tokens may be kept for %d seconds at most", ErrRefused, target.ID, maxKeepTokensSeconds)
		}
		return m.remove(ctx, f, target, p.Name, req.Force, time.Duration(req.KeepTokensSeconds)*time.Second)
	}
	return fmt.Errorf("%w: unknown kind of change %d", ErrRefused, req.Kind)
}

// checkReached refuses a new node that is not where it says that it is. As a member it would stay for good: nobody could
// reach it, and while it does not answer no feature version rises. It is called before the lock of changes, which would keep
// all others waiting for an answer that does not come. What add refuses by itself is left to it.
func (m *Manager) checkReached(ctx context.Context, p *proto.Member) error {
	id := proto.NodeID(p.GetNodeId())
	if checkMember(p) != nil || p.PeerAddress == "" {
		return nil
	}
	conf, err := m.raft.Members()
	if err != nil {
		return err
	}
	_, member := conf.Find(id)
	_, taken := duplicateAddress(conf, id, p.PeerAddress)
	_, gone := m.kv.Get(TableRemoved, p.NodeId)
	cluster, _ := m.raft.Features()
	if member || taken || gone || p.FeatureVersion < cluster || m.isAt(ctx, id, p.PeerAddress, 2*m.opt.CallTimeout) {
		return nil
	}
	return fmt.Errorf("%w: add %s: %s does not reach it at %s, where it says that it is: its --peer-advertise-address must be one that all members reach",
		ErrRefused, cmp.Or(p.Name, p.NodeId), m.id.Name(), p.PeerAddress)
}

// add lets a node in without a vote, or takes note of a member's new address.
func (m *Manager) add(ctx context.Context, p *proto.Member) error {
	if err := checkMember(p); err != nil {
		return fmt.Errorf("%w: add: %w", ErrRefused, err)
	}
	if p.PeerAddress == "" {
		return fmt.Errorf("%w: add %s: no peer address", ErrRefused, p.NodeId)
	}
	id := proto.NodeID(p.NodeId)
	if _, gone := m.kv.Get(TableRemoved, p.NodeId); gone {
		return fmt.Errorf("add %s: %w", id, ErrRemoved)
	}
	conf, err := m.raft.Members()
	if err != nil {
		return err
	}
	old, member := conf.Find(id)
	address := p.PeerAddress
	if other, ok := duplicateAddress(conf, id, address); ok {
		if !member || !m.isAt(ctx, id, address, m.opt.CallTimeout) {
			return fmt.Errorf("%w: add %s: the address %s belongs to member %s; if that node's disk was wiped, remove that member first", ErrRefused, id, address, other)
		}
		address = alias(address)
	}
	if cluster, _ := m.raft.Features(); !member && p.FeatureVersion < cluster {
		return fmt.Errorf("add %s: it supports feature version %d, the cluster speaks %d: %w", id, p.FeatureVersion, cluster, ErrTooOld)
	}
	switch {
	case member && old.Address == address:
		return nil
	case member && old.Voter:
		err = m.raft.AddVoter(ctx, id, address, conf.Index)
	default:
		err = m.raft.AddNonvoter(ctx, id, address, conf.Index)
	}
	if err != nil {
		return fmt.Errorf("add %s: %w", id, err)
	}
	m.log.Info("member added", "node", id, "name", p.Name, "address", address, "moved", member)
	return nil
}

// isAt says whether a member is at an address, proven by its certificate within a time.
func (m *Manager) isAt(ctx context.Context, id proto.NodeID, address string, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	defer m.peers.ForgetAddress(address)
	// By its id the member would be asked where it is now.
	conn, err := m.peers.Conn("", address)
	if err == nil {
		var there peer.Peer
		if _, err = proto.NewMembershipClient(conn).Hello(ctx, &proto.HelloRequest{Self: m.self(), ClusterId: string(m.id.Cluster())}, grpc.Peer(&there)); err == nil {
			is, proven := m.opt.Caller(peer.NewContext(ctx, &there))
			return proven && is == id
		}
	}
	m.log.Debug("no answer from where a member says that it is", "node", id, "address", address, "err", err)
	return false
}

// alias is another spelling of an address: the port with a zero in front.
//
// Members can have exchanged their addresses, as containers that come back in another
// order do, and in a configuration no two have the same: whichever is told first finds
// that its new address is the other's still. So a member that is proven to be there is
// called by the alias until the other has told where it is; then it tells its address
// again. Everybody can dial it meanwhile. A placeholder for the other one instead would
// make that one unreachable, and its vote may be needed to commit the change.
func alias(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address // Raft refuses it then, as a duplicate
	}
	return net.JoinHostPort(host, "0"+port)
}

func (m *Manager) promote(ctx context.Context, f facts, target Server, force bool) error {
	if err := guard(proto.ChangeKind_CHANGE_PROMOTE, target, f, force); err != nil && !target.Voter {
		return err
	}
	if err := m.kv.Delete(ctx, TableSuffrage, string(target.ID)); err != nil {
		return fmt.Errorf("promote %s: %w", target.ID, err)
	}
	if target.Voter {
		return nil
	}
	if err := m.raft.AddVoter(ctx, target.ID, target.Address, f.conf.Index); err != nil {
		return fmt.Errorf("promote %s: %w", target.ID, err)
	}
	m.log.Info("member promoted", "node", target.ID)
	return nil
}

func (m *Manager) demote(ctx context.Context, f facts, target Server, force bool) error {
	if err := guard(proto.ChangeKind_CHANGE_DEMOTE, target, f, force); err != nil {
		return err
	}
	// The operator's word first: autopilot would promote it again otherwise.
	word, err := json.Marshal(map[string]any{"vote": false, "since": m.opt.Now().UTC()})
	if err == nil {
		err = m.kv.Put(ctx, TableSuffrage, string(target.ID), word, false)
	}
	if err != nil {
		return fmt.Errorf("demote %s: %w", target.ID, err)
	}
	if !target.Voter {
		return nil
	}
	if err := m.handOver(ctx, f, target); err != nil {
		return err
	}
	if err := m.raft.DemoteVoter(ctx, target.ID, f.conf.Index); err != nil {
		return fmt.Errorf("demote %s: %w", target.ID, err)
	}
	m.log.Info("member demoted", "node", target.ID)
	return nil
}

// remove takes a member out of the cluster. The service account tokens that it has signed
// end with that, or after keep.
func (m *Manager) remove(ctx context.Context, f facts, target Server, name string, force bool, keep time.Duration) error {
	if err := guard(proto.ChangeKind_CHANGE_REMOVE, target, f, force); err != nil {
		return err
	}
	if others := m.sameTokenKey(target.ID); len(others) > 0 && keep == 0 && !force {
		for i, id := range others {
			others[i] = f.name(proto.NodeID(id))
		}
		return fmt.Errorf("%w: remove %s: it signs service account tokens with the same key as %s, so they would not end, and who has its disk could sign more. First stop %s, remove pki/token.key in its data directory, and start it: it makes a key of its own",
			ErrRefused, f.name(target.ID), strings.Join(others, ", "), others[0])
	}
	if err := m.handOver(ctx, f, target); err != nil {
		return err
	}
	if err := m.raft.RemoveServer(ctx, target.ID, f.conf.Index); err != nil {
		return fmt.Errorf("remove %s: %w", target.ID, err)
	}
	m.log.Info("member removed", "node", target.ID, "name", name, "itsTokensAreKeptFor", keep)
	if err := m.record(ctx, target.ID, m.removalOf(name, target.Address, keep)); err != nil {
		return fmt.Errorf("remove %s: it is out of the configuration; that its certificates and tokens count no more is not written yet, and the leader goes on trying: %w", target.ID, err)
	}
	return nil
}

// handOver transfers leadership before this leader is demoted or removed, and
// sends the caller to the new one.
func (m *Manager) handOver(ctx context.Context, f facts, target Server) error {
	if target.ID != m.id.ID() {
		return nil
	}
	if err := m.transferLocked(ctx, f, "", ""); err != nil {
		return err
	}
	return fmt.Errorf("%w: leadership was transferred first; try again", ErrNotLeader)
}
