package fairness

// Requests of several seats, such as lists of whole collections, keep theirs for long.
// A level whose seats they have all taken has none for anybody until the first of them
// ends, and a request whose turn it is and that needs ten seats holds up everybody
// until ten are free: a client that asks for whole collections without end makes all
// others of its level wait, however fair their turns are. So an eighth of the seats is
// not for wide requests; and while one waits for its seats, narrow ones go on beside
// it in that eighth, but not in the rest, where they would keep it waiting for ever.
// Upstream has neither rule.

// isWide reports whether a request of so many seats is wide. Seats that are given
// back count as negative.
func isWide(seats int) bool { return seats > 1 || seats < -1 }

// reserve is how many seats are not for wide requests. A level of three seats or less
// cannot spare any.
func (l *level) reserve() int {
	if l.limit < 4 {
		return 0
	}
	return max(1, l.limit/8)
}

// fits reports whether a request of so many seats may run now. One that is wider than
// what there is for wide ones runs when no other of them does.
func (l *level) fits(seats int) bool {
	r := l.reserve()
	switch {
	case !isWide(seats) && l.limit == 0:
		return l.running == 0
	case !isWide(seats):
		return l.inUse+seats <= l.limit || l.inUse-l.wideInUse+seats <= r
	case seats <= l.limit-r:
		return l.inUse+seats <= l.limit && l.wideInUse+seats <= l.limit-r
	case r == 0:
		return l.running == 0
	}
	return l.wideInUse == 0 && l.inUse <= r
}

// besideWide returns the queue of the next narrow request that may run although it is
// the turn of t, which is wide and has to wait; nil if there is none.
func (l *level) besideWide(t *Ticket) *queue {
	if !isWide(t.seats) || l.inUse-l.wideInUse >= l.reserve() {
		return nil
	}
	if at := l.nextBusy(true); at >= 0 {
		return l.busy[at]
	}
	return nil
}
