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

// changes carries out changes of the members: at the leader, and from any other node there. One at a
// time is decided, on what the leader knows of the members then.
type changes struct {
	*base
	quorum    *quorumWatch
	changing  chan struct{} // holds one token: one change at a time
	health    health
	transfers transferGuard
}

// lockChanges waits until no other change is under way on this node.
func (c *changes) lockChanges(ctx context.Context) error {
	select {
	case c.changing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("another membership change is under way: %w", context.Cause(ctx))
	}
}

func (c *changes) unlockChanges() { <-c.changing }

// change carries out a change wherever the leader is, and returns the members
// after it. Every kind is idempotent, so a try whose outcome is unknown is
// followed by another one.
func (c *changes) change(ctx context.Context, req *proto.ChangeRequest) ([]*proto.Member, error) {
	var err error
	unknown := false
	for attempt := range changeAttempts {
		if attempt > 0 {
			if serr := sleep(ctx, changePause<<attempt, nil); serr != nil {
				return nil, errors.Join(outcome(err, unknown), serr)
			}
		}
		var members []*proto.Member
		members, err = c.changeOnce(ctx, req)
		switch {
		case err == nil:
			return members, nil
		case unknown && req.Kind == proto.ChangeKind_CHANGE_REMOVE && errors.Is(err, ErrNotFound):
			_, members, err = c.members()
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

func (c *changes) changeOnce(ctx context.Context, req *proto.ChangeRequest) ([]*proto.Member, error) {
	if c.raft.IsLeader() {
		if err := c.lead(ctx, req); err != nil {
			return nil, err
		}
		_, members, err := c.members()
		return members, err
	}
	if req.Hops >= maxHops {
		return nil, fmt.Errorf("%s: %w", c.id.Name(), ErrNotLeader)
	}
	id, address := c.raft.Leader()
	if id == "" || id == c.id.ID() { // none, or elected but not ready
		return nil, ErrNoLeader
	}
	conn, err := c.peers.Conn(id, address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*c.opt.CallTimeout)
	defer cancel()
	resp, err := proto.NewMembershipClient(conn).Change(ctx, &proto.ChangeRequest{
		Kind: req.Kind, Member: req.Member, Force: req.Force, Hops: req.Hops + 1, KeepTokensSeconds: req.KeepTokensSeconds,
	})
	if err != nil {
		if err = fromStatus(err); errors.Is(err, ErrNotMember) {
			err = fmt.Errorf("%s %w: it was removed", c.id.Name(), ErrNotMember) // by its name
		}
		return nil, err
	}
	return resp.Members, nil
}

// lead carries out a change on the leader.
func (c *changes) lead(ctx context.Context, req *proto.ChangeRequest) error {
	if req.Kind == proto.ChangeKind_CHANGE_ADD {
		if err := c.checkReached(ctx, req.Member); err != nil {
			return err
		}
	}
	if err := c.lockChanges(ctx); err != nil {
		return err
	}
	defer c.unlockChanges()
	if req.Kind == proto.ChangeKind_CHANGE_ADD {
		return c.add(ctx, req.Member)
	}
	f := c.survey(ctx)
	if req.Kind == proto.ChangeKind_CHANGE_TRANSFER && req.Member.GetNodeId() == "" && req.Member.GetName() == "" {
		return c.transferLocked(ctx, f, "", "")
	}
	_, members, err := c.members()
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
		return c.transferLocked(ctx, f, target.ID, "")
	case proto.ChangeKind_CHANGE_PROMOTE:
		return c.promote(ctx, f, target, req.Force)
	case proto.ChangeKind_CHANGE_DEMOTE:
		return c.demote(ctx, f, target, req.Force)
	case proto.ChangeKind_CHANGE_REMOVE:
		if req.KeepTokensSeconds > maxKeepTokensSeconds {
			return fmt.Errorf("%w: remove %s: tokens may be kept for %d seconds at most", ErrRefused, target.ID, maxKeepTokensSeconds)
		}
		return c.remove(ctx, f, target, p.Name, req.Force, time.Duration(req.KeepTokensSeconds)*time.Second)
	}
	return fmt.Errorf("%w: unknown kind of change %d", ErrRefused, req.Kind)
}

// checkReached refuses a new node that is not where it says that it is. As a member it would stay for good: nobody could
// reach it, and while it does not answer no feature version rises. It is called before the lock of changes, which would keep
// all others waiting for an answer that does not come. What add refuses by itself is left to it.
func (c *changes) checkReached(ctx context.Context, p *proto.Member) error {
	id := proto.NodeID(p.GetNodeId())
	if checkMember(p) != nil || p.PeerAddress == "" {
		return nil
	}
	conf := c.raft.Members()
	_, member := conf.Find(id)
	_, taken := duplicateAddress(conf, id, p.PeerAddress)
	_, gone := c.kv.Get(TableRemoved, p.NodeId)
	cluster, _ := c.raft.Features()
	if member || taken || gone || p.FeatureVersion < cluster || c.isAt(ctx, id, p.PeerAddress, 2*c.opt.CallTimeout) {
		return nil
	}
	return fmt.Errorf("%w: add %s: %s does not reach it at %s, where it says that it is: its --peer-advertise-address must be one that all members reach",
		ErrRefused, cmp.Or(p.Name, p.NodeId), c.id.Name(), p.PeerAddress)
}

// add lets a node in without a vote, or takes note of a member's new address.
func (c *changes) add(ctx context.Context, p *proto.Member) error {
	if err := checkMember(p); err != nil {
		return fmt.Errorf("%w: add: %w", ErrRefused, err)
	}
	if p.PeerAddress == "" {
		return fmt.Errorf("%w: add %s: no peer address", ErrRefused, p.NodeId)
	}
	id := proto.NodeID(p.NodeId)
	if _, gone := c.kv.Get(TableRemoved, p.NodeId); gone {
		return fmt.Errorf("add %s: %w", id, ErrRemoved)
	}
	conf := c.raft.Members()
	old, member := conf.Find(id)
	address := p.PeerAddress
	if other, ok := duplicateAddress(conf, id, address); ok {
		if !member || !c.isAt(ctx, id, address, c.opt.CallTimeout) {
			return fmt.Errorf("%w: add %s: the address %s belongs to member %s; if that node's disk was wiped, remove that member first", ErrRefused, id, address, other)
		}
		address = alias(address)
	}
	if cluster, _ := c.raft.Features(); !member && p.FeatureVersion < cluster {
		return fmt.Errorf("add %s: it supports feature version %d, the cluster speaks %d: %w", id, p.FeatureVersion, cluster, ErrTooOld)
	}
	var err error
	switch {
	case member && old.Address == address:
		return nil
	case member && old.Voter:
		err = c.raft.AddVoter(ctx, id, address, conf.Index)
	default:
		err = c.raft.AddNonvoter(ctx, id, address, conf.Index)
	}
	if err != nil {
		return fmt.Errorf("add %s: %w", id, err)
	}
	c.log.Info("member added", "node", id, "name", p.Name, "address", address, "moved", member)
	return nil
}

// isAt says whether a member is at an address, proven by its certificate within a time.
func (c *changes) isAt(ctx context.Context, id proto.NodeID, address string, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	defer c.peers.ForgetAddress(address)
	// By its id the member would be asked where it is now.
	conn, err := c.peers.Conn("", address)
	if err == nil {
		var there peer.Peer
		if _, err = proto.NewMembershipClient(conn).Hello(ctx, &proto.HelloRequest{Self: c.self(), ClusterId: string(c.id.Cluster())}, grpc.Peer(&there)); err == nil {
			is, proven := c.opt.Caller(peer.NewContext(ctx, &there))
			return proven && is == id
		}
	}
	c.log.Debug("no answer from where a member says that it is", "node", id, "address", address, "err", err)
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

func (c *changes) promote(ctx context.Context, f facts, target Server, force bool) error {
	if err := guard(proto.ChangeKind_CHANGE_PROMOTE, target, f, force); err != nil && !target.Voter {
		return err
	}
	if err := c.kv.Delete(ctx, TableSuffrage, string(target.ID)); err != nil {
		return fmt.Errorf("promote %s: %w", target.ID, err)
	}
	if target.Voter {
		return nil
	}
	if err := c.raft.AddVoter(ctx, target.ID, target.Address, f.conf.Index); err != nil {
		return fmt.Errorf("promote %s: %w", target.ID, err)
	}
	c.log.Info("member promoted", "node", target.ID)
	return nil
}

func (c *changes) demote(ctx context.Context, f facts, target Server, force bool) error {
	if err := guard(proto.ChangeKind_CHANGE_DEMOTE, target, f, force); err != nil {
		return err
	}
	// The operator's word first: autopilot would promote it again otherwise.
	word, err := json.Marshal(map[string]any{"vote": false, "since": c.opt.Now().UTC()})
	if err == nil {
		err = c.kv.Put(ctx, TableSuffrage, string(target.ID), word, false)
	}
	if err != nil {
		return fmt.Errorf("demote %s: %w", target.ID, err)
	}
	if !target.Voter {
		return nil
	}
	if err := c.handOver(ctx, f, target); err != nil {
		return err
	}
	if err := c.raft.DemoteVoter(ctx, target.ID, f.conf.Index); err != nil {
		return fmt.Errorf("demote %s: %w", target.ID, err)
	}
	c.log.Info("member demoted", "node", target.ID)
	return nil
}

// remove takes a member out of the cluster. The service account tokens that it has signed
// end with that, or after keep.
func (c *changes) remove(ctx context.Context, f facts, target Server, name string, force bool, keep time.Duration) error {
	if err := guard(proto.ChangeKind_CHANGE_REMOVE, target, f, force); err != nil {
		return err
	}
	if others := c.sameTokenKey(target.ID); len(others) > 0 && keep == 0 && !force {
		for i, id := range others {
			others[i] = f.name(proto.NodeID(id))
		}
		return fmt.Errorf("%w: remove %s: it signs service account tokens with the same key as %s, so they would not end, and who has its disk could sign more. First stop %s, remove pki/token.key in its data directory, and start it: it makes a key of its own",
			ErrRefused, f.name(target.ID), strings.Join(others, ", "), others[0])
	}
	if err := c.handOver(ctx, f, target); err != nil {
		return err
	}
	if err := c.raft.RemoveServer(ctx, target.ID, f.conf.Index); err != nil {
		return fmt.Errorf("remove %s: %w", target.ID, err)
	}
	c.log.Info("member removed", "node", target.ID, "name", name, "itsTokensAreKeptFor", keep)
	if err := c.record(ctx, target.ID, c.removalOf(name, target.Address, keep)); err != nil {
		return fmt.Errorf("remove %s: it is out of the configuration; that its certificates and tokens count no more is not written yet, and the leader goes on trying: %w", target.ID, err)
	}
	return nil
}

// handOver transfers leadership before this leader is demoted or removed, and
// sends the caller to the new one.
func (c *changes) handOver(ctx context.Context, f facts, target Server) error {
	if target.ID != c.id.ID() {
		return nil
	}
	if err := c.transferLocked(ctx, f, "", ""); err != nil {
		return err
	}
	return fmt.Errorf("%w: leadership was transferred first; try again", ErrNotLeader)
}
