package membership

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/quorate/quorate/proto"
)

// announce keeps the cluster's knowledge of this node true: its address in the
// Raft configuration, its name and API address in TableMembers. It writes only
// what differs, so an idle round costs two look-ups.
func (m *Manager) announce(ctx context.Context) {
	pause := firstTick
	for {
		if err := m.announceOnce(ctx); err != nil && ctx.Err() == nil {
			m.log.Debug("cannot announce this node yet", "err", err)
			pause = min(2*pause, m.opt.Tick)
		} else {
			pause = m.opt.Tick
		}
		if sleep(ctx, pause, nil) != nil {
			return
		}
	}
}

// Announced says whether this node's state holds a record of the node, if not always the newest:
// from then on, administrators can name it. It answers from memory. Safe for concurrent use.
func (b *base) Announced() bool {
	_, ok := b.kv.Get(TableMembers, string(b.id.ID()))
	return ok
}

func (m *Manager) announceOnce(ctx context.Context) error {
	conf, err := m.raft.Members()
	if err != nil {
		return err
	}
	own, in := conf.Find(m.id.ID())
	if !in {
		return errors.New("this node is not in the configuration")
	}
	ctx, cancel := context.WithTimeout(ctx, 5*m.opt.CallTimeout)
	defer cancel()
	if own.Address != m.opt.PeerAddress {
		if err := m.announceAddress(ctx, conf); err != nil {
			return err
		}
	}
	want, err := json.Marshal(memberRecord{
		Name: m.id.Name(), PeerAddress: m.opt.PeerAddress, APIAddress: m.opt.APIAddress,
		WantsVote: !m.opt.NonVoter, Version: m.opt.Version,
	})
	if err != nil {
		return err
	}
	if have, _ := m.kv.Get(TableMembers, string(m.id.ID())); bytes.Equal(have, want) {
		return nil
	}
	return m.kv.Put(ctx, TableMembers, string(m.id.ID()), want, false)
}

// announceAddress tells any member that answers; it forwards to the leader. The
// leader cannot reach this node at the old address, so waiting for it is no use.
func (m *Manager) announceAddress(ctx context.Context, conf Configuration) error {
	if m.raft.IsLeader() {
		return m.lead(ctx, &proto.ChangeRequest{Kind: proto.ChangeKind_CHANGE_ADD, Member: m.self()})
	}
	var last error
	for _, s := range conf.Servers {
		if s.ID == m.id.ID() {
			continue
		}
		if last = m.askToJoin(ctx, s.ID, s.Address); last == nil {
			return nil
		}
	}
	return fmt.Errorf("announce address %s: %w", m.opt.PeerAddress, last)
}
