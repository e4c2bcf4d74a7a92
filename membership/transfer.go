package membership

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quorate/quorate/proto"
)

// transferGuard remembers the followers to which a transfer has failed. A second
// transfer to a follower whose replication hangs blocks every write of this
// leader for good (raft#696), so it gets none before its log has moved.
type transferGuard struct {
	mu     sync.Mutex
	term   uint64
	failed map[proto.NodeID]uint64 // its last log index at that time
}

// check returns why a follower may not be tried, or "".
func (g *transferGuard) check(term uint64, id proto.NodeID, last uint64) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.term != term {
		return "" // the failures were another leadership's
	}
	if at, ok := g.failed[id]; ok && last <= at {
		return fmt.Sprintf("a transfer to it has failed, and its log has not moved from %d since", at)
	}
	return ""
}

func (g *transferGuard) fail(term uint64, id proto.NodeID, last uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.term != term || g.failed == nil {
		g.term, g.failed = term, map[proto.NodeID]uint64{}
	}
	g.failed[id] = last
}

// Transfer hands leadership to a caught-up voter: the one with the id or name
// to, or the most caught-up one if to is empty. Any member forwards it. It returns
// when the transfer was accepted, with ErrRefused when no voter is fit.
func (c *changes) Transfer(ctx context.Context, to string) error {
	_, err := c.change(ctx, &proto.ChangeRequest{Kind: proto.ChangeKind_CHANGE_TRANSFER, Member: &proto.Member{NodeId: to}})
	return err
}

// stepDownShare is the part of the time of a StepDown that the members have to
// answer in: one that is paused must not cost the time that the transfer needs.
const stepDownShare = 3

// StepDown hands leadership to the best live voter before an orderly stop. It
// does nothing on a node that does not lead, or that is the only voter: then there
// is nobody to lead. It takes no longer than ctx.
func (c *changes) StepDown(ctx context.Context) error {
	if !c.raft.IsLeader() {
		return nil
	}
	conf := c.raft.Members()
	if !slices.ContainsFunc(conf.Servers, func(s Server) bool { return s.Voter && s.ID != c.id.ID() }) {
		return nil
	}
	if err := c.lockChanges(ctx); err != nil {
		return err
	}
	defer c.unlockChanges()
	ask, cancel := ctx, func() {}
	if deadline, ok := ctx.Deadline(); ok {
		ask, cancel = context.WithTimeout(ctx, time.Until(deadline)/stepDownShare)
	}
	f := c.survey(ask)
	cancel()
	return c.transferLocked(ctx, f, "", "")
}

// transferLocked transfers to a node, or to the best one but except. The caller
// holds the change lock.
func (c *changes) transferLocked(ctx context.Context, f facts, to, except proto.NodeID) error {
	if to == c.id.ID() {
		return nil // it leads already
	}
	term := c.raft.Status(ctx).Term
	var best []Server
	var why []string
	for _, s := range f.conf.Servers {
		if s.ID == c.id.ID() || s.ID == except || to != "" && s.ID != to || to == "" && !s.Voter {
			continue
		}
		err := guard(proto.ChangeKind_CHANGE_TRANSFER, s, f, false)
		if err == nil {
			if stuck := c.transfers.check(term, s.ID, f.health[s.ID].last); stuck != "" {
				err = fmt.Errorf("%w: transfer leadership to %s: %s", ErrRefused, f.name(s.ID), stuck)
			}
		}
		if err != nil && to != "" {
			return err
		}
		if err != nil {
			why = append(why, strings.TrimPrefix(err.Error(), ErrRefused.Error()+": "))
			continue
		}
		best = append(best, s)
	}
	if len(best) == 0 {
		return fmt.Errorf("%w: no voter can take over: %s", ErrRefused, cmp.Or(strings.Join(why, "; "), "there is no other voter"))
	}
	slices.SortStableFunc(best, func(a, b Server) int { return cmp.Compare(f.health[a.ID].behind, f.health[b.ID].behind) })
	target := best[0]
	if err := c.raft.TransferLeadership(ctx, target.ID); err != nil {
		if !errors.Is(err, ErrNotLeader) {
			c.transfers.fail(term, target.ID, f.health[target.ID].last)
		}
		return fmt.Errorf("transfer leadership to %s: %w", target.ID, err)
	}
	c.log.Info("leadership transferred", "to", target.ID)
	c.awaitLeader(ctx)
	return nil
}

// newLeaderWithin is how long a transfer waits until the new leader is known here,
// so that what is shown afterwards names it.
const newLeaderWithin = 2 * time.Second

// awaitLeader returns when this node knows another leader, or after a while.
func (c *changes) awaitLeader(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, newLeaderWithin)
	defer cancel()
	for {
		if id, _ := c.raft.Leader(); id != "" && id != c.id.ID() {
			return
		}
		if sleep(ctx, 10*time.Millisecond, nil) != nil {
			return
		}
	}
}
