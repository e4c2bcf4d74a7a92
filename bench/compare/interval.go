package compare

import (
	"slices"

	"github.com/quorate/quorate/bench/measure"
)

// confidence is that of all intervals.
const confidence = 0.95

// Interval is a difference between two sets of values.
type Interval struct {
	Estimate float64 `json:"estimate"`
	Low      float64 `json:"low"`
	High     float64 `json:"high"`
}

// shift compares values of two sets: how much those of b are above those of a, as differ
// says of two. ok is false if there are too few for an interval.
func shift(a, b []float64, differ func(a, b float64) float64) (i Interval, ok bool) {
	var all []float64
	for _, x := range a {
		for _, y := range b {
			all = append(all, differ(x, y))
		}
	}
	slices.Sort(all)
	i.Estimate = measure.Median(all)
	k := rank(len(a), len(b))
	if k == 0 {
		return i, false
	}
	i.Low, i.High = all[k-1], all[len(all)-k]
	return i, true
}

// relative is the difference of positive values as a share of the first.
func relative(a, b float64) float64 { return b/a - 1 }

// absolute is the difference of any values.
func absolute(a, b float64) float64 { return b - a }

// rank is the place, from either end, of the differences that bound the interval: the
// largest k with P(U < k) of at most half of what confidence leaves, where U is Mann and
// Whitney's statistic of n and m values without a difference. Zero: none.
func rank(n, m int) int {
	if n == 0 || m == 0 {
		return 0
	}
	counts := distribution(n, m)
	total := 0.0
	for _, c := range counts {
		total += c
	}
	below, k := 0.0, 0
	for k < len(counts) && (below+counts[k])/total <= (1-confidence)/2 {
		below += counts[k]
		k++
	}
	return k
}

// distribution counts the orders of n and m values by U, up to n*m. The counts are the
// coefficients of a Gaussian binomial: the product of (1-x^(m+i))/(1-x^i) for i up to n.
func distribution(n, m int) []float64 {
	counts := make([]float64, n*m+1)
	counts[0] = 1
	for i := 1; i <= n; i++ {
		for u := len(counts) - 1; u >= m+i; u-- {
			counts[u] -= counts[u-m-i]
		}
		for u := i; u < len(counts); u++ {
			counts[u] += counts[u-i]
		}
	}
	return counts
}
