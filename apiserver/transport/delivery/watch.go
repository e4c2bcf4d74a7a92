package delivery

import (
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/watch"
)

// Watch is the stopwatch of one watch. Its methods are for the goroutine that serves the
// watch; the canary reads the atomic fields.
type Watch struct {
	resource *Resource
	stripe   *stripe
	cursor   atomic.Pointer[watch.Watcher] // nil: it does not follow yet
	from     proto.Revision                // what was there when it began to follow
	// holds is whose turn it is with the events that were read and are not flushed, and
	// since when; zero: there are none.
	holds atomic.Int64
	// freed is when the watch had last done with all that it had read, or the connection
	// had last taken something: from then on what waits does not wait for the client.
	freed atomic.Int64
}

// Turns are the lowest bits of Watch.holds.
const (
	ofServer = iota
	ofConversion
	ofClient
	turnBits = 2
	turnMask = 1<<turnBits - 1
)

func (w *Watch) hold(turn int64, since watch.Moment) { w.holds.Store(int64(since)<<turnBits | turn) }

// Follow says that the watch follows a cursor from now on, behind a revision: what is
// older was there before it, and has not taken any time to be delivered.
func (w *Watch) Follow(cursor *watch.Watcher, from proto.Revision) {
	w.from = from
	w.freed.Store(int64(watch.Now()))
	w.cursor.Store(cursor)
}

// Read notes the versions that the watch has read and is about to send, oldest first. It
// fills in the moments when they came.
func (w *Watch) Read(versions []*mvcc.Version, came []watch.Moment) {
	if len(versions) == 0 {
		return
	}
	w.cursor.Load().When(versions, came)
	w.hold(ofServer, max(came[0], watch.Moment(w.freed.Load())))
}

// Converts says that the versions that were read wait for a conversion webhook, or no
// longer.
func (w *Watch) Converts(is bool) {
	turn := int64(ofServer)
	if is {
		turn = ofConversion
	}
	w.hold(turn, watch.Moment(w.holds.Load()>>turnBits))
}

// Writing says that bytes are given to the connection from now on.
func (w *Watch) Writing(now watch.Moment) { w.hold(ofClient, now) }

// ClientSince reports whether the connection is being written to, and since when. Safe for
// concurrent use.
func (w *Watch) ClientSince() (since watch.Moment, writes bool) {
	holds := w.holds.Load()
	return watch.Moment(holds >> turnBits), holds&turnMask == ofClient
}

// Wrote says that the connection has taken bytes, and that there are more of what was read.
func (w *Watch) Wrote() {
	now := watch.Now()
	w.freed.Store(int64(now))
	w.hold(ofServer, now)
}

// Flushed says that the connection has taken everything that was read. It counts the events
// among that, by the moments at which they came, oldest first; encoded is when the last of
// them was.
func (w *Watch) Flushed(came []watch.Moment, encoded watch.Moment) {
	free, now := watch.Moment(w.freed.Load()), watch.Now()
	w.freed.Store(int64(now))
	w.holds.Store(0)
	if len(came) == 0 {
		return
	}
	w.stripe.flushed.add(came, 0, now)
	w.stripe.encoded.add(came, free, encoded)
}

// add counts the time until end of events that came at moments, oldest first, or at least.
func (c *counts) add(came []watch.Moment, least, end watch.Moment) {
	var sum time.Duration
	for _, m := range came {
		sum += end.Sub(max(m, least))
	}
	c.sum.Add(int64(max(0, sum)))
	in := func(i int) int { return bucket(end.Sub(max(came[i], least))) }
	// Nearly always all of them are in one bucket.
	for n := len(came); n > 0; n = len(came) {
		b := in(0)
		if in(n-1) != b {
			n = 1
		}
		c.buckets[b].Add(uint64(n))
		came = came[n:]
	}
}

// Nothing says that the watch sends nothing of what it has read.
func (w *Watch) Nothing() { w.holds.Store(0) }

// News reports whether a version is to be counted: whether it came after the watch had begun
// to follow. That a watch goes on from an old revision is no delay of this node's.
func (w *Watch) News(v *mvcc.Version) bool { return v.Revision > w.from }
