package raftstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"

	"github.com/quorate/quorate/raftstore/replication"
)

// Where many are under way on average, one proposal goes alone, those that come meanwhile go together
// when it is answered, and none waits for longer than hold.
func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := batches{load: 1000 * fewUnderWay}
		held := make(chan int, 10) // sizes of what went because the timer ended
		add := func() []*proposal {
			batch, _ := b.add(&proposal{}, &replication.WriteTime{}, func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				held <- len(b.take())
			})
			return batch
		}
		want := func(what string, batch []*proposal, n int) {
			t.Helper()
			if len(batch) != n {
				t.Errorf("%s: a batch of %d, want %d", what, len(batch), n)
			}
		}
		want("the first", add(), 1)
		want("behind it", add(), 0)
		want("behind it", add(), 0)
		time.Sleep(holdFor / 2)
		want("what came meanwhile", b.answered(1, 0), 2)
		time.Sleep(holdFor)
		want("behind two", add(), 0)
		time.Sleep(holdFor - 1)
		synctest.Wait()
		if want("behind two", add(), 0); len(held) != 0 {
			t.Errorf("%d batches went before the timer ended", len(held))
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if len(held) != 1 {
			t.Fatalf("%d batches went when the timer had ended, want 1", len(held))
		}
		if n := <-held; n != 2 {
			t.Errorf("what was held back: a batch of %d, want 2", n)
		}
		want("behind both", add(), 0)
		want("what came behind both", b.answered(2, 0), 1)
		want("nothing", b.answered(2, 0), 0)
		want("nothing", b.answered(1, 0), 0)
		want("the next one", add(), 1)
		time.Sleep(2 * holdFor)
		if synctest.Wait(); len(held) != 0 {
			t.Errorf("the timer ran though nobody waited")
		}
	})
}

// Where few are under way on average nobody waits, and many do not come to that at once.
func TestFewDoNotWait(t *testing.T) {
	var b batches
	size := func() int {
		batch, _ := b.add(&proposal{}, &replication.WriteTime{}, func() {})
		return len(batch)
	}
	for i := range 1000 {
		for range fewUnderWay {
			if size() != 1 {
				t.Fatalf("round %d: one of %d waits", i, fewUnderWay)
			}
		}
		for range fewUnderWay {
			b.answered(1, 0)
		}
	}
	n := 0
	for size() == 1 {
		n++
	}
	b.timer.Stop()
	if n <= fewUnderWay || n > 20 {
		t.Errorf("of a burst %d do not wait", n)
	}
}

// Where a write of the log takes long, one that is under way is waited for, and for as long as a batch takes there.
func TestBatchesOnSlowDisks(t *testing.T) {
	for _, c := range []struct{ write, hold time.Duration }{
		{time.Millisecond, 5 * time.Millisecond}, {20 * time.Millisecond, 62 * time.Millisecond}, {time.Second, holdMost}, {time.Hour, holdMost},
	} {
		synctest.Test(t, func(t *testing.T) {
			var b batches
			var log replication.WriteTime
			for range 1000 {
				log.Observe(c.write + 8) // the mean comes as near as seven
			}
			held := make(chan time.Duration, 1)
			began := time.Now()
			ends := func() { held <- time.Since(began) }
			first, _ := b.add(&proposal{}, &log, ends)
			second, _ := b.add(&proposal{}, &log, ends)
			if len(first) != 1 || len(second) != 0 {
				t.Errorf("%v: batches of %d and %d, want 1 and none", c.write, len(first), len(second))
			}
			if got := <-held; got.Round(time.Microsecond) != c.hold {
				t.Errorf("%v: held for %v, want %v", c.write, got, c.hold)
			}
		})
	}
}

// Raft is given so many bytes at a time, or a proposal alone that has more, and all of them in their order.
func TestBatchesAreBounded(t *testing.T) {
	for _, load := range []int{0, 1000 * fewUnderWay} { // whether they go at once, or wait for those before them
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(load), 1))
			b := batches{load: load}
			var underWay [][]*proposal // by who gives them
			var given, added []*proposal
			give := func(batch []*proposal) {
				if len(batch) == 0 {
					return
				}
				underWay, given = append(underWay, batch), append(given, batch...)
				n, bytes := 0, 0
				for _, batch := range underWay {
					for _, p := range batch {
						n, bytes = n+1, bytes+len(p.frame)
					}
				}
				if bytes > mostBytes && n > 1 {
					t.Errorf("%d proposals of %d bytes are under way", n, bytes)
				}
			}
			ended := func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				give(b.take())
			}
			frame := make([]byte, mostBytes+1)
			for range 2000 {
				switch rng.IntN(5) {
				case 0, 1:
					p := &proposal{frame: frame[:[]int{100, 1 << 20, 3 << 20, rng.IntN(len(frame)), len(frame)}[rng.IntN(5)]]}
					added = append(added, p)
					batch, _ := b.add(p, &replication.WriteTime{}, ended)
					give(batch)
				case 2:
					time.Sleep(holdFor)
					synctest.Wait()
				default:
					if len(underWay) > 0 {
						i, bytes := rng.IntN(len(underWay)), 0
						batch := underWay[i]
						underWay = slices.Delete(underWay, i, i+1)
						for _, p := range batch {
							bytes += len(p.frame)
						}
						give(b.answered(len(batch), bytes))
					}
				}
			}
			for len(given) < len(added) && !t.Failed() {
				if len(underWay) == 0 { // what waits is held back
					time.Sleep(holdMost)
					synctest.Wait()
				}
				if len(underWay) == 0 {
					break
				}
				bytes, batch := 0, underWay[0]
				underWay = underWay[1:]
				for _, p := range batch {
					bytes += len(p.frame)
				}
				give(b.answered(len(batch), bytes))
			}
			time.Sleep(holdMost) // the timer may run still
			if !slices.Equal(given, added) {
				t.Errorf("%d of %d were given, or in another order", len(given), len(added))
			}
		})
	}
}

// Raft's leader has no more than so many bytes to write at once, however many are in flight.
func TestLargeProposalsTakeTurns(t *testing.T) {
	const writers = 40
	c, hang := hungLog(t, func(*Config) {})
	m := c.leader()
	value := strings.Repeat("x", 1<<20)
	hang.Lock()
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			if _, err := m.Propose(c.ctx(), write(fmt.Sprint(i), value)); err != nil {
				t.Error(err)
			}
		})
	}
	state := func() (n, waiting, bytes int) {
		m.proposals.batches.mu.Lock()
		defer m.proposals.batches.mu.Unlock()
		return m.proposals.batches.underWay, len(m.proposals.batches.waiting), m.proposals.batches.bytes
	}
	c.eventually("all proposals wait", func() error {
		if n, waiting, _ := state(); n+waiting != writers {
			return fmt.Errorf("%d do", n+waiting)
		}
		return nil
	})
	if n, _, bytes := state(); bytes > mostBytes || n != mostBytes>>20-1 {
		t.Errorf("Raft has %d proposals of %d bytes", n, bytes)
	}
	hang.Unlock()
	wg.Wait()
	c.eventually("nothing is under way", func() error {
		if n, waiting, bytes := state(); n+waiting+bytes != 0 {
			return fmt.Errorf("%d of %d bytes, and %d wait", n, bytes, waiting)
		}
		return nil
	})
}

// Proposals that wait for a write of the log share the next ones.
func TestProposalsShareWrites(t *testing.T) {
	const writers, rounds = 32, 10
	c, hang := hungLog(t, func(*Config) {})
	m := c.leader()
	writes := make(chan struct{}, 2*writers*rounds)
	m.Observe(func(time.Duration) { writes <- struct{}{} }, nil, nil)
	for i := range rounds {
		hang.Lock()
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				if _, err := m.Propose(c.ctx(), write(fmt.Sprint(w), fmt.Sprint(i))); err != nil {
					t.Error(err)
				}
			})
		}
		c.eventually("all proposals wait", func() error {
			if n := m.proposals.applying.Load(); n != writers {
				return fmt.Errorf("%d do", n)
			}
			return nil
		})
		hang.Unlock()
		wg.Wait()
	}
	t.Logf("%d proposals in %d writes of the log", writers*rounds, len(writes))
	if n := len(writes); n > writers*rounds/6 {
		t.Errorf("%d proposals took %d writes of the leader's log, want a sixth at most", writers*rounds, n)
	}
}

// hungLog is a cluster of one whose writes of the log wait while hang is locked.
func hungLog(t *testing.T, config func(*Config)) (c *cluster, hang *sync.Mutex) {
	hang = new(sync.Mutex)
	return newCluster(t, 1, func(cfg *Config) {
		cfg.TestHooks.Commit = func(file string, commit func() error) error {
			if ofLog(file) {
				hang.Lock()
				defer hang.Unlock()
			}
			return commit()
		}
		config(cfg)
	}), hang
}

// What its caller has left counts as in flight for as long as Raft may hold it.
func TestLeftProposalsCount(t *testing.T) {
	c, hang := hungLog(t, func(*Config) {})
	m := c.leader()
	hang.Lock()
	for i := range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		before := m.proposals.applying.Load()
		go func() {
			for m.proposals.applying.Load() == before {
				runtime.Gosched()
			}
			cancel()
		}()
		if _, err := m.Propose(ctx, write(fmt.Sprint(i), "v")); !errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("proposal %d: %v", i, err)
		}
		cancel()
	}
	if n := m.proposals.inFlight.Load(); n < 5*10 {
		t.Errorf("%d bytes are in flight while Raft holds five entries", n)
	}
	hang.Unlock()
	c.eventually("nothing is in flight", func() error {
		if n := m.proposals.inFlight.Load(); n != 0 {
			return fmt.Errorf("%d bytes", n)
		}
		return nil
	})
}

// That Raft has not taken an entry is said while those before it wait for the disk.
func TestNotTakenIsSaidAtOnce(t *testing.T) {
	c, hang := hungLog(t, func(cfg *Config) {
		cfg.Limits.MaxAppendEntries = 2
		cfg.Timing.NoLeader = 100 * time.Millisecond
	})
	m := c.leader()
	var batch []*proposal
	for i := range 8 {
		frame, err := proto.Encode(proto.KindWrite, write(fmt.Sprint(i), "v"))
		must.OK(t, err)
		batch = append(batch, &proposal{frame: proto.InTerm(frame, proto.Term(m.node.Raft().CurrentTerm())), since: time.Now(), done: make(chan struct{})})
	}
	hang.Lock()
	m.proposals.applying.Add(int64(len(batch)))
	m.proposals.batches.mu.Lock()
	m.proposals.batches.underWay += len(batch)
	for _, p := range batch {
		m.proposals.batches.bytes += len(p.frame)
	}
	m.proposals.batches.giving.Add(1)
	m.proposals.batches.mu.Unlock()
	given := make(chan struct{})
	go func() {
		defer close(given)
		m.proposals.give(slices.Clone(batch))
	}()
	<-batch[7].done
	if err := batch[7].err; !errors.Is(err, errNotSent) {
		t.Errorf("what Raft has not taken: %v", err)
	}
	select {
	case <-batch[0].done:
		t.Error("the first one is answered while the disk hangs")
	default:
	}
	hang.Unlock()
	<-given
	for i, p := range batch {
		<-p.done
		// Raft writes between one and three of them at once, and has room for two.
		if taken := p.err == nil; i < 3 && !taken || i >= 5 && taken {
			t.Errorf("proposal %d: %v", i, p.err)
		}
	}
}
