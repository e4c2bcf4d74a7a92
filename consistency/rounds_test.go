package consistency

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A caller that arrives while a round runs gets the next one, together with
// everybody else who waits.
func TestRoundsShareTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var started atomic.Int64
		r := NewRounds(time.Minute, 1, func(context.Context) (int64, error) {
			n := started.Add(1)
			time.Sleep(time.Second)
			return n, nil
		})
		defer r.Close()
		var wg sync.WaitGroup
		ask := func(want int64, after time.Duration) {
			wg.Go(func() {
				start := time.Now()
				if got, err := r.Do(t.Context()); got != want || err != nil || time.Since(start) != after {
					t.Errorf("round %d, %v after %v; want round %d after %v", got, err, time.Since(start), want, after)
				}
			})
		}
		ask(1, time.Second)
		synctest.Wait() // round 1 runs
		for range 100 {
			ask(2, 2*time.Second)
		}
		time.Sleep(500 * time.Millisecond)
		for range 100 {
			ask(2, 1500*time.Millisecond)
		}
		time.Sleep(700 * time.Millisecond) // round 2 runs
		ask(3, 1800*time.Millisecond)
		wg.Wait()
		if n := started.Load(); n != 3 {
			t.Errorf("%d rounds", n)
		}
		// An idle Rounds starts one at once.
		ask(4, time.Second)
		wg.Wait()
	})
}

// TestRoundsOfFew: while few wait, nobody waits for the rest of another's round;
// when many do, they share.
func TestRoundsOfFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var started atomic.Int64
		r := NewRounds(time.Minute, 3, func(context.Context) (int64, error) {
			n := started.Add(1)
			time.Sleep(time.Second)
			return n, nil
		})
		defer r.Close()
		var wg sync.WaitGroup
		ask := func(want int64, after time.Duration) {
			wg.Go(func() {
				start := time.Now()
				if got, err := r.Do(t.Context()); got != want || err != nil || time.Since(start) != after {
					t.Errorf("round %d, %v after %v; want round %d after %v", got, err, time.Since(start), want, after)
				}
			})
			synctest.Wait()
			time.Sleep(100 * time.Millisecond)
		}
		ask(1, time.Second) // 0.0 to 1.0
		ask(2, time.Second) // 0.1 to 1.1
		ask(3, time.Second) // 0.2 to 1.2: three callers are served
		for i := range 5 {  // arrive at 0.3 to 0.7: the next round, when the first ends
			ask(4, 1700*time.Millisecond-time.Duration(i)*100*time.Millisecond)
		}
		time.Sleep(600 * time.Millisecond) // 1.4: round 4 has five callers and runs until 2.0
		ask(5, 1600*time.Millisecond)
		wg.Wait()
		ask(6, time.Second)
		wg.Wait()
		if r.served != 0 || r.next != nil {
			t.Errorf("%d callers are left", r.served)
		}
	})
}

// TestRoundsOfACrowd: behind a round of many, those who are about to ask when it ends
// share the next one with the caller that has asked already. Whether they do is the
// scheduler's choice, which a busy machine can spoil: one attempt of ten has to show it.
func TestRoundsOfACrowd(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var n int64
	for range 10 {
		if n = roundsOfACrowd(t); n == 3 {
			return
		}
	}
	t.Errorf("%d rounds, want 3: the late did not share the third", n)
}

// roundsOfACrowd returns how many rounds serve one caller, then two, then one and ten
// that are about to ask when the second round ends.
func roundsOfACrowd(t *testing.T) int64 {
	const late = 10
	var (
		wg      sync.WaitGroup
		r       *Rounds[int64]
		started atomic.Int64
		proceed = make(chan struct{})
	)
	ask := func(least int64) {
		wg.Go(func() {
			if got, err := r.Do(t.Context()); got < least || err != nil {
				t.Errorf("round %d, %v; want round %d or a later one", got, err, least)
			}
		})
	}
	// A sum of the two would not tell a round that runs from one that is about to start.
	await := func(served, next int) {
		for {
			r.mu.Lock()
			reached := r.served == served && (r.next == nil && next == 0 || r.next != nil && r.next.callers == next)
			r.mu.Unlock()
			if reached {
				return
			}
			runtime.Gosched()
		}
	}
	r = NewRounds(time.Minute, 1, func(context.Context) (int64, error) {
		n := started.Add(1)
		if n < 3 {
			<-proceed
		}
		if n == 2 {
			for range late { // they have one processor, and it is this goroutine's
				ask(3)
			}
		}
		return n, nil
	})
	defer r.Close()
	ask(1)
	await(1, 0)
	for range 2 {
		ask(2)
	}
	await(1, 2)
	proceed <- struct{}{} // ends the first; the second serves two
	await(2, 0)
	ask(3)
	await(2, 1)
	proceed <- struct{}{}
	wg.Wait()
	return started.Load()
}

// TestRoundsLeft: a caller that leaves makes room, whenever it happens.
func TestRoundsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRounds(time.Minute, 2, func(ctx context.Context) (int, error) {
			select {
			case <-ctx.Done():
				return 0, ctx.Err()
			case <-time.After(10 * time.Second):
				return 1, nil
			}
		})
		defer r.Close()
		var wg sync.WaitGroup
		ask := func(timeout, after time.Duration) {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				start := time.Now()
				if _, err := r.Do(ctx); time.Since(start) != after || (err != nil) != (timeout == after) {
					t.Errorf("%v after %v, want after %v", err, time.Since(start), after)
				}
			})
			synctest.Wait()
		}
		ask(3*time.Second, 3*time.Second) // leaves its own round
		ask(time.Minute, 10*time.Second)
		ask(time.Minute, 13*time.Second) // begins when the first has left
		ask(4*time.Second, 4*time.Second)
		wg.Wait()
		synctest.Wait()
		if r.served != 0 || r.next != nil {
			t.Errorf("%d callers are left", r.served)
		}
	})
}

func TestRoundsFailAllTheirCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fail := errors.New("no quorum")
		var n atomic.Int64
		r := NewRounds(time.Minute, 1, func(context.Context) (int64, error) {
			time.Sleep(time.Second)
			if n.Add(1) == 2 {
				return 0, fail
			}
			return n.Load(), nil
		})
		defer r.Close()
		var wg sync.WaitGroup
		wg.Go(func() {
			if got, err := r.Do(t.Context()); got != 1 || err != nil {
				t.Errorf("first round: %d, %v", got, err)
			}
		})
		synctest.Wait()
		for range 10 {
			wg.Go(func() {
				// The time was not up: the error is the call's own.
				if _, err := r.Do(t.Context()); !errors.Is(err, fail) || err.Error() != fail.Error() {
					t.Errorf("second round: %v", err)
				}
			})
		}
		wg.Wait()
		if got, err := r.Do(t.Context()); got != 3 || err != nil {
			t.Errorf("third round: %d, %v", got, err)
		}
	})
}

// A caller that leaves does not disturb the others; a round that everybody has
// left is ended.
func TestRoundsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Int64 // rounds that saw their context end
		r := NewRounds(time.Minute, 1, func(ctx context.Context) (int, error) {
			select {
			case <-ctx.Done():
				ended.Add(1)
				return 0, ctx.Err()
			case <-time.After(10 * time.Second):
				return 1, nil
			}
		})
		defer r.Close()
		var wg sync.WaitGroup
		ask := func(timeout time.Duration, want error) {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				start := time.Now()
				if _, err := r.Do(ctx); !errors.Is(err, want) || (want != nil && time.Since(start) != timeout) {
					t.Errorf("%v after %v, want %v after %v", err, time.Since(start), want, timeout)
				}
			})
		}
		// A round of ten seconds is running, so that those who ask now share the next.
		busy := func() {
			ask(time.Minute, nil)
			synctest.Wait()
		}
		busy()
		ask(11*time.Second, context.DeadlineExceeded)
		ask(time.Minute, nil) // stays: the round must not be ended
		wg.Wait()
		if n := ended.Load(); n != 0 {
			t.Errorf("%d rounds were ended under a caller", n)
		}
		busy()
		ask(11*time.Second, context.DeadlineExceeded)
		ask(12*time.Second, context.DeadlineExceeded)
		wg.Wait()
		synctest.Wait()
		if n := ended.Load(); n != 1 {
			t.Errorf("%d rounds ended, want the one that everybody left", n)
		}
		// The same for a round that has not begun.
		busy()
		ask(time.Second, context.DeadlineExceeded)
		wg.Wait()
		synctest.Wait()
		if n := ended.Load(); n != 1 {
			t.Errorf("a round began for nobody")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := r.Do(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("with an ended context: %v", err)
		}
	})
}

func TestRoundsTimeoutAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRounds(time.Second, 1, func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		start := time.Now()
		if _, err := r.Do(t.Context()); !errors.Is(err, errNoAnswer) || time.Since(start) != time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if _, err := r.Do(t.Context()); !errors.Is(err, ErrClosed) {
					t.Errorf("during Close: %v", err)
				}
			})
		}
		synctest.Wait()
		wg.Go(func() {
			if _, err := r.Do(t.Context()); !errors.Is(err, ErrClosed) {
				t.Errorf("waiting for the next round: %v", err)
			}
		})
		synctest.Wait()
		r.Close()
		wg.Wait()
		if _, err := r.Do(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		r.Close()
	})
}

func BenchmarkRounds(b *testing.B) {
	r := NewRounds(time.Minute, 1, func(context.Context) (int, error) { return 1, nil })
	defer r.Close()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := r.Do(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
}
