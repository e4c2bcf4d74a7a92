package consistency

import (
	"context"
	"errors"
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
		r := NewRounds(time.Minute, func(context.Context) (int64, error) {
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

func TestRoundsFailAllTheirCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fail := errors.New("no quorum")
		var n atomic.Int64
		r := NewRounds(time.Minute, func(context.Context) (int64, error) {
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
				if _, err := r.Do(t.Context()); !errors.Is(err, fail) {
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
		r := NewRounds(time.Minute, func(ctx context.Context) (int, error) {
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
		r := NewRounds(time.Second, func(ctx context.Context) (int, error) {
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
	r := NewRounds(time.Minute, func(context.Context) (int, error) { return 1, nil })
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
