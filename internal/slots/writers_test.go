package slots

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/must"
)

// atOnce is a wait behind which nothing is waited for.
func atOnce() (over func()) { return func() {} }

// slowly is a wait behind which a slot is waited for.
func slowly(random *rand.Rand) func() func() {
	return func() func() {
		return func() { time.Sleep(time.Duration(random.IntN(1000)) * time.Microsecond) }
	}
}

// TestWriters: one has an object at a time, other objects do not wait, and nothing is left, whoever gives up.
func TestWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Writers
		var writing [5]atomic.Int64
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(1, uint64(i)))
				for range 50 {
					var one Writer
					object := random.IntN(len(writing))
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(40))*time.Millisecond)
					if w.Enter(ctx, &one, fmt.Sprint(object), fmt.Sprint(i%7), in(time.Duration(random.IntN(40))*time.Millisecond), slowly(random)) == nil {
						if n := writing[object].Add(1); n != 1 {
							t.Errorf("%d have an object", n)
						}
						time.Sleep(time.Duration(random.IntN(2000)) * time.Microsecond)
						writing[object].Add(-1)
					}
					one.Done()
					one.Done()
					cancel()
				}
			})
		}
		wg.Wait()
		if len(w.objects) != 0 {
			t.Errorf("%d objects are left", len(w.objects))
		}
	})
	var none Writer
	none.Done()
}

// TestWritersOrder: the oldest request goes first, but for those of the user who has just had the object.
func TestWritersOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Writers
		var first Writer
		must.OK(t, w.Enter(t.Context(), &first, "k", "a", in(0), atOnce))
		var mu sync.Mutex
		var got []string
		var wg sync.WaitGroup
		for i, user := range []string{"a", "a", "b", "a", "c", "b"} {
			wg.Go(func() {
				var one Writer
				if err := w.Enter(t.Context(), &one, "k", user, in(time.Hour), atOnce); err != nil {
					t.Error(err)
				}
				mu.Lock()
				got = append(got, fmt.Sprint(user, i))
				mu.Unlock()
				one.Done()
			})
			synctest.Wait()
		}
		first.Done()
		wg.Wait()
		if want := []string{"b2", "a0", "c4", "a1", "b5", "a3"}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}

// TestWritersRefuse: who waits for too long is told so.
func TestWritersRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Writers
		var has, late Writer
		must.OK(t, w.Enter(t.Context(), &has, "k", "a", in(0), atOnce))
		if err := w.Enter(t.Context(), &late, "k", "b", in(turnLasts/4), atOnce); !errors.Is(err, ErrNoTurn) {
			t.Errorf("%v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), turnLasts/4)
		defer cancel()
		if err := w.Enter(ctx, &late, "k", "b", in(time.Hour), atOnce); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		has.Done()
		if err := w.Enter(t.Context(), &late, "k", "b", in(0), atOnce); err != nil {
			t.Error(err)
		}
		late.Done()
	})
}

// TestWritersOverdue: beside a turn that lasts too long, all go on who wait or come, and the next ones take turns again.
func TestWritersOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Writers
		began := time.Now()
		var has, next Writer
		must.OK(t, w.Enter(t.Context(), &has, "k", "a", in(0), atOnce))
		var wg sync.WaitGroup
		for _, row := range []struct {
			comes, until, ends time.Duration
			err                error
		}{
			{comes: 0, until: time.Hour, ends: turnLasts},
			{comes: turnLasts / 2, until: time.Hour, ends: turnLasts},
			{comes: turnLasts / 2, until: 3 * turnLasts / 4, ends: 3 * turnLasts / 4, err: ErrNoTurn},
			{comes: turnLasts, until: time.Hour, ends: turnLasts},
			{comes: 3 * turnLasts, until: time.Hour, ends: 3 * turnLasts},
		} {
			wg.Go(func() {
				time.Sleep(row.comes)
				var one Writer
				if err := w.Enter(t.Context(), &one, "k", "b", began.Add(row.until), atOnce); !errors.Is(err, row.err) {
					t.Errorf("%+v: %v", row, err)
				}
				if took := time.Since(began); took != row.ends {
					t.Errorf("%+v: after %v", row, took)
				}
				time.Sleep(turnLasts)
				one.Done() // has none
			})
		}
		wg.Wait()
		has.Done()
		if len(w.objects) != 0 {
			t.Errorf("%d objects are left", len(w.objects))
		}
		// A turn counts from when the object is taken, not from when others began to wait.
		began = time.Now()
		must.OK(t, w.Enter(t.Context(), &has, "k", "a", in(0), atOnce))
		for i := range 4 {
			wg.Go(func() {
				var one Writer
				if err := w.Enter(t.Context(), &one, "k", "b", in(time.Hour), atOnce); err != nil {
					t.Error(err)
				}
				if took, want := time.Since(began), time.Duration(i+1)*(turnLasts-1); took != want {
					t.Errorf("the turn %d came after %v, want %v", i, took, want)
				}
				time.Sleep(turnLasts - 1)
				one.Done()
			})
			synctest.Wait()
		}
		time.Sleep(turnLasts - 1)
		has.Done()
		wg.Wait()
		if err := w.Enter(t.Context(), &next, "k", "b", in(0), atOnce); err != nil || next.of != &w || w.objects["k"].has != &next {
			t.Errorf("a free object is not taken: %v", err)
		}
		next.Done()
	})
}

// TestWritersOverdueAtRandom: nothing is left where some turns last too long, whoever gives up.
func TestWritersOverdueAtRandom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Writers
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(2, uint64(i)))
				for range 50 {
					var one Writer
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.Int64N(int64(3*turnLasts))))
					if w.Enter(ctx, &one, fmt.Sprint(random.IntN(5)), fmt.Sprint(i%7), in(time.Duration(random.Int64N(int64(3*turnLasts)))), slowly(random)) == nil {
						time.Sleep(time.Duration(random.Int64N(int64(2 * turnLasts))))
					}
					one.Done()
					cancel()
				}
			})
		}
		wg.Wait()
		if len(w.objects) != 0 {
			t.Errorf("%d objects are left", len(w.objects))
		}
	})
}

// TestWritersTold: who was told that an object is free and waits for a slot keeps nobody from it for long, whatever the others'
// slots, and is refused when its own time is over.
func TestWritersTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Writers
		var has Writer
		began := time.Now()
		must.OK(t, w.Enter(t.Context(), &has, "k", "admin", in(0), atOnce))
		var wg sync.WaitGroup
		enter := func(user string, slot, until, ends time.Duration, want error) {
			wg.Go(func() {
				var one Writer
				wait := func() func() { return func() { time.Sleep(slot) } }
				if err := w.Enter(t.Context(), &one, "k", user, in(until), wait); !errors.Is(err, want) {
					t.Errorf("%s: %v", user, err)
				}
				if took := time.Since(began); took != ends {
					t.Errorf("%s is there after %v, want %v", user, took, ends)
				}
				one.Done()
			})
			synctest.Wait()
		}
		enter("tenant", 20*time.Second, time.Minute, 20*time.Second, nil)
		enter("late", 20*time.Second, 10*time.Second, 20*time.Second+turnLasts, ErrNoTurn)
		enter("kubelet", time.Millisecond, 15*time.Second, turnLasts+time.Millisecond, nil)
		has.Done()
		wg.Wait()
		if len(w.objects) != 0 {
			t.Errorf("%d objects are left", len(w.objects))
		}
	})
}
