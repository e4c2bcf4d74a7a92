package membership

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/quorate/quorate/proto"
)

// announcer keeps the cluster's knowledge of this node true: its address in the
// Raft configuration, its name and API address in TableMembers. It writes only
// what differs, so an idle round costs two look-ups.
type announcer struct{ *changes }

func (a announcer) run(ctx context.Context) {
	pause := firstTick
	for {
		if err := a.once(ctx); err != nil && ctx.Err() == nil {
			a.log.Debug("cannot announce this node yet", "err", err)
			pause = min(2*pause, a.opt.Tick)
		} else {
			pause = a.opt.Tick
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

func (a announcer) once(ctx context.Context) error {
	conf := a.raft.Members()
	own, in := conf.Find(a.id.ID())
	if !in {
		return errors.New("this node is not in the configuration")
	}
	ctx, cancel := context.WithTimeout(ctx, 5*a.opt.CallTimeout)
	defer cancel()
	if own.Address != a.opt.PeerAddress {
		if err := a.announceAddress(ctx, conf); err != nil {
			return err
		}
	}
	want, err := json.Marshal(memberRecord{
		Name: a.id.Name(), PeerAddress: a.opt.PeerAddress, APIAddress: a.opt.APIAddress,
		WantsVote: !a.opt.NonVoter, Version: a.opt.Version,
	})
	if err != nil {
		return err
	}
	if have, _ := a.kv.Get(TableMembers, string(a.id.ID())); bytes.Equal(have, want) {
		return nil
	}
	return a.kv.Put(ctx, TableMembers, string(a.id.ID()), want, false)
}

// announceAddress tells any member that answers; it forwards to the leader. The
// leader cannot reach this node at the old address, so waiting for it is no use.
func (a announcer) announceAddress(ctx context.Context, conf Configuration) error {
	if a.raft.IsLeader() {
		return a.lead(ctx, &proto.ChangeRequest{Kind: proto.ChangeKind_CHANGE_ADD, Member: a.self()})
	}
	var last error
	for _, s := range conf.Servers {
		if s.ID == a.id.ID() {
			continue
		}
		if last = a.askToJoin(ctx, s.ID, s.Address); last == nil {
			return nil
		}
	}
	return fmt.Errorf("announce address %s: %w", a.opt.PeerAddress, last)
}
