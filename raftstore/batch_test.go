package raftstore

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Where many are under way on average, one proposal goes alone, those that come meanwhile go together
// when it is answered, and none waits for longer than hold.
func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := batches{load: 1000 * fewUnderWay}
		held := make(chan int, 10) // sizes of what went because the timer ended
		add := func() []*proposal {
			return b.add(&proposal{}, &writeTime{}, func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				held <- len(b.take())
			})
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
		want("what came meanwhile", b.answered(1), 2)
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
		want("what came behind both", b.answered(2), 1)
		want("nothing", b.answered(2), 0)
		want("nothing", b.answered(1), 0)
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
	for i := range 1000 {
		for range fewUnderWay {
			if len(b.add(&proposal{}, &writeTime{}, nil)) != 1 {
				t.Fatalf("round %d: one of %d waits", i, fewUnderWay)
			}
		}
		for range fewUnderWay {
			b.answered(1)
		}
	}
	n := 0
	for len(b.add(&proposal{}, &writeTime{}, func() {})) == 1 {
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
		{aheadFrom, 5 * time.Millisecond}, {20 * time.Millisecond, 62 * time.Millisecond}, {time.Second, holdMost}, {time.Hour, holdMost},
	} {
		synctest.Test(t, func(t *testing.T) {
			var b batches
			var log writeTime
			log.nanos.Store(int64(c.write))
			held := make(chan time.Duration, 1)
			began := time.Now()
			ends := func() { held <- time.Since(began) }
			if n, m := len(b.add(&proposal{}, &log, ends)), len(b.add(&proposal{}, &log, ends)); n != 1 || m != 0 {
				t.Errorf("%v: batches of %d and %d, want 1 and none", c.write, n, m)
			}
			if got := <-held; got != c.hold {
				t.Errorf("%v: held for %v, want %v", c.write, got, c.hold)
			}
		})
	}
}

// Proposals of many at a time share writes of the log. (It is thirteen of 32 to a write on an idle machine.)
func TestProposalsShareWrites(t *testing.T) {
	const writers, each = 32, 20
	c := newCluster(t, 3, nil)
	m := c.leader()
	writes := make(chan struct{}, 2*writers*each)
	m.Observe(func(time.Duration) { writes <- struct{}{} }, nil, nil)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if _, err := m.Propose(c.ctx(), write(fmt.Sprint(w), fmt.Sprint(i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d proposals in %d writes of the log", writers*each, len(writes))
	if n := len(writes); n > writers*each/6 {
		t.Errorf("%d proposals took %d writes of the leader's log, want a sixth at most", writers*each, n)
	}
	c.sameHash()
}
