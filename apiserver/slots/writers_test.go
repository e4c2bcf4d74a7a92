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
		if err := w.Enter(t.Context(), &first, "k", "a", in(0), atOnce); err != nil {
			t.Fatal(err)
		}
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
		if err := w.Enter(t.Context(), &has, "k", "a", in(0), atOnce); err != nil {
			t.Fatal(err)
		}
		if err := w.Enter(t.Context(), &late, "k", "b", in(time.Second), atOnce); !errors.Is(err, ErrNoTurn) {
			t.Errorf("%v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
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
