package membership

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/quorate/quorate/proto"
)

// autopilot promotes, while this node leads, the non-voters that want a vote and have been
// caught up for Limits.Stable, completes removals that were interrupted, and drops token keys
// that verify nothing any more. Members without a vote that are gone are removed by silenceWatch.
type autopilot struct{ *changes }

func (a autopilot) run(ctx context.Context) {
	tick := min(a.opt.Tick, max(a.opt.Limits.Stable/4, firstTick))
	for sleep(ctx, tick, nil) == nil {
		if !a.raft.IsLeader() {
			a.resetHealth()
			continue
		}
		if err := errors.Join(a.finishRemovals(ctx), a.maintainTokenKeys(ctx), a.promoteStable(ctx)); err != nil && ctx.Err() == nil {
			a.log.Warn("autopilot failed, retrying", "err", err)
		}
	}
}

// promoteStable promotes at most one node.
func (a autopilot) promoteStable(ctx context.Context) error {
	conf := a.raft.Members()
	waiting := false
	for _, s := range conf.Servers {
		waiting = waiting || !s.Voter && a.wantsVote(s.ID)
	}
	if !waiting {
		a.resetHealth() // nothing to watch: ask nobody
		return nil
	}
	if err := a.lockChanges(ctx); err != nil {
		return err
	}
	defer a.unlockChanges()
	f := a.survey(ctx)
	for _, s := range f.conf.Servers {
		if s.Voter || !a.wantsVote(s.ID) || !f.stable(s.ID) {
			continue
		}
		if err := guard(proto.ChangeKind_CHANGE_PROMOTE, s, f, false); err != nil {
			a.log.Debug("autopilot does not promote yet", "reason", err)
			continue
		}
		return a.promote(ctx, f, s, false)
	}
	return nil
}

// wantsVote says what the node wishes, unless an operator has demoted it.
func (b *base) wantsVote(id proto.NodeID) bool {
	if _, demoted := b.kv.Get(TableSuffrage, string(id)); demoted {
		return false
	}
	var r memberRecord
	raw, ok := b.kv.Get(TableMembers, string(id))
	return ok && json.Unmarshal(raw, &r) == nil && r.WantsVote
}
