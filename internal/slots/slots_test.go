package slots

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/must"
)

// slotsAt are slots whose clock is that of the test.
func slotsAt(n int) *Slots {
	born := time.Now()
	return newSlots(n, func() time.Duration { return time.Since(born) })
}

func in(d time.Duration) time.Time { return time.Now().Add(d) }

// compute has a request of a user compute for a time, and says when it began.
func compute(s *Slots, user, conn string, took time.Duration) (waited time.Duration, err error) {
	var t Turn
	t.Of(s, user, conn, false)
	began := time.Now()
	if err := t.Take(context.Background(), in(time.Hour)); err != nil {
		return 0, err
	}
	waited = time.Since(began)
	time.Sleep(took)
	t.Give()
	return waited, nil
}

// has reports whether a turn has a slot.
func (t *Turn) has() bool {
	t.slots.mu.Lock()
	defer t.slots.mu.Unlock()
	return t.holds
}

// idle fails unless nobody holds or waits, and little is remembered.
func (s *Slots) idle(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.holders) != 0 || s.lights != 0 || s.waiters != 0 || len(s.waiting) != 0 {
		t.Errorf("%d held, %d light, %d wait, %d users in the heap", len(s.holders), s.lights, s.waiters, len(s.waiting))
	}
	for name, u := range s.users {
		for conn, c := range u.conns {
			if c.busy != 0 || c.at >= 0 || len(c.turns) != 0 {
				t.Errorf("%s %s: %+v", name, conn, c)
			}
		}
		if u.busy != 0 || u.at >= 0 || len(u.waiting) != 0 {
			t.Errorf("%s: %+v", name, u)
		}
	}
}

// TestSlotsBesideABurst: one who is not part of a burst waits for one step of it at most, also on another connection of the
// same user, and again and again.
func TestSlotsBesideABurst(t *testing.T) {
	for _, x := range []struct{ user, conn string }{{"other", "c"}, {"burst", "own"}} {
		synctest.Test(t, func(t *testing.T) {
			s := slotsAt(1)
			const step = 5 * time.Millisecond
			var stop atomic.Bool
			var wg sync.WaitGroup
			for i := range 300 {
				wg.Go(func() {
					for !stop.Load() {
						if _, err := compute(s, "burst", fmt.Sprint(i%3), step); err != nil {
							t.Error(err)
						}
					}
				})
			}
			time.Sleep(time.Second)
			for range 50 {
				waited, err := compute(s, x.user, x.conn, time.Millisecond)
				if err != nil || waited > step {
					t.Errorf("%v: it waited %v, %v", x, waited, err)
				}
				time.Sleep(100 * time.Millisecond)
			}
			stop.Store(true)
			wg.Wait()
			s.idle(t)
		})
	}
}

// TestSlotsAreShared: users who always want to compute get the same time, however many requests they have.
func TestSlotsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slotsAt(2)
		var got [2]atomic.Int64
		var wg sync.WaitGroup
		began := time.Now()
		for user, requests := range []int{3, 90} {
			for i := range requests {
				wg.Go(func() {
					for time.Since(began) < time.Minute {
						took := time.Duration(1+(i+user)%9) * time.Millisecond
						if _, err := compute(s, fmt.Sprint(user), fmt.Sprint(i), took); err != nil {
							t.Error(err)
						}
						got[user].Add(int64(took))
					}
				})
			}
		}
		wg.Wait()
		a, b := time.Duration(got[0].Load()), time.Duration(got[1].Load())
		if a+b < 2*time.Minute || a < b*9/10 || b < a*9/10 {
			t.Errorf("one computed for %v, the other for %v", a, b)
		}
		s.idle(t)
	})
}

// TestSlotsRefuse: who has waited for as long as he may, or has gone, leaves nothing behind.
func TestSlotsRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slotsAt(1)
		var holder, late, gone Turn
		holder.Of(s, "a", "1", false)
		late.Of(s, "a", "1", false)
		gone.Of(s, "b", "2", false)
		must.OK(t, holder.Take(t.Context(), in(0)))
		if err := holder.Take(t.Context(), in(0)); err != nil {
			t.Fatalf("a second time: %v", err)
		}
		if err := late.Take(t.Context(), in(lent/2)); !errors.Is(err, ErrNoSlot) {
			t.Errorf("late: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			synctest.Wait()
			cancel()
		}()
		if err := gone.Take(ctx, in(time.Hour)); !errors.Is(err, context.Canceled) {
			t.Errorf("gone: %v", err)
		}
		holder.Give()
		holder.Give()
		s.idle(t)
	})
	var none Turn
	if err := none.Take(context.Background(), in(0)); err != nil {
		t.Error(err)
	}
	none.Give()
}

// TestSlotsAreBounded: never more compute than there are slots, whatever requests and clients do, and slots are not idle
// while somebody waits; what is remembered of many users is bounded, and counts go on over many half-lives.
func TestSlotsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots = 3
		s := slotsAt(slots)
		var computing, took atomic.Int64
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(1, uint64(i)))
				for range 30 {
					var turn Turn
					turn.Of(s, fmt.Sprint(random.IntN(3000)), fmt.Sprint(random.IntN(4)), false)
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(200))*time.Millisecond)
					if turn.Take(ctx, in(time.Duration(random.IntN(200))*time.Millisecond)) == nil {
						if n := computing.Add(1); n > slots {
							t.Errorf("%d compute", n)
						}
						d := time.Duration(random.IntN(5000)) * time.Microsecond
						time.Sleep(d)
						took.Add(int64(d))
						computing.Add(-1)
						turn.Give()
					}
					cancel()
					if random.IntN(20) == 0 {
						time.Sleep(usageEpoch / 3)
					}
				}
			})
		}
		wg.Wait()
		s.idle(t)
		if n := len(s.users); n > usageKept {
			t.Errorf("%d users are remembered", n)
		}
		for name, u := range s.users {
			if !(u.used >= 0 && u.used < 1e40) {
				t.Errorf("%s has used %v", name, u.used)
			}
		}
	})
}

// TestSlotsOfLightRequests: they do not wait for others, unless they are many, and one user has half of the room.
func TestSlotsOfLightRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slotsAt(1)
		var heavy Turn
		heavy.Of(s, "a", "1", false)
		must.OK(t, heavy.Take(t.Context(), in(0)))
		var held []*Turn
		for _, user := range []string{"a", "b", "c"} {
			fits := 0
			for {
				turn := new(Turn)
				turn.Of(s, user, "1", true)
				if err := turn.Take(t.Context(), in(lent/10)); err != nil {
					break
				}
				held = append(held, turn)
				fits++
			}
			if want := map[string]int{"a": lightRoom / 2, "b": lightRoom / 2}[user]; fits != want {
				t.Errorf("%s has %d, want %d", user, fits, want)
			}
		}
		held[0].End()
		var more Turn
		more.Of(s, "a", "1", true)
		if err := more.Take(t.Context(), in(0)); err != nil {
			t.Errorf("when one has ended: %v", err)
		}
		for _, turn := range append(held, &heavy, &more) {
			turn.End()
		}
		s.idle(t)
	})
}

// TestSlotsThatAreNotGivenBack: others wait for a while only, and not all of them get in; who has such a slot does not get
// another one beside it.
func TestSlotsThatAreNotGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slotsAt(2)
		turns := make([]Turn, 2*(1+lentAgain)+1)
		for i := range turns {
			turns[i].Of(s, fmt.Sprint(i), "1", false)
			began := time.Now()
			err := turns[i].Take(t.Context(), in(10*lent))
			took := time.Since(began)
			switch last := i == len(turns)-1; {
			case last && !errors.Is(err, ErrNoSlot):
				t.Errorf("number %d got in: %v", i, err)
			case !last && (err != nil || took > 2*lent || i%2 == 0 && i > 0 && took < lent/2):
				t.Errorf("number %d waited %v: %v", i, took, err)
			}
		}
		for i := range turns {
			turns[i].Give()
		}
		var one, two, three Turn
		for i, turn := range []*Turn{&one, &two, &three} {
			turn.Of(s, "hog", "1", false)
			if err := turn.Take(t.Context(), in(3*lent)); (err == nil) != (i < 2) {
				t.Errorf("the hog's number %d: %v", i, err)
			}
		}
		two.Give()
		if err := three.Take(t.Context(), in(0)); err != nil {
			t.Errorf("one of the hog's slots is free: %v", err)
		}
		for _, turn := range []*Turn{&one, &two, &three} {
			turn.Give()
		}
		s.idle(t)
	})
}

// TestSlotsOfOneRequest: what a request has others do at the same time uses its one slot, whatever order they come in: the
// slot is not held while one of them waits, it is held once after that, and nothing is left.
func TestSlotsOfOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slotsAt(2)
		var others sync.WaitGroup
		var stop atomic.Bool
		for i := range 10 {
			others.Go(func() {
				for !stop.Load() {
					if _, err := compute(s, fmt.Sprint("other", i%3), fmt.Sprint(i), time.Millisecond); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for seed := range uint64(30) {
			var turn Turn
			turn.Of(s, "many", "1", false)
			must.OK(t, turn.Take(t.Context(), in(time.Hour)))
			ctx, cancel := context.WithCancel(context.WithValue(t.Context(), Key, &turn))
			if seed%3 == 0 {
				time.AfterFunc(time.Duration(seed)*time.Millisecond, cancel)
			}
			var workers sync.WaitGroup
			for i := range 16 {
				workers.Go(func() {
					random := rand.New(rand.NewPCG(seed, uint64(i)))
					for range 20 {
						over := Replicating(ctx)
						time.Sleep(time.Duration(random.IntN(3000)) * time.Microsecond)
						over(random.IntN(2) == 0)
						time.Sleep(time.Duration(random.IntN(300)) * time.Microsecond)
					}
				})
			}
			workers.Wait()
			if seed%3 != 0 && !turn.has() {
				t.Errorf("seed %d: the request has no slot when all is done", seed)
			}
			turn.End()
			turn.End()
			cancel()
		}
		stop.Store(true)
		others.Wait()
		s.idle(t)
	})
}

// list has a request compute and write pieces of an answer.
func list(ctx context.Context, s *Slots, user string, pieces int, compute, write func() time.Duration) error {
	var t Turn
	t.Of(s, user, "list", false)
	if err := t.Take(ctx, in(time.Hour)); err != nil {
		return err
	}
	defer t.End()
	for range pieces {
		time.Sleep(compute())
		t.Yield()
		time.Sleep(write())
		t.Resume(ctx)
	}
	return nil
}

// TestYield: who writes pieces quickly keeps the slot as long as a goroutine runs, who is slow keeps it for a moment, once.
func TestYield(t *testing.T) {
	const ms = time.Millisecond
	for _, x := range []struct {
		name           string
		compute, write time.Duration
		comes          time.Duration    // when others come, one after the other
		waited         [2]time.Duration // for how long they wait
	}{
		{"quick pieces", ms, ms / 10, ms / 2, [2]time.Duration{10*ms + ms/2, 0}},
		{"slow pieces", ms, time.Second, ms / 2, [2]time.Duration{ms/2 + yieldKeeps, 0}},
		{"nobody had waited while it wrote", ms, time.Second, ms + yieldKeeps, [2]time.Duration{0, 0}},
		{"it writes", ms, time.Second, ms + yieldKeeps/2, [2]time.Duration{yieldKeeps / 2, 0}},
		{"long pieces", 30 * ms, ms / 10, 10 * ms, [2]time.Duration{20 * ms, 0}},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := slotsAt(1)
				time.Sleep(time.Millisecond)
				var wg sync.WaitGroup
				always := func(d time.Duration) func() time.Duration { return func() time.Duration { return d } }
				wg.Go(func() {
					if err := list(t.Context(), s, "list", 50, always(x.compute), always(x.write)); err != nil {
						t.Error(err)
					}
				})
				time.Sleep(x.comes)
				for i, want := range x.waited {
					got, err := compute(s, "other", "1", 0)
					if err != nil || got < want-ms || got > want+ms {
						t.Errorf("other %d waited %v, want %v: %v", i, got, want, err)
					}
				}
				wg.Wait()
				s.idle(t)
			})
		})
	}
}

// TestYieldAtRandom: requests that yield at the same time all end, and others wait for a bounded time.
func TestYieldAtRandom(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			s := slotsAt(1 + int(seed)%3)
			var wg sync.WaitGroup
			for i := range 12 {
				random := rand.New(rand.NewPCG(seed, uint64(i)))
				up := func(to time.Duration) func() time.Duration {
					return func() time.Duration { return time.Duration(random.Int64N(int64(to))) }
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if i%4 == 0 {
					time.AfterFunc(up(time.Second)(), cancel)
				}
				wg.Go(func() {
					for range 10 {
						err := list(ctx, s, fmt.Sprint("list", i%5), random.IntN(60), up(time.Millisecond), up(yieldKeeps*3/2))
						if err != nil && ctx.Err() == nil {
							t.Error(err)
						}
					}
				})
			}
			time.Sleep(100 * time.Millisecond) // all have used something
			for range 100 {
				time.Sleep(7 * time.Millisecond)
				if waited, err := compute(s, "other", "1", time.Microsecond); err != nil || waited > yieldAfter+yieldKeeps+time.Millisecond {
					t.Errorf("seed %d: waited %v: %v", seed, waited, err)
				}
			}
			wg.Wait()
			s.idle(t)
		})
	}
}

// TestFork: parts of a request compute in slots of their own, not more at a time than there are.
func TestFork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots = 3
		s := slotsAt(slots)
		var turn Turn
		turn.Of(s, "a", "1", false)
		must.OK(t, turn.Take(t.Context(), in(0)))
		ctx := context.WithValue(t.Context(), Key, &turn)
		over := Waiting(ctx)
		var computing atomic.Int64
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for range 5 {
					part, end := Fork(ctx)
					if n := computing.Add(1); n > slots {
						t.Errorf("%d compute", n)
					}
					time.Sleep(time.Millisecond)
					computing.Add(-1)
					wait := Replicating(part)
					time.Sleep(time.Millisecond)
					wait(true)
					end()
				}
			})
		}
		wg.Wait()
		over()
		if !turn.has() {
			t.Error("the request has no slot again")
		}
		turn.End()
		s.idle(t)
	})
	ctx, end := Fork(context.Background())
	end()
	if turnOf(ctx) != nil || turnOf(Without(ctx)) != nil {
		t.Error("a context without a turn has one")
	}
	var turn Turn
	turn.Of(slotsAt(1), "a", "1", false)
	if with := context.WithValue(context.Background(), Key, &turn); turnOf(with) == nil || turnOf(Without(with)) != nil {
		t.Error("Without leaves the turn")
	}
}

// TestEnter: who waits for an object has no slot meanwhile, and has one again with the object.
func TestEnter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slotsAt(1)
		var w Writers
		var first, second, third Turn
		for i, turn := range []*Turn{&first, &second, &third} {
			turn.Of(s, fmt.Sprint(i), "1", false)
		}
		take := func(turn *Turn) {
			t.Helper()
			must.OK(t, turn.Take(t.Context(), in(0)))
		}
		take(&first)
		must.OK(t, first.Enter(t.Context(), &w, "k", in(0)))
		over := Replicating(context.WithValue(t.Context(), Key, &first))
		take(&second)
		entered := make(chan error)
		go func() { entered <- second.Enter(t.Context(), &w, "k", in(time.Hour)) }()
		synctest.Wait()
		take(&third) // the second one has given its slot back
		go over(true)
		synctest.Wait()
		third.End()
		if err := <-entered; err != nil || !second.has() {
			t.Errorf("%v, with a slot: %v", err, second.has())
		}
		second.End()
		synctest.Wait()
		first.End()
		s.idle(t)
	})
}

// TestSlotsGoOnFirst: what was begun goes on before what was not, on its connection.
func TestSlotsGoOnFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slotsAt(1)
		var begun, holder Turn
		begun.Of(s, "a", "1", false)
		holder.Of(s, "b", "1", false)
		must.OK(t, begun.Take(t.Context(), in(0)))
		ctx := context.WithValue(t.Context(), Key, &begun)
		over := Waiting(ctx)
		must.OK(t, holder.Take(t.Context(), in(0)))
		var got []string
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				var other Turn
				other.Of(s, "a", "1", false)
				if err := other.Take(t.Context(), in(time.Hour)); err != nil {
					t.Error(err)
				}
				got = append(got, fmt.Sprint(i))
				other.Give()
			})
			synctest.Wait()
		}
		wg.Go(func() {
			over()
			got = append(got, "begun")
			begun.Give()
		})
		synctest.Wait()
		holder.Give()
		wg.Wait()
		if want := "[begun 0 1 2]"; fmt.Sprint(got) != want {
			t.Errorf("%v, want %v", got, want)
		}
		s.idle(t)
	})
}

func BenchmarkSlots(b *testing.B) {
	s := NewSlots(func(time.Duration) {})
	b.ReportAllocs()
	for b.Loop() {
		var t Turn
		t.Of(s, "user", "conn", false)
		if err := t.Take(b.Context(), in(time.Second)); err != nil {
			b.Fatal(err)
		}
		t.Give()
	}
}
