package membership

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/quorate/quorate/proto"
)

// storageTicks is after how many ticks a leader asks the voters again what they have room for: a node is
// told when it starts, and starts seldom.
const storageTicks = 30

// storageAgreement has, while this node leads, the live keys take no more than the voter with the least room
// wants.
type storageAgreement struct{ *base }

func (s storageAgreement) run(ctx context.Context) {
	var asked time.Time
	var index uint64 // of the configuration whose voters were asked
	s.eachTick(ctx, "the storage limit is not agreed on yet", func(ctx context.Context) error {
		if !s.raft.IsLeader() {
			asked = time.Time{}
			return nil
		}
		conf := s.raft.Members()
		if conf.Index == index && time.Since(asked) < storageTicks*s.opt.Tick {
			return nil
		}
		err := s.agree(ctx, conf)
		if err == nil {
			asked, index = time.Now(), conf.Index
		}
		return err
	})
}

// agree asks the voters of a configuration, and changes the limit if it is another one.
func (s storageAgreement) agree(ctx context.Context, conf Configuration) error {
	limit, err := storageLimit(conf.Servers, s.askAll(ctx, conf.Servers))
	if err != nil && limit == math.MaxInt64 {
		return err
	}
	// A limit falls when one voter says less, and rises when all have said more: one that does not answer
	// may have as little as before.
	if now := s.raft.StorageLimit(); limit == now || limit > now && now != 0 && err != nil {
		return err
	}
	if err := s.raft.LimitStorage(ctx, limit, conf.Index); err != nil {
		return err
	}
	s.log.Info("the storage limit is agreed on", "bytes", limit)
	return err
}

// storageLimit is the least that a voter has said. Errors: one that has said nothing.
func storageLimit(servers []Server, answers map[proto.NodeID]statusAnswer) (limit int64, err error) {
	limit = math.MaxInt64
	for _, s := range servers {
		switch a := answers[s.ID]; {
		case !s.Voter:
		case a.err != nil:
			err = fmt.Errorf("member %s at %s does not say how much it stores: %w", s.ID, s.Address, a.err)
		case a.status.GetStorageBytes() == 0:
			err = fmt.Errorf("member %s at %s does not say how much it stores: its release is older", s.ID, s.Address)
		default:
			limit = min(limit, int64(min(a.status.StorageBytes, math.MaxInt64)))
		}
	}
	return limit, err
}
