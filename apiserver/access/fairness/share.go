package fairness

import (
	"math"
	"time"
)

// Levels borrow from each other: every adjustPeriod the seats are divided again by
// what each level could use.
const (
	adjustPeriod = 10 * time.Second
	// smoothing makes a demand that falls be forgotten by half in 5 minutes.
	smoothing = 0.977
	// leastTarget stands for no demand at all.
	leastTarget = 0.001
)

// want is what one level could get: at least low, at most high, and in proportion
// to target in between.
type want struct{ target, low, high float64 }

// divide gives each level fair*target, but within its bounds, such that all
// together get sum. If the bounds do not allow that, they are all at their lower
// or all at their upper bound.
func divide(sum float64, wants []want) (shares []float64, fair float64) {
	total := func(fair float64) (t float64) {
		for _, w := range wants {
			t += w.at(fair)
		}
		return t
	}
	low, high := 0.0, 1.0
	for _, w := range wants {
		high = max(high, w.high/max(w.target, leastTarget))
	}
	// The total rises with fair.
	for range 64 {
		if fair = (low + high) / 2; total(fair) < sum {
			low = fair
		} else {
			high = fair
		}
	}
	shares = make([]float64, len(wants))
	for i, w := range wants {
		shares[i] = w.at(high)
	}
	return shares, high
}

func (w want) at(fair float64) float64 {
	return math.Max(w.low, math.Min(w.high, fair*max(w.target, leastTarget)))
}

// adjust looks at the demand since the last time and divides the seats again. The
// caller holds c.mu.
func (c *Controller) adjust() {
	now := c.now()
	nominal, least, leastNow := 0, 0, 0
	var limited []*level
	for _, l := range c.levels {
		l.mu.Lock()
		l.observeDemand(now)
		nominal += l.nominal
		if l.exempt {
			l.seatsNow = max(l.low, int(math.Round(l.demandPeak)))
			nominal -= l.seatsNow
		} else {
			least += l.low
			leastNow += l.leastNow()
			limited = append(limited, l)
		}
		l.mu.Unlock()
	}
	wants := make([]want, len(limited))
	for i, l := range limited {
		low := float64(l.leastNow())
		l.target = max(low, l.smoothed)
		wants[i] = want{target: l.target, low: low, high: float64(l.high)}
	}
	var fair float64
	switch {
	case nominal <= least:
		for _, l := range limited {
			l.seatsNow = l.low
		}
	case nominal <= leastNow:
		part := float64(nominal-least) / float64(leastNow-least)
		for _, l := range limited {
			l.seatsNow = l.low + int(math.Round(float64(l.leastNow()-l.low)*part))
		}
	default:
		var shares []float64
		shares, fair = divide(float64(nominal), wants)
		for i, l := range limited {
			l.seatsNow = int(math.Round(shares[i]))
		}
	}
	c.fair = fair
	for _, l := range c.levels {
		l.setLimit(l.seatsNow)
	}
}

// leastNow is what a level keeps whatever others want: what it used at most, but
// not more than its own nor less than it does not lend.
func (l *level) leastNow() int {
	return max(l.low, min(l.nominal, int(math.Round(l.demandPeak))))
}

// observeDemand ends a period of the integral. The caller holds l.mu.
func (l *level) observeDemand(now time.Duration) {
	m := l.demand.reset(now)
	l.demandAverage, l.demandDeviation, l.demandPeak = m.average, m.deviation, m.peak
	envelope := m.average + m.deviation
	l.smoothed = max(envelope, smoothing*l.smoothed+(1-smoothing)*envelope)
}
