package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/disk"
	"github.com/quorate/quorate/test/history"
)

// restored is a cluster that was made of a backup, and what it was made of.
type restored struct {
	*cluster
	// issued is the newest revision that the old cluster had given to anybody.
	issued uint64
	// backup is the revision of the backup.
	backup uint64
	live   []history.Item // its objects
}

// backup saves a snapshot through a node, as quorate snapshot save does.
func (c *cluster) backup() (*bytes.Buffer, *node, error) {
	ctx, cancel := context.WithTimeout(context.Background(), recovery)
	defer cancel()
	for ctx.Err() == nil {
		if l := c.leader(); l != nil {
			var b bytes.Buffer
			_, err := l.store.SaveSnapshot(&b)
			if err == nil {
				err = disk.Verify(bytes.NewReader(b.Bytes()))
			}
			return &b, l, err
		}
		_ = sleep(ctx, 20*time.Millisecond)
	}
	return nil, nil, errors.New("backup: there is no leader")
}

// restore makes a new cluster of a backup of this one, which goes on to
// acknowledge writes after it: those are lost, and their revisions must never be
// given to others.
func (c *cluster) restore(seed uint64, h *history.History) (*history.History, []string) {
	b, from, err := c.backup()
	if err != nil {
		return nil, []string{err.Error()}
	}
	n := &restored{backup: uint64(from.store.Applied()), live: c.liveOn(from)}
	// The old cluster goes on.
	k := &client{c: c, id: 9000, rng: rand.New(rand.NewPCG(seed, 7)), mine: map[string]uint64{}}
	for range 20 {
		k.step()
	}
	n.issued = c.seen.Newest()

	dir := filepath.Join(c.dir, "restored")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, []string{err.Error()}
	}
	p := c.profile
	p.voters, p.nonvoters, p.slow, p.length = 1, 0, 0, time.Second
	n.cluster = newCluster(p, seed+1<<40, dir, c.output)
	n.seen.Note(history.Item{Revision: n.issued})
	n.began = c.began
	again := n.again(seed, b, h)
	n.close()
	return again, append(n.broken, n.trace.violations()...)
}

// liveOn are a node's objects.
func (c *cluster) liveOn(n *node) (out []history.Item) {
	r := &client{c: c, id: 9001, rng: c.rng, mine: map[string]uint64{}}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	op := history.Op{Kind: history.List, Mode: history.Any}
	o, ok := r.read(ctx, n.seat, &op, collection(""), url.Values{"resourceVersion": {"0"}})
	if ok {
		for i := range o.Items {
			out = append(out, itemOf(&o.Items[i]))
		}
	}
	return out
}

// again restores the backup, checks what clients of the old cluster get, lets two
// more nodes join, and has clients work for a while.
func (n *restored) again(seed uint64, b *bytes.Buffer, old *history.History) *history.History {
	s := n.add("y1", n.profile.timing)
	rec, err := disk.RestoreBackup(s.dir, bytes.NewReader(b.Bytes()), disk.RestoreOptions{
		Cluster:       "sim-restored",
		Configuration: raft.Configuration{Servers: []raft.Server{{ID: "y1", Address: "y1", Suffrage: raft.Voter}}},
	})
	if err != nil {
		n.fail("%v", err)
		return nil
	}
	n.trace.floor = rec.Floor
	if rec.Applied <= n.issued {
		n.fail("restore: the new cluster begins at %d; the old one had given out %d", rec.Applied, n.issued)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := errors.Join(s.start(), n.ready(ctx)); err != nil {
		n.fail("%v", err)
		return nil
	}
	n.same(n.liveOn(s.running()))
	for i := 2; i <= 3; i++ {
		m := n.add(fmt.Sprintf("y%d", i), n.profile.timing)
		if err := errors.Join(m.start(), n.member(ctx, "add", m.name), n.member(ctx, "promote", m.name)); err != nil {
			n.fail("%v", err)
			return nil
		}
	}
	n.strangersFromBefore(old, rand.New(rand.NewPCG(seed, 8)))
	h := n.play(seed)
	h.Name += "/restored"
	h.LogFrom = rec.Applied
	for i := range h.Log {
		if h.Log[i].Revision <= n.issued {
			n.fail("restore: revision %d was given out again, to %s=%s", h.Log[i].Revision, h.Log[i].Key, h.Log[i].Value)
		}
	}
	return h
}

// same compares the restored objects with those in the backup.
func (n *restored) same(got []history.Item) {
	if fmt.Sprint(got) != fmt.Sprint(n.live) {
		n.fail("restore: the backup held %v, the new cluster holds %v", n.live, got)
	}
}

// strangersFromBefore are watchers, readers and pagers of the old cluster: each
// must be told 410, on every node, and nothing else.
func (n *restored) strangersFromBefore(old *history.History, rng *rand.Rand) {
	var froms []uint64
	for range 6 {
		if w := old.Watches; len(w) > 0 {
			events := w[rng.IntN(len(w))].Events
			if len(events) > 0 {
				froms = append(froms, events[rng.IntN(len(events))].Revision)
			}
		}
	}
	froms = append(froms, n.backup, n.issued)
	var tasks sync.WaitGroup
	for _, from := range froms {
		if from == 0 {
			continue
		}
		for _, s := range n.members() {
			tasks.Go(func() { n.gone(s, from) })
		}
	}
	tasks.Wait()
}

// gone checks that a node knows nothing of an old revision.
func (n *restored) gone(s *seat, from uint64) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	rv := strconv.FormatUint(from, 10)
	for name, q := range map[string]url.Values{
		"an exact list":    {"resourceVersion": {rv}, "resourceVersionMatch": {"Exact"}},
		"a continued list": {"limit": {"2"}, "continue": {consistency.After("default/k1", proto.Revision(from)).Encode()}},
	} {
		if a, err := s.call(ctx, "GET", collection(""), q, nil); err != nil || a.code != 410 {
			n.fail("restore: %s at the old revision %d on %s: %d %s, %v, want 410", name, from, s.name, a.code, a.body, err)
		}
	}
	in, err := s.open(ctx, collection(""), url.Values{"watch": {"1"}, "resourceVersion": {rv}, "allowWatchBookmarks": {"true"}})
	if err != nil {
		n.fail("restore: watch on %s: %v", s.name, err)
		return
	}
	data, err := in.next()
	if err != nil || !bytes.Contains(data, []byte(`"code":410`)) {
		n.fail("restore: a watch from the old revision %d on %s got %q, %v, want 410 and nothing else", from, s.name, data, err)
	}
}
