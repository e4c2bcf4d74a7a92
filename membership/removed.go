package membership

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/quorate/quorate/proto"
)

// A removal has two steps: the configuration without the member, and the record in
// TableRemoved by which all nodes refuse what the member's disk still has. The record
// comes second: a member that is refused and cannot be removed (no leader any more) would
// be cut off and still count for the majority. Between the two the leader keeps it from
// writing and reading, by its configuration; should the second step fail, the next leader
// makes up for it: finishRemovals.

// IsRemoved says whether a node was removed from the cluster, as far as a state knows.
// Safe for concurrent use; it does not wait.
func IsRemoved(kv interface {
	Get(table, key string) ([]byte, bool)
}, id proto.NodeID) bool {
	_, gone := kv.Get(TableRemoved, string(id))
	return gone
}

// followRemovals carries out here what a removal means, as soon as this node's state has
// the record: it ends the connections that the removed node has open.
func (b *base) followRemovals(ctx context.Context) {
	changed, stop, err := b.kv.Changes(TableRemoved)
	if err != nil {
		b.log.Error("removals of members are not followed: connections of removed nodes stay open until this node is restarted", "err", err)
		return
	}
	defer stop()
	known := map[string]bool{}
	for {
		records, err := b.kv.List(TableRemoved)
		if err != nil {
			b.log.Warn("removals of members cannot be read", "err", err)
		}
		for id := range records {
			if !known[id] {
				known[id] = true
				b.peers.Expel(proto.NodeID(id))
				b.opt.OnRemoved(proto.NodeID(id))
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// record says that a member was removed, and forgets what there was about it. The caller
// holds the changes.
func (c *changes) record(ctx context.Context, id proto.NodeID, r removalRecord) error {
	word, err := json.Marshal(r)
	if err != nil {
		return err
	}
	// If the first fails the others are kept: they are how finishRemovals knows.
	if err := c.kv.Put(ctx, TableRemoved, string(id), word, false); err != nil {
		return err
	}
	return errors.Join(
		c.kv.Delete(ctx, TableSuffrage, string(id)),
		c.kv.Delete(ctx, TableDiverged, string(id)),
		c.kv.Delete(ctx, TableMembers, string(id)),
		c.dropTokenKeys(ctx),
	)
}

// finishRemovals writes, on the leader, the records that an interrupted removal has left
// out. What a node says about itself is written after it was in the configuration; so a
// node of which there is such a word, and which is not in a configuration that is committed,
// was removed. The words are read first: a configuration from before them proves nothing.
// Nor does one that is not committed: when it is truncated, the node is a member again, and
// all would refuse one that counts for the majority.
func (c *changes) finishRemovals(ctx context.Context) error {
	records, err := c.records()
	if err != nil {
		return err
	}
	conf := c.raft.Committed()
	if len(conf.Servers) == 0 {
		return nil
	}
	for id, r := range records {
		if _, member := conf.Find(id); member {
			continue
		}
		if IsRemoved(c.kv, id) { // its last word about itself came late
			if err := c.kv.Delete(ctx, TableMembers, string(id)); err != nil {
				return fmt.Errorf("forget %s: %w", id, err)
			}
			continue
		}
		if err := c.finishRemoval(ctx, id, r); err != nil {
			return fmt.Errorf("finish the removal of %s: %w", id, err)
		}
	}
	return nil
}

// finishRemoval writes one record, unless the removal is still under way here and writes it
// itself, or the node is a member again. Whether the operator wanted to keep the node's tokens is not known: they end.
func (c *changes) finishRemoval(ctx context.Context, id proto.NodeID, r memberRecord) error {
	if err := c.lockChanges(ctx); err != nil {
		return err
	}
	defer c.unlockChanges()
	// It may have been added again meanwhile, when it came back under another address and
	// said so: nobody would listen to a member that counts.
	if _, member := c.raft.Committed().Find(id); member || IsRemoved(c.kv, id) {
		return nil
	}
	if err := c.record(ctx, id, c.removalOf(r.Name, r.PeerAddress, 0)); err != nil {
		return err
	}
	c.log.Info("an interrupted removal of a member is complete", "node", id, "name", r.Name)
	return nil
}
