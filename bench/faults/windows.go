package faults

import (
	"slices"
	"time"
)

// window is the longest time without a success.
type window struct {
	From, Length time.Duration // From is since the beginning of the stretch that was looked at
	Open         bool          // no success came before the stretch ended
}

// longestGap finds the longest time without a success of a service between begin and end,
// in samples of which pick says yes. A success is at the time of its answer; the first gap
// begins at begin.
func longestGap(samples []sample, begin, end time.Duration, pick func(*sample) bool) window {
	w := window{Length: -1}
	for _, one := range longerThan(-1, samples, begin, end, pick) {
		if one.Length > w.Length {
			w = one
		}
	}
	return w
}

// longerThan finds all times without a success that are longer than some time, in order.
func longerThan(least time.Duration, samples []sample, begin, end time.Duration, pick func(*sample) bool) (out []window) {
	var moments []time.Duration
	for i := range samples {
		if s := &samples[i]; s.outcome == good && s.end >= begin && s.end < end && pick(s) {
			moments = append(moments, s.end)
		}
	}
	slices.Sort(moments)
	last := begin
	for i, m := range append(moments, end) {
		if m-last > least {
			out = append(out, window{From: last - begin, Length: m - last, Open: i == len(moments)})
		}
		last = m
	}
	return out
}

const (
	// A window of unavailability is windowFactor times the longest gap before the first
	// fault, and at least windowLeast: shorter ones are what random times make.
	windowFactor = 3
	windowLeast  = 250 * time.Millisecond
	maxWindows   = 50 // of one fault and service
)

// What recovery means.
const (
	// recoveredShare is how much of the requests that were answered in time before must be
	// answered in time again.
	recoveredShare = 0.95
	// recoveredFor is for how long.
	recoveredFor = time.Second
	// recoveryStep is how exactly the moment is found.
	recoveryStep = 20 * time.Millisecond
	// inTimeFactor times the 99th percentile before, and at least inTimeLeast, is in time.
	inTimeFactor = 3
	inTimeLeast  = 100 * time.Millisecond
)

// durations are how long those requests took that were due between begin and end, and succeeded, in order.
func durations(samples []sample, begin, end time.Duration, pick func(*sample) bool) (all []time.Duration) {
	for i := range samples {
		if s := &samples[i]; s.outcome == good && s.due >= begin && s.due < end && pick(s) {
			all = append(all, s.end-s.due)
		}
	}
	slices.Sort(all)
	return all
}

// inTime is how long an answer may take to be as good as those between begin and end were.
func inTime(samples []sample, begin, end time.Duration, pick func(*sample) bool) time.Duration {
	all := durations(samples, begin, end, pick)
	if len(all) == 0 {
		return inTimeLeast
	}
	return max(inTimeLeast, inTimeFactor*all[(len(all)-1)*99/100])
}

// share is how many of the requests that were due between begin and end were answered within
// some time, and how many there were.
func share(samples []sample, begin, end, within time.Duration, pick func(*sample) bool) (float64, int) {
	in, all := 0, 0
	for i := range samples {
		if s := &samples[i]; s.due >= begin && s.due < end && pick(s) {
			all++
			if s.outcome == good && s.end-s.due <= within {
				in++
			}
		}
	}
	return float64(in) / float64(max(all, 1)), all
}

// recovery is how long after begin the service is again what it was: from when on, for a
// second, enough of the requests that are due are answered in time. Requests that waited
// out the fault are not: they were due in it. False if that does not happen before end.
func recovery(samples []sample, begin, end, within time.Duration, before float64, pick func(*sample) bool) (time.Duration, bool) {
	// Only what was due in the stretch, in order: the windows overlap by far.
	var mine []sample
	for i := range samples {
		if s := &samples[i]; s.due >= begin && s.due < end && pick(s) {
			mine = append(mine, *s)
		}
	}
	slices.SortFunc(mine, func(a, b sample) int { return int(a.due - b.due) })
	isGood := func(s *sample) bool { return s.outcome == good && s.end-s.due <= within }
	first, last, in := 0, 0, 0 // mine[first:last] are in the window, in of them in time
	for at := begin; at+recoveredFor <= end; at += recoveryStep {
		for ; last < len(mine) && mine[last].due < at+recoveredFor; last++ {
			if isGood(&mine[last]) {
				in++
			}
		}
		for ; first < last && mine[first].due < at; first++ {
			if isGood(&mine[first]) {
				in--
			}
		}
		if all := last - first; all > 0 && float64(in) >= recoveredShare*before*float64(all) {
			// What the window has of the fault's end is no part of the recovery.
			for first < last && !isGood(&mine[first]) {
				first++
				at = mine[first].due
			}
			return at - begin, true
		}
	}
	return 0, false
}
