package membership

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/quorate/quorate/proto"
)

// autopilot promotes, while this node leads, the non-voters that want a vote and have been
// caught up for Limits.Stable, completes removals that were interrupted, and drops token keys
// that verify nothing any more. Members without a vote that are gone are removed by removeSilent.
func (m *Manager) autopilot(ctx context.Context) {
	tick := min(m.opt.Tick, max(m.opt.Limits.Stable/4, firstTick))
	for sleep(ctx, tick, nil) == nil {
		if !m.raft.IsLeader() {
			m.resetHealth()
			continue
		}
		if err := errors.Join(m.finishRemovals(ctx), m.maintainTokenKeys(ctx), m.promoteStable(ctx)); err != nil && ctx.Err() == nil {
			m.log.Warn("autopilot failed, retrying", "err", err)
		}
	}
}

// promoteStable promotes at most one node.
func (m *Manager) promoteStable(ctx context.Context) error {
	conf, err := m.raft.Members()
	if err != nil {
		return err
	}
	waiting := false
	for _, s := range conf.Servers {
		waiting = waiting || !s.Voter && m.wantsVote(s.ID)
	}
	if !waiting {
		m.resetHealth() // nothing to watch: ask nobody
		return nil
	}
	if err := m.lockChanges(ctx); err != nil {
		return err
	}
	defer m.unlockChanges()
	f, err := m.survey(ctx)
	if err != nil {
		return err
	}
	for _, s := range f.conf.Servers {
		if s.Voter || !m.wantsVote(s.ID) || !f.stable(s.ID) {
			continue
		}
		if err := guard(proto.ChangeKind_CHANGE_PROMOTE, s, f, false); err != nil {
			m.log.Debug("autopilot does not promote yet", "reason", err)
			continue
		}
		return m.promote(ctx, f, s, false)
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
