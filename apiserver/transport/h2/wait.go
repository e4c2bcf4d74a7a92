package h2

import (
	"slices"

	"golang.org/x/net/http2"
)

// queue are streams whose handlers wait for what all streams of a connection share, the longest waiting one
// first. One is woken at a time, and wakes the next when it has taken what it needs (see wakeNext): if all
// were woken, each frame that grants a byte would cost as many wake-ups as there are streams.
type queue []*stream

// wait waits until it is the stream's turn, or the stream is closed. The connection's mu is held, and is
// released meanwhile.
func (q *queue) wait(st *stream) {
	st.c.wakeNext() // perhaps another one wants less
	*q = append(*q, st)
	st.queued = true
	for st.queued && !st.closed {
		st.changed.Wait()
	}
	st.c.wakes++
	if st.queued { // it has lost its place only if it was woken for its turn
		st.queued = false
		*q = slices.DeleteFunc(*q, func(o *stream) bool { return o == st })
	}
}

// wake wakes the first stream.
func (q *queue) wake() {
	st := (*q)[0]
	*q = slices.Delete(*q, 0, 1)
	st.queued = false
	st.changed.Broadcast()
}

// wakeNext wakes the stream whose turn it is, if there is something for it. It is called when there is more of
// what streams wait for, and by each stream that will not take the rest: one that was woken and is closed
// meanwhile too. mu is held.
func (c *conn) wakeNext() {
	switch {
	case c.outFull(): // the end of the write wakes it
	case len(c.forRoom) > 0:
		c.forRoom.wake()
	case len(c.forWindow) > 0 && c.sendWindow > 0:
		c.forWindow.wake()
	}
}

// outFull reports that nothing is to be added to out before a write has ended. mu is held.
func (c *conn) outFull() bool { return c.writing && len(c.out) >= maxOut }

// awaitRoom waits until out has room for headers, or the stream is closed: an answer without a body needs no
// window, and a client that does not read could have any number of them otherwise. The connection's mu is held,
// and is released meanwhile.
func (st *stream) awaitRoom() {
	for !st.closed && st.c.outFull() {
		if st.refused {
			st.c.reset(st.id, http2.ErrCodeEnhanceYourCalm)
			return
		}
		st.c.forRoom.wait(st)
	}
}

// awaitWindow waits until the stream may have a window, or is closed. The connection's mu is held, and
// is released meanwhile.
func (st *stream) awaitWindow() {
	st.c.wakeNext()
	if st.c.forOwn == nil {
		st.c.forOwn = map[*stream]struct{}{}
	}
	st.c.forOwn[st] = struct{}{}
	for st.window() <= 0 && !st.closed {
		st.changed.Wait()
		st.c.wakes++
	}
	delete(st.c.forOwn, st)
}

// wakeForWindow is called when the stream's window has changed. The connection's mu is held.
func (st *stream) wakeForWindow() {
	if _, waits := st.c.forOwn[st]; waits && st.window() > 0 {
		st.changed.Broadcast()
	}
}
