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
	"github.com/quorate/quorate/test/judges/history"
	"github.com/quorate/quorate/test/judges/wire"
)

// restored is a cluster that was made of a backup, and what it was made of.
type restored struct {
	*cluster
	archive
	// issued is the newest revision that any cluster before has given to anybody.
	issued uint64
	// letter begins the names of the nodes, and so the values that are written there: no
	// two clusters write the same.
	letter rune
}

// archive is a backup, and what it holds.
type archive struct {
	bytes    []byte
	revision uint64
	live     []history.Item
}

// backup saves a snapshot through a node, as quorate snapshot save does.
func (c *cluster) backup() (archive, error) {
	ctx, cancel := context.WithTimeout(context.Background(), recovery)
	defer cancel()
	for ctx.Err() == nil {
		if l := c.leader(); l != nil {
			var b bytes.Buffer
			_, err := l.store.SaveSnapshot(&b, nil)
			if err == nil {
				err = disk.Verify(bytes.NewReader(b.Bytes()))
			}
			return archive{b.Bytes(), uint64(l.store.Applied()), c.liveOn(l)}, err
		}
		_ = sleep(ctx, 20*time.Millisecond)
	}
	return archive{}, errors.New("backup: there is no leader")
}

// restores is how many clusters are made, one after the other.
const restores = 4

// restore makes new clusters of backups, one after the other, as an operator who looks
// at what came of it and wants something else: first of a backup of this cluster,
// which goes on to acknowledge writes after it; of the same backup again; then of any,
// of a backup of a restored cluster or of an older one. What is written after a backup
// is lost, and its revisions must never be given to others, by none of the clusters.
func (c *cluster) restore(seed uint64, h *history.History) (all []*history.History, broken []string) {
	b, err := c.backup()
	if err != nil {
		return nil, []string{err.Error()}
	}
	// The old cluster goes on.
	k := newClient(c, 9000, rand.New(rand.NewPCG(seed, 7)))
	for range 20 {
		k.step()
	}
	rng := rand.New(rand.NewPCG(seed, 9))
	archives, issued, before := []archive{b}, c.seen.Newest(), []*history.History{h}
	for i := range restores {
		from := archives[0]
		if i > 1 {
			from = archives[rng.IntN(len(archives))]
		}
		n := c.restored(seed, i, from, issued)
		again := n.again(seed, before, rng)
		if again != nil {
			all, before = append(all, again), append(before, again)
			if next, err := n.backup(); err != nil {
				n.fail("%v", err)
			} else {
				archives = append(archives, next)
				n.late(seed)
			}
		}
		issued = max(issued, n.newest())
		n.close()
		broken = append(append(broken, n.broken...), n.trace.violations()...)
		if len(broken) > 0 {
			break
		}
	}
	return all, broken
}

// restored prepares the cluster that a backup becomes. The first is of three nodes and
// works for a while; the others are of one.
func (c *cluster) restored(seed uint64, i int, from archive, issued uint64) *restored {
	p := c.profile
	p.voters, p.nonvoters, p.slow, p.length = 1, 0, 0, time.Second
	p.chargers = 0 // what the backup holds of theirs is in no trace
	if i > 0 {
		p.length = 300 * time.Millisecond
	}
	n := &restored{archive: from, issued: issued, letter: 'p' + rune(i)}
	n.cluster = newCluster(p, seed+uint64(i+1)<<40, filepath.Join(c.dir, fmt.Sprintf("restored-%d", i)), c.output)
	// Clients keep the revisions that they have.
	n.seen.Note(history.Item{Revision: issued})
	n.began = c.began
	return n
}

func (n *restored) name(i int) string { return fmt.Sprintf("%c%d", n.letter, i) }

// late are writes after the cluster's own backup.
func (n *restored) late(seed uint64) {
	k := newClient(n.cluster, 9002, rand.New(rand.NewPCG(seed, 10)))
	for range 10 {
		k.step()
	}
}

// newest is the newest revision that a node of this cluster has applied, which is at
// least what it has given out.
func (n *restored) newest() uint64 {
	newest := n.seen.Newest()
	for _, s := range n.all() {
		if m := s.running(); m != nil {
			newest = max(newest, uint64(m.store.Applied()))
		}
	}
	return newest
}

// wallClock is what the clock of the machine says on which a backup is restored: the
// bubble's begins in 2000, and those of two hosts differ by up to half a second.
func wallClock(rng *rand.Rand) time.Time {
	return time.Now().AddDate(30, 0, 0).Add(time.Duration(rng.Int64N(int64(time.Second))) - time.Second/2)
}

// liveOn are a node's objects.
func (c *cluster) liveOn(n *node) (out []history.Item) {
	r := newClient(c, 9001, c.rng)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	op := history.Op{Kind: history.List, Mode: history.Any}
	o, ok := r.Read(ctx, n.seat, &op, collection(""), wire.Query(&op))
	if ok {
		for i := range o.Items {
			out = append(out, itemOf(&o.Items[i]))
		}
	}
	return out
}

// again restores the backup, checks what clients of the clusters before get, lets two
// more nodes join the first time, and has clients work for a while.
func (n *restored) again(seed uint64, before []*history.History, rng *rand.Rand) *history.History {
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		n.fail("%v", err)
		return nil
	}
	s := n.add(n.name(1), n.profile.timing)
	done, err := disk.RestoreBackup(s.dir, bytes.NewReader(n.bytes), disk.RestoreOptions{
		Cluster: proto.ClusterID(filepath.Base(n.dir)), Now: wallClock(rng),
		Configuration: raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(s.name), Address: raft.ServerAddress(s.name), Suffrage: raft.Voter}}},
	})
	if err != nil {
		n.fail("%v", err)
		return nil
	}
	rec := done.StateRecord
	n.trace.floor = rec.Floor
	if rec.Applied <= n.issued {
		n.fail("restore: the new cluster begins at %d; %d was given out before", rec.Applied, n.issued)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := errors.Join(s.start(), n.ready(ctx)); err != nil {
		n.fail("%v", err)
		return nil
	}
	n.same(n.liveOn(s.running()))
	for i := 2; i <= 3 && len(before) == 1; i++ {
		m := n.add(n.name(i), n.profile.timing)
		if err := errors.Join(m.start(), n.member(ctx, "add", m.name), n.member(ctx, "promote", m.name)); err != nil {
			n.fail("%v", err)
			return nil
		}
	}
	n.strangersFromBefore(before, rand.New(rand.NewPCG(seed, 8)))
	h := n.play(seed)
	h.Name += "/" + filepath.Base(n.dir)
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

// strangersFromBefore are watchers, readers and pagers of the clusters before: each
// must be told 410, on every node, and nothing else.
func (n *restored) strangersFromBefore(before []*history.History, rng *rand.Rand) {
	var froms []uint64
	for range 6 {
		if w := before[rng.IntN(len(before))].Watches; len(w) > 0 {
			events := w[rng.IntN(len(w))].Events
			if len(events) > 0 {
				froms = append(froms, events[rng.IntN(len(events))].Revision)
			}
		}
	}
	froms = append(froms, n.revision, n.issued)
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
		if a, err := s.call(ctx, wire.Request{Method: "GET", Path: collection(""), Query: q}); err != nil || a.Code != 410 {
			n.fail("restore: %s at the old revision %d on %s: %d %s, %v, want 410", name, from, s.name, a.Code, a.Body, err)
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
