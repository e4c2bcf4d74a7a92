package apiserver

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/transport/delivery"
	"github.com/quorate/quorate/apiserver/types/crd"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/watch"
)

// watchBatch is how many versions are read before they are sent.
const watchBatch = 128

// batch is what a watch has read, and when that came to this node.
type batch struct {
	versions [watchBatch]*mvcc.Version
	came     [watchBatch]watch.Moment
}

// batches lends watchers a buffer while they read. Idle ones hold none: there
// may be ten thousand.
var batches = sync.Pool{New: func() any { return new(batch) }}

// watchStream is one watch: a position in a table's history, and where its events
// go.
type watchStream struct {
	*call
	sel           *objects.Selection
	events        *codec.EventWriter
	to            *watchConn
	entry         *watchEntry
	delivery      *delivery.Watch
	cursor        *watch.Watcher
	registry      *kinds.Registry // in which the watch was found to be served
	after         proto.Revision  // everything up to here has been read
	unsent        int             // events since the last flush
	reportedBytes int64           // bytes that the observer was told of
	gone          atomic.Bool     // the client, or the request's time is over
	due           atomic.Bool     // it is time to look around
}

// run sends the initial events, if asked for, and then follows the history until
// the client goes, time is up, the server ends or the floor overtakes it.
func (w *watchStream) run(plan consistency.Plan, at proto.Revision) {
	w.after = plan.StartAfter
	if w.after == 0 {
		w.after = at
	}
	if plan.InitialEvents {
		if err := w.initial(plan); err != nil {
			w.fail(err)
			return
		}
	}
	cursor, err := w.cfg.Store.Watch(w.Resource.Table(), w.after, w.sel.Interest())
	if err != nil {
		w.fail(w.tooOld(err))
		return
	}
	w.cursor = cursor
	defer cursor.Close()
	w.delivery.Follow(cursor, w.cfg.Store.State().Applied())
	if w.begin(plan) {
		// From here on it costs what happens, and who makes that happen pays for it.
		w.ticket.Release()
		w.pace.stop()
		w.pace = nil
		w.following = true
		w.follow(plan)
	}
}

// begin sends the headers, also when there is nothing to say yet, and with them
// a bookmark if the client takes bookmarks. client-go reads the whole collection
// again when a watch breaks within its first second without having said
// anything, as most watches would: nearly all kinds are idle at any time. Behind
// initial events it is follow that sends it. It reports whether the watch goes on.
func (w *watchStream) begin(plan consistency.Plan) bool {
	if w.Options.AllowWatchBookmarks && !plan.EndBookmark {
		return w.advance(true)
	}
	return w.flush(nil) == nil
}

// initial sends one consistent snapshot.
func (w *watchStream) initial(plan consistency.Plan) error {
	page, at, err := w.Page(consistency.Plan{Mode: consistency.MostRecent}, w.after, w.sel)
	if err != nil {
		return err
	}
	for i, v := range page.Versions {
		if err := w.emit("ADDED", v, v.Revision); err != nil {
			return err
		}
		if i%watchBatch == watchBatch-1 && w.flush(nil) != nil {
			return errGone
		}
	}
	w.after = at
	if plan.EndBookmark {
		return w.bookmark(at, true)
	}
	return nil
}

// firstBookmark is when a watch gets its first bookmark behind the one that ends
// its initial events. client-go counts what a watch has said from there on (see
// begin); upstream's clients and tests expect nothing right behind the end.
const firstBookmark = 250 * time.Millisecond

// follow is the life of a watch after its start.
func (w *watchStream) follow(plan consistency.Plan) {
	end := time.Now().Add(w.lifetime())
	next := w.nextTimer(end)
	if soon := time.Now().Add(firstBookmark); plan.EndBookmark && soon.Before(next) {
		next = soon
	}
	timer := time.AfterFunc(time.Until(next), func() { w.poke(&w.due) })
	defer timer.Stop()
	defer context.AfterFunc(w.Context, func() { w.poke(&w.gone) })()
	w.s.watches.follow(w.entry, w.cursor) // the cursor's first wake is there: what was before this is seen
	ended := crd.Ended(w.Resource)
	for {
		if w.await(ended) {
			ended = nil // if it is somebody else's, it is served as before
		}
		switch {
		case w.gone.Load(), w.s.isAbandoned():
			return
		case closed(w.s.closing):
			w.drain()
			return
		}
		// A bookmark, and at the end of its time a last one, so that the client
		// resumes from here.
		due := w.due.Swap(false)
		if !w.served() || !w.advance(due && w.Options.AllowWatchBookmarks) || due && !time.Now().Before(end) {
			return
		}
		if due {
			timer.Reset(time.Until(w.nextTimer(end)))
		}
	}
}

// await waits until there is something to do, and reports whether that is that the definition has ended. All
// else pokes the cursor: a select costs as much as a small event, and memory, for each of the channels in it.
func (w *watchStream) await(ended <-chan struct{}) bool {
	if ended == nil {
		<-w.cursor.Wake()
		return false
	}
	select {
	case <-w.cursor.Wake():
		return false
	case <-ended:
		return true
	}
}

// poke has the watch look around, and see why.
func (w *watchStream) poke(why *atomic.Bool) {
	why.Store(true)
	w.cursor.Poke()
}

// served reports whether the watch can go on as it began. A kind that is served no
// more has no end to tell: the stream just ends, after all its events, and who asks
// again gets 404. One whose definition is another now ends before them: who asks again
// gets them as the new definition shows them.
func (w *watchStream) served() bool {
	registry := w.cfg.Kinds()
	if registry == w.registry {
		return true // every wake asks
	}
	now := registry.Lookup(w.Info.GVR())
	if now == nil {
		w.advance(false)
		return false
	}
	if !crd.Same(now, w.Resource) {
		return false
	}
	w.registry = registry
	return true
}

// nextTimer is when to look around next, also without bookmarks.
func (w *watchStream) nextTimer(end time.Time) time.Time {
	if next := time.Now().Add(w.cfg.Limits.Bookmark); next.Before(end) {
		return next
	}
	return end
}

// lifetime is timeoutSeconds, or a random time so that watches that began
// together do not end together. A negative time is over.
func (w *watchStream) lifetime() time.Duration {
	if s := w.Options.TimeoutSeconds; s != nil && *s < 0 {
		return 0
	} else if s != nil && *s > 0 {
		return time.Duration(min(*s, int64(24*time.Hour/time.Second))) * time.Second
	}
	least := w.cfg.Limits.WatchMin
	return least + rand.N(least)
}

// drain ends a watch when the server does: not all in one instant, and with a
// bookmark to resume from.
func (w *watchStream) drain() {
	if spread := w.s.watches.spread(); spread > 0 {
		timer := time.NewTimer(rand.N(spread))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-w.Context.Done():
			return
		case <-w.s.abandoned:
			return
		}
	}
	w.advance(w.Options.AllowWatchBookmarks)
}

// advance sends everything that there is to read, and then a bookmark if asked
// to. It reports whether the watch goes on.
func (w *watchStream) advance(bookmark bool) bool {
	b := batches.Get().(*batch)
	defer func() {
		clear(b.versions[:])
		batches.Put(b)
	}()
	for {
		n, progress, err := w.cursor.Next(b.versions[:])
		if w.s.isAbandoned() { // asked after the reading: what came since must not be sent
			return false
		}
		if err != nil {
			w.fail(w.tooOld(err))
			return false
		}
		versions := b.versions[:n]
		w.delivery.Read(versions, b.came[:])
		if err := w.convert(versions); err != nil {
			w.fail(err)
			return false
		}
		events := 0 // that were written, with their moments in front
		for i, v := range versions {
			before := w.unsent
			if err := w.version(v); err != nil {
				if !errors.Is(err, errGone) {
					w.fail(err)
				}
				return false
			}
			if w.unsent != before && w.delivery.News(v) {
				b.came[events] = b.came[i]
				events++
			}
		}
		w.after = progress
		last := n < len(b.versions)
		if last && bookmark {
			if w.bookmark(progress, false) != nil {
				return false
			}
		}
		if w.unsent == 0 {
			w.delivery.Nothing()
		} else if w.flush(b.came[:events]) != nil {
			return false
		}
		if last {
			return true
		}
	}
}
