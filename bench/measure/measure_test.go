package measure

import (
	"context"
	"math"
	"testing"
	"time"
)

// TestPace: as many calls as the rate says, each after it was due, and a slow
// start of one does not move the next.
func TestPace(t *testing.T) {
	clock := NewStopwatch()
	var due, fired []time.Duration
	Pace(t.Context(), clock, 2000, 20*time.Millisecond, 220*time.Millisecond, func(d time.Duration) {
		due, fired = append(due, d), append(fired, clock.Now())
		if len(due) == 1 {
			//sleep: the pacer itself is held up
			time.Sleep(50 * time.Millisecond) // the pacer itself is held up
		}
	})
	// 400 on average; six standard deviations are 120.
	if n := len(due); n < 280 || n > 520 {
		t.Errorf("%d calls", n)
	}
	late := 0
	for i := range due {
		if fired[i] < due[i] || due[i] < 20*time.Millisecond || due[i] >= 220*time.Millisecond || i > 0 && due[i] < due[i-1] {
			t.Fatalf("call %d was due at %v and came at %v", i, due[i], fired[i])
		}
		if fired[i]-due[i] > 20*time.Millisecond {
			late++
		}
	}
	// What was due while the pacer was held up came late, and says so.
	if late < 20 {
		t.Errorf("only %d calls were late after a stop of 50 ms", late)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	Pace(ended, clock, 10, 0, time.Hour, func(time.Duration) { t.Error("called after the end") })
}

func TestLatencyOf(t *testing.T) {
	h := NewHistogram()
	for i := range int64(1000) {
		h.Record((i + 1) * 1000) // 1 to 1000 ms
	}
	l := h.Curve()
	for name, c := range map[string][2]float64{
		"p50": {l.P50Ms, 500}, "p90": {l.P90Ms, 900}, "p99": {l.P99Ms, 990}, "p99.9": {l.P999Ms, 999}, "max": {l.MaxMs, 1000}, "mean": {l.MeanMs, 500.5},
	} {
		if math.Abs(c[0]/c[1]-1) > 0.002 {
			t.Errorf("%s is %g, want %g", name, c[0], c[1])
		}
	}
	if l.Count != 1000 || l.Curve[0].Ms > 1.01 || l.Curve[len(l.Curve)-1] != (Point{100, l.MaxMs}) {
		t.Errorf("%d values, curve %v", l.Count, l.Curve)
	}
	for i, p := range l.Curve {
		if i > 0 && (p.Percentile <= l.Curve[i-1].Percentile || p.Ms < l.Curve[i-1].Ms) {
			t.Errorf("the curve falls at %v", p)
		}
		if p.Percentile > 99.9 && p.Percentile < 100 {
			t.Errorf("%g %% of 1000 reads", p.Percentile)
		}
	}
	// What is out of range is at its ends.
	h.Record(-5)
	h.Record(int64(time.Hour / time.Microsecond))
	if got := h.Latency(); got.Count != 1002 || got.MaxMs < 1_800_000 || got.MaxMs > 1_802_000 {
		t.Errorf("%+v", got)
	}
	if got := NewHistogram().Curve(); got.Count != 0 || got.MeanMs != 0 || got.MaxMs != 0 {
		t.Errorf("nothing: %+v", got)
	}
}
