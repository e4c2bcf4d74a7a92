package sim

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/quorate/quorate/test/judges/history"
)

// Result is what became of one seed.
type Result struct {
	Seed    uint64
	Profile string
	// Histories of the run, and of the clusters that backups were restored into.
	Histories []*history.History
	// Broken are violations that the run itself has found: Raft's invariants, nodes
	// that end or do not start without a reason, clusters that do not recover.
	Broken []string
	// Ends counts why processes ended by themselves.
	Ends map[string]int
	// Left says that goroutines were still blocked when everything was closed.
	Left bool
}

// Run plays one seed. It must be called in a synctest bubble. Data directories are
// made in a directory below scratch, which is removed. Nodes log to output unless
// it is nil.
func Run(seed uint64, scratch string, output io.Writer) *Result {
	dir, err := os.MkdirTemp(scratch, fmt.Sprintf("seed-%d-", seed))
	if err != nil {
		return &Result{Seed: seed, Broken: []string{err.Error()}}
	}
	defer os.RemoveAll(dir)
	p := newProfile(seed, rand.New(rand.NewPCG(seed, 0)))
	c := newCluster(p, seed, dir, output)
	r := &Result{Seed: seed, Profile: p.name}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	err = c.form(ctx)
	cancel()
	if err != nil {
		c.fail("%v", err)
	} else {
		h := c.play(seed)
		r.Histories = append(r.Histories, h)
		if p.restore {
			again, broken := c.restore(seed, h)
			r.Histories = append(r.Histories, again...)
			r.Broken = append(r.Broken, broken...)
		}
	}
	c.close()
	// Timers of what has ended run out: time stands still when this returns.
	time.Sleep(time.Minute)
	r.Broken = append(r.Broken, c.broken...)
	r.Broken = append(r.Broken, c.trace.violations()...)
	r.Ends = c.ends
	return r
}

// play lets clients and faults loose, heals, and returns what happened.
func (c *cluster) play(seed uint64) *history.History {
	h := &history.History{Name: "sim/" + c.profile.name, Seed: seed}
	faultsEnd, clientsEnd, watchersEnd := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var clientTasks, watcherTasks, nemesisTask sync.WaitGroup
	clients := make([]*client, c.profile.clients)
	for i := range clients {
		k := newClient(c, i+1, rand.New(rand.NewPCG(seed, uint64(100+i))))
		clients[i] = k
		clientTasks.Go(func() { k.run(clientsEnd) })
	}
	deciders := make([]*decider, c.profile.deciders)
	for i := range deciders {
		d := &decider{c: c, rng: rand.New(rand.NewPCG(seed, uint64(300+i))), id: 31 + i, changes: i == 0}
		deciders[i] = d
		clientTasks.Go(func() { d.run(clientsEnd) })
	}
	for i := range c.profile.chargers {
		k := &charger{c, rand.New(rand.NewPCG(seed, uint64(400+i)))}
		clientTasks.Go(func() { k.run(clientsEnd) })
	}
	watchers := make([]*watcher, c.profile.watchers)
	for i := range watchers {
		w := newWatcher(c, 51+i, rand.New(rand.NewPCG(seed, uint64(200+i))), watchersEnd)
		watchers[i] = w
		watcherTasks.Go(w.run)
	}
	n := &nemesis{c: c, rng: rand.New(rand.NewPCG(seed, 3)), stop: faultsEnd}
	nemesisTask.Go(n.run)

	time.Sleep(c.profile.length)
	close(faultsEnd)
	nemesisTask.Wait()
	c.net.heal()
	time.Sleep(500 * time.Millisecond)
	close(clientsEnd)
	clientTasks.Wait()
	c.settle()
	if c.profile.chargers > 0 {
		c.limits()
	}
	// The watchers get what there is to get.
	time.Sleep(c.profile.bookmark + 300*time.Millisecond)
	close(watchersEnd)
	watcherTasks.Wait()

	for _, k := range append(clients, n.writers...) {
		h.Ops = append(h.Ops, k.Ops...)
	}
	slices.SortStableFunc(h.Ops, func(a, b history.Op) int { return cmp.Compare(a.Call, b.Call) })
	for _, d := range deciders {
		h.Decisions = append(h.Decisions, d.did...)
	}
	for _, w := range watchers {
		h.Watches = append(h.Watches, w.Watches...)
		h.Relists += w.relists
		h.Overtaken += w.overtaken
	}
	c.mu.Lock()
	h.Faults = append(h.Faults, c.faults...)
	c.mu.Unlock()
	h.Log = c.trace.log()
	h.States = c.states()
	return h
}
