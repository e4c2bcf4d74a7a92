package membership

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/proto"
)

// keyPublisher keeps the public key that this node signs service account tokens with in
// the replicated state. The node signs nothing before its own state has the key: then all
// that it has signed can be verified, by a node that has applied as much.
type keyPublisher struct{ *base }

func (p keyPublisher) run(ctx context.Context) {
	if p.opt.Certificates == nil || p.opt.Certificates.TokenKey() == nil {
		return // it signs none
	}
	key, err := x509.MarshalPKIXPublicKey(&p.opt.Certificates.TokenKey().PublicKey)
	if err != nil {
		p.log.Error("the key that this node signs service account tokens with cannot be published: no token will be signed", "err", err)
		return
	}
	var reason, same string
	// Requests for tokens wait for the key: at first it is tried often.
	for tick := firstTick; sleep(ctx, tick, nil) == nil; tick = min(2*tick, placeEvery, p.opt.Tick) {
		err := p.once(ctx, key)
		switch {
		case err == nil:
			reason = ""
			others := p.sameTokenKey(p.id.ID())
			if now := strings.Join(others, ", "); now != same {
				same = now
				if len(others) > 0 {
					p.log.Warn("other members sign service account tokens with the key of this node: a removal of one of them ends no tokens, and who has its disk signs on. On all nodes but one of these stop the node, remove pki/token.key, and start it: it makes a key of its own", "node", p.id.ID(), "others", same)
				}
			}
		case ctx.Err() == nil && err.Error() != reason:
			reason = err.Error()
			p.log.Info("the key that this node signs service account tokens with is not published yet", "reason", err)
		}
	}
}

// once writes only what differs: an idle round is two look-ups.
func (p keyPublisher) once(ctx context.Context, key []byte) error {
	cluster := p.raft.Cluster()
	if cluster == "" {
		return nil // the record names it
	}
	want, err := json.Marshal(tokenKeyRecord{Cluster: cluster, Key: key})
	if err != nil {
		return err
	}
	id := string(p.id.ID())
	if have, _ := p.kv.Get(TableTokenKeys, id); bytes.Equal(have, want) || IsRemoved(p.kv, p.id.ID()) {
		return nil
	}
	conf := p.raft.Members()
	if _, in := conf.Find(p.id.ID()); !in {
		return nil // removed, or not added yet
	}
	ctx, cancel := context.WithTimeout(ctx, 5*p.opt.CallTimeout)
	defer cancel()
	return p.kv.Put(ctx, TableTokenKeys, id, want, false)
}

// sameTokenKey are the other members that have published the key that a node has published:
// somebody has copied the file. A node that was removed counts as long as its tokens are kept,
// but not for that: it may be this one, which has come back with its file.
func (b *base) sameTokenKey(node proto.NodeID) []string {
	own, there := b.kv.Get(TableTokenKeys, string(node))
	if !there {
		return nil
	}
	records, err := b.kv.List(TableTokenKeys)
	if err != nil {
		return nil
	}
	var same []string
	for id, raw := range records {
		if id != string(node) && bytes.Equal(raw, own) && !IsRemoved(b.kv, proto.NodeID(id)) {
			same = append(same, id)
		}
	}
	slices.Sort(same)
	return same
}

// maintainTokenKeys does on the leader what the passing of time and interrupted removals leave to
// be done in TableTokenKeys.
func (a autopilot) maintainTokenKeys(ctx context.Context) error {
	stale, err := a.staleTokenKeys()
	if err != nil || len(stale) == 0 {
		return err
	}
	// A removal that is under way may be about to say that the key stays.
	if err := a.lockChanges(ctx); err != nil {
		return err
	}
	defer a.unlockChanges()
	return a.dropTokenKeys(ctx)
}

// staleTokenKeys are the keys in TableTokenKeys of which nothing is verified any more: of
// nodes that are no members, and whose tokens were not kept or have ended. The keys are read
// before the configuration: one that is published is that of a member by then, see
// finishRemovals.
func (b *base) staleTokenKeys() ([]string, error) {
	records, err := b.kv.List(TableTokenKeys)
	if err != nil {
		return nil, err
	}
	conf := b.raft.Committed()
	if len(conf.Servers) == 0 {
		return nil, nil
	}
	var stale []string
	for id := range records {
		if _, member := conf.Find(proto.NodeID(id)); member {
			continue
		}
		raw, _ := b.kv.Get(TableRemoved, id)
		if !readRemoval(raw).TokensUntil.After(b.opt.Now()) {
			stale = append(stale, id)
		}
	}
	return stale, nil
}

// dropTokenKeys deletes what staleTokenKeys finds. The caller holds the changes.
func (c *changes) dropTokenKeys(ctx context.Context) error {
	stale, err := c.staleTokenKeys()
	if err != nil {
		return err
	}
	for _, id := range stale {
		if err := c.kv.Delete(ctx, TableTokenKeys, id); err != nil {
			return fmt.Errorf("drop the token key of %s: %w", id, err)
		}
		c.log.Info("the token key of a node that is no member is dropped", "node", id)
	}
	return nil
}

// removalOf is the record of a removal that keeps the tokens of the node for a time, or ends
// them.
func (c *changes) removalOf(name, address string, keep time.Duration) removalRecord {
	r := removalRecord{Name: name, Address: address, At: c.opt.Now().UTC()}
	if keep > 0 {
		r.TokensUntil = r.At.Add(keep)
	}
	return r
}
