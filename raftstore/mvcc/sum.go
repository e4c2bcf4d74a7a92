package mvcc

import (
	"math"
	"math/bits"
)

// sum is a number of 128 bits: no number of int64 amounts is too much for it.
type sum struct{ high, low uint64 }

func (s sum) add(n int64) sum {
	low, carry := bits.Add64(s.low, uint64(n), 0)
	return sum{s.high + carry, low}
}

func (s sum) sub(n int64) sum {
	low, borrow := bits.Sub64(s.low, uint64(n), 0)
	return sum{s.high - borrow, low}
}

func (s sum) plus(o sum) sum {
	low, carry := bits.Add64(s.low, o.low, 0)
	return sum{s.high + o.high + carry, low}
}

// above reports whether it is more than n, which is not negative.
func (s sum) above(n int64) bool { return s.high > 0 || s.low > uint64(n) }

// int64 is the sum, or the greatest number if it is more.
func (s sum) int64() int64 {
	if s.above(math.MaxInt64) {
		return math.MaxInt64
	}
	return int64(s.low)
}
