package load

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/internal/must"
)

// evenly is measure.Pace in virtual time, without chance: its timer is Go's, which is exact
// there.
func evenly(ctx context.Context, clock *measure.Stopwatch, rate float64, begin, end time.Duration, fire func(due time.Duration)) {
	every := time.Duration(float64(time.Second) / rate)
	for due := begin + every; due < end && ctx.Err() == nil; due += every {
		measure.Pause(ctx, due-clock.Now())
		if ctx.Err() != nil {
			return
		}
		fire(due)
	}
}

// server answers one operation after the other, each after some time, and counts how many
// wait; it stalls for a while at a moment.
type server struct {
	turn           chan struct{}
	takes          time.Duration
	clock          *measure.Stopwatch
	stallAt, stall time.Duration
}

func (s *server) do(ctx context.Context) (int, error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if now := s.clock.Now(); s.stall > 0 && now >= s.stallAt {
		measure.Pause(ctx, s.stallAt+s.stall-now)
	}
	measure.Pause(ctx, s.takes)
	return 0, ctx.Err()
}

func (s *server) loop(rate float64, length time.Duration) *openLoop {
	return &openLoop{rate: rate, length: length, timeout: 10 * time.Second, clock: s.clock, pace: evenly, one: func(int) func(context.Context) (int, error) { return s.do }}
}

func newServer(takes time.Duration) *server {
	return &server{turn: make(chan struct{}, 1), takes: takes, clock: measure.NewStopwatch()}
}

// TestOpenLoopChargesStalls: a server that stands still for a second of ten is charged for all
// that it made wait; a closed loop would have noticed one slow operation.
func TestOpenLoopChargesStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(time.Millisecond)
		s.stallAt, s.stall = 5*time.Second, time.Second
		got := newTally(1)
		s.loop(100, 10*time.Second).run(t.Context(), got)
		h := got.all()
		if got.due != 999 || h.TotalCount() != 999 || got.within != 999 || got.errors > 0 || got.unsent > 0 || got.cut {
			t.Fatalf("%d due, %d done, %d within, %d errors, %d unsent, cut %v", got.due, h.TotalCount(), got.within, got.errors, got.unsent, got.cut)
		}
		// A tenth was due while it stood still, and waited half a second on average.
		l := h.Latency()
		if l.P50Ms > 1.1 || l.P90Ms > 120 || l.P99Ms < 800 || l.MaxMs < 990 || l.MaxMs > 1010 {
			t.Errorf("%+v", l)
		}
		if late := got.late.Latency(); late.MaxMs > 0 {
			t.Errorf("sent late: %+v", late)
		}

		s = newServer(time.Millisecond)
		s.stallAt, s.stall = 5*time.Second, time.Second
		closed := newTally(1)
		closedLoop(t.Context(), 1, 10*time.Second, closed, func(ctx context.Context, _, _ int) (int, error) { return s.do(ctx) })
		if l := closed.all().Latency(); l.P999Ms > 2 || l.MaxMs < 990 {
			t.Errorf("the closed loop noticed more than one: %+v", l)
		}
	})
}

// TestOpenLoopOverload: what is answered late is late, what is not answered in time is an
// error, and what nobody asks for any more is neither.
func TestOpenLoopOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(10 * time.Millisecond) // 100 per second
		got := newTally(1)
		l := s.loop(200, 10*time.Second)
		l.timeout = 2 * time.Second
		l.run(t.Context(), got)
		if got.errors == 0 || !errors.Is(got.first, context.DeadlineExceeded) || got.within < 200 || got.within > 1050 { // it also works for those who have given up
			t.Errorf("%d errors (%v), %d within", got.errors, got.first, got.within)
		}
		if got.due != got.errors+got.all().TotalCount()+got.unsent {
			t.Errorf("%d due; %d failed, %d succeeded, %d were not sent", got.due, got.errors, got.all().TotalCount(), got.unsent)
		}
		if max := got.all().Latency().MaxMs; max > 2010 {
			t.Errorf("the longest took %g ms", max)
		}

		// A stop: no error of anybody.
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		got = newTally(1)
		newServer(10*time.Millisecond).loop(200, 10*time.Second).run(ctx, got)
		if !got.cut || got.errors > 0 || got.elapsed < 2900*time.Millisecond || got.elapsed > 3100*time.Millisecond || got.within < 250 {
			t.Errorf("cut %v after %s, %d errors (%v), %d within", got.cut, got.elapsed, got.errors, got.first, got.within)
		}
	})
}

// TestPool: each object is one's alone until it is given back, and all come round.
func TestPool(t *testing.T) {
	p := newPool(3)
	seen := map[int]int{}
	for range 30 {
		i, ok := p.take()
		j, ok2 := p.take()
		if !ok || !ok2 || i == j {
			t.Fatalf("took %d, %v and %d, %v", i, ok, j, ok2)
		}
		seen[i]++
		seen[j]++
		p.give(i)
		p.give(j)
	}
	if len(seen) != 3 || seen[0] != 20 {
		t.Errorf("%v", seen)
	}
	for range 3 {
		p.take()
	}
	if i, ok := p.take(); ok {
		t.Errorf("a fourth of three: %d", i)
	}
}

// TestSweepFindsTheKnee of a server that makes 1,000 operations per second.
func TestSweepFindsTheKnee(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sweep := func(p99 time.Duration, first float64, slow func(rate float64, turn int) bool) Sweep {
			turns := map[float64]int{}
			s := &sweeper{p99: p99, errors: 0.01, most: 100_000, at: func(ctx context.Context, rate float64) (SweepPoint, error) {
				turns[rate]++
				one := newServer(time.Millisecond)
				if slow != nil && slow(rate, turns[rate]) {
					one.stallAt, one.stall = 2*time.Second, time.Second
				}
				got := newTally(1)
				one.loop(rate, 5*time.Second).run(ctx, got)
				b := &bench{Options: Options{Rate: rate}}
				r := b.newRow(&row{verb: get}, got, nil, nil)
				return SweepPoint{Rate: rate, Due: got.due, PerSecond: r.PerSecond, Errors: r.Errors, Unsent: r.Unsent, Latency: r.Latency, due: float64(got.due) / got.elapsed.Seconds()}, nil
			}}
			out, err := s.run(t.Context(), first)
			must.OK(t, err)
			return out
		}
		got := sweep(100*time.Millisecond, 100, nil)
		if got.Knee < 1000/math.Pow(2, 0.2) || got.Knee > 1030 || !strings.Contains(got.Why, "p99") || len(got.Points) != 8 {
			t.Errorf("the knee is at %g; %s; %d points", got.Knee, got.Why, len(got.Points))
		}
		for i, p := range got.Points {
			if i > 0 && p.Rate <= got.Points[i-1].Rate || (p.Broken == "") != (p.Rate <= got.Knee) {
				t.Errorf("point %d: %+v", i, p)
			}
		}
		// A wide bound of latency: the throughput does not follow.
		if got := sweep(time.Minute, 100, nil); got.Knee < 900 || got.Knee > 1100 || !strings.Contains(got.Why, "throughput does not follow") {
			t.Errorf("the knee is at %g; %s", got.Knee, got.Why)
		}
		// One slow moment is no knee, two are.
		if got := sweep(100*time.Millisecond, 100, func(rate float64, turn int) bool { return rate == 400 && turn == 1 }); got.Knee < 800 || !got.Points[2].Again || got.Points[2].Broken != "" {
			t.Errorf("the knee is at %g; %s", got.Knee, got.Why)
		}
		if got := sweep(100*time.Millisecond, 100, func(rate float64, _ int) bool { return rate == 400 }); got.Knee >= 400 || got.Knee < 300 {
			t.Errorf("the knee is at %g; %s", got.Knee, got.Why)
		}
		// Too much from the beginning.
		if got := sweep(100*time.Millisecond, 3000, nil); got.Knee != 0 || got.Why == "" || !strings.Contains(got.conclusion(), "Begin lower") {
			t.Errorf("the knee is at %g; %s; %s", got.Knee, got.Why, got.conclusion())
		}
		// Nothing breaks.
		s := &sweeper{p99: time.Second, errors: 0.01, most: 1000, at: func(_ context.Context, rate float64) (SweepPoint, error) {
			return SweepPoint{Rate: rate, Due: 5, PerSecond: rate, due: rate, Latency: measure.Latency{Count: 5}}, nil
		}}
		if got, err := s.run(t.Context(), 100); err != nil || got.Knee != 1000 || got.Why != "" || len(got.Points) != 5 {
			t.Errorf("the knee is at %g of %d points; %s; %v", got.Knee, len(got.Points), got.Why, err)
		}
	})
}
