package apiserver

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/quorate/quorate/apiserver/codec"
	"github.com/quorate/quorate/apiserver/crd"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/status"
	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/watch"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// watchBatch is how many versions are read before they are sent.
const watchBatch = 128

// batches lends watchers a buffer while they read. Idle ones hold none: there
// may be ten thousand.
var batches = sync.Pool{New: func() any { return new([watchBatch]*mvcc.Version) }}

func (c *call) watch() error {
	if !c.s.cfg.WatchList && c.Options.SendInitialEvents != nil {
		return status.InvalidOptions("ListOptions", field.ErrorList{field.Forbidden(field.NewPath("sendInitialEvents"),
			"sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled")})
	}
	f, err := c.format(c.Resource, codec.ShapeWatch)
	if err != nil {
		return err
	}
	sel, err := c.Select()
	if err != nil {
		return err
	}
	plan, err := consistency.PlanWatch(c.ListParams(sel))
	if err != nil {
		return err
	}
	at, err := c.awaitWatch(plan)
	var tooLarge *consistency.TooLargeError
	switch {
	case err == nil:
	case errors.As(err, &tooLarge) && !tooLarge.Unconfirmed:
		// The cluster has no such revision: an event of the stream says so.
	case apierrors.IsForbidden(err):
		return err
	case plan.Mode == consistency.NotOlderThan && c.Context.Err() == nil:
		// This node does not have it, or does not know. 429 is the one answer after
		// which client-go asks for the same watch again; after all others it reads the
		// whole collection.
		return status.NotReady(retryWatch)
	default:
		return err
	}
	c.setIndexHeader(at)
	refused := err
	serve := func(events *codec.EventWriter, conn deadline) {
		w := &watchStream{call: c, sel: sel, events: events}
		w.entry = c.s.watches.add(conn)
		defer c.s.watches.remove(w.entry)
		if of, ok := watched(sel, c.Resource.Table()); ok {
			c.s.watchers.Add(of)
			defer c.s.watchers.Remove(of)
		}
		// From here on failures are events of the stream.
		if refused != nil {
			w.fail(refused)
			return
		}
		w.run(plan, at)
	}
	if wantsSocket(c.r) {
		return c.overSocket(f, serve)
	}
	events, err := codec.NewEventWriter(c, f, c.Resource)
	if err != nil {
		return err
	}
	conn := http.NewResponseController(c)
	_ = conn.SetWriteDeadline(time.Time{}) // the server's is for what ends
	serve(events, conn)
	return nil
}

// retryWatch is when a client whose watch could not start tries again, in seconds.
const retryWatch = 1

// awaitWatch waits for the state that a watch starts from; the wait is bounded
// like any other read, the watch is not.
func (c *call) awaitWatch(plan consistency.Plan) (proto.Revision, error) {
	ctx, cancel := context.WithTimeout(c.Context, c.s.cfg.Limits.Request)
	defer cancel()
	return c.await(ctx, plan)
}

// watchStream is one watch: a position in a table's history, and where its events
// go.
type watchStream struct {
	*call
	sel           *objects.Selection
	events        *codec.EventWriter
	entry         *watchEntry
	cursor        *watch.Watcher
	after         proto.Revision // everything up to here has been read
	unsent        int            // events since the last flush
	reportedBytes int64          // bytes that the observer was told of
	// writing is set from the first write until the flush; sent is what had been
	// written when the write began that is under way.
	writing bool
	sent    int64
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
	cursor, err := w.s.cfg.Store.Watch(w.Resource.Table(), w.after, w.sel.Interest())
	if err != nil {
		w.fail(w.tooOld(err))
		return
	}
	w.cursor = cursor
	defer cursor.Close()
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
	return w.flush() == nil
}

// errGone ends a watch whose client cannot be written to.
var errGone = errors.New("the client is gone")

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
		if i%watchBatch == watchBatch-1 && w.flush() != nil {
			return errGone
		}
	}
	w.after = at
	if plan.EndBookmark {
		return w.bookmark(at, true)
	}
	return nil
}

// emit writes one event; flush sends it.
func (w *watchStream) emit(event string, content *mvcc.Version, rev proto.Revision) error {
	w.write()
	if w.events.Event(event, content, rev) != nil {
		return errGone
	}
	return nil
}

func (w *watchStream) bookmark(rev proto.Revision, initialEnd bool) error {
	w.write()
	if w.events.Bookmark(rev, initialEnd) != nil {
		return errGone
	}
	return nil
}

// write notes that something is about to be written: a full buffer waits for the
// client just like a flush. A client that took what was written before is not
// stalled, however slow it is.
func (w *watchStream) write() {
	w.unsent++
	if !w.writing || w.sent != w.written {
		w.writing, w.sent = true, w.written
		w.entry.begin()
	}
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
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	ended := crd.Ended(w.Resource)
	for {
		select {
		case <-w.Context.Done():
			return
		case <-w.s.abandoned:
			return
		case <-w.s.closing:
			w.drain()
			return
		case <-w.cursor.Wake():
			if !w.served() || !w.advance(false) {
				return
			}
		case <-ended:
			if !w.served() {
				return
			}
			ended = nil // somebody else's: it is served as before
		case <-timer.C:
			// A bookmark, and at the end of its time a last one, so that the client
			// resumes from here.
			if !w.served() || !w.advance(w.Options.AllowWatchBookmarks) || !time.Now().Before(end) {
				return
			}
			timer.Reset(time.Until(w.nextTimer(end)))
		}
	}
}

// served reports whether the watch can go on as it began. A kind that is served no
// more has no end to tell: the stream just ends, after all its events, and who asks
// again gets 404. One whose definition is another now ends before them: who asks again
// gets them as the new definition shows them.
func (w *watchStream) served() bool {
	now := w.s.cfg.Kinds().Lookup(w.Info.GVR())
	if now == nil {
		w.advance(false)
		return false
	}
	return crd.Same(now, w.Resource)
}

// nextTimer is when to look around next, also without bookmarks.
func (w *watchStream) nextTimer(end time.Time) time.Time {
	if next := time.Now().Add(w.s.cfg.Limits.Bookmark); next.Before(end) {
		return next
	}
	return end
}

// lifetime is timeoutSeconds, or a random time so that watches that began
// together do not end together.
func (w *watchStream) lifetime() time.Duration {
	if s := w.Options.TimeoutSeconds; s != nil && *s > 0 {
		return time.Duration(min(*s, int64(24*time.Hour/time.Second))) * time.Second
	}
	least := w.s.cfg.Limits.WatchMin
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
	batch := batches.Get().(*[watchBatch]*mvcc.Version)
	defer func() {
		clear(batch[:])
		batches.Put(batch)
	}()
	for {
		if w.s.isAbandoned() {
			return false
		}
		n, progress, err := w.cursor.Next(batch[:])
		if err != nil {
			w.fail(w.tooOld(err))
			return false
		}
		if err := w.convert(batch[:n]); err != nil {
			w.fail(err)
			return false
		}
		for _, v := range batch[:n] {
			if err := w.version(v); err != nil {
				if !errors.Is(err, errGone) {
					w.fail(err)
				}
				return false
			}
		}
		w.after = progress
		last := n < len(batch)
		if last && bookmark {
			if w.bookmark(progress, false) != nil {
				return false
			}
		}
		if w.unsent > 0 && w.flush() != nil {
			return false
		}
		if last {
			return true
		}
	}
}

// version sends what one version means to this watch, if anything.
func (w *watchStream) version(v *mvcc.Version) error {
	if !w.sel.Covers(v.Key) {
		return nil
	}
	event, content, err := w.sel.Event(v)
	if err != nil {
		return w.tooOld(err)
	}
	if event == "" {
		return nil
	}
	return w.emit(event, w.sel.Converted(content), v.Revision)
}

// convert has those of a batch converted that need a webhook for it, all at once. A
// webhook that is slow keeps this watch waiting, and no other.
func (w *watchStream) convert(batch []*mvcc.Version) error {
	if objects.WebhookOf(w.Resource) == nil {
		return nil
	}
	var versions []*mvcc.Version
	for _, v := range batch {
		if !w.sel.Covers(v.Key) {
			continue
		}
		versions = append(versions, v)
		if before := v.Prev(); before != nil && !before.Deleted && w.sel.HasSelectors() {
			versions = append(versions, before)
		}
	}
	ctx, cancel := context.WithCancelCause(w.Context)
	defer cancel(nil)
	defer context.AfterFunc(w.s.life, func() { cancel(errGone) })()
	shown, err := w.s.objects.ConvertAll(ctx, w.Resource, versions)
	if err != nil {
		return err
	}
	w.sel.SetConverted(versions, shown)
	return nil
}

// tooOld words the end of a watch that the floor has overtaken.
func (w *watchStream) tooOld(err error) error {
	if errors.Is(err, mvcc.ErrCompacted) {
		return status.WatchTooOld(uint64(w.after), uint64(w.s.cfg.Store.State().Floor()))
	}
	return err
}

// fail ends the stream with an ERROR event.
func (w *watchStream) fail(err error) {
	if errors.Is(err, errGone) {
		return
	}
	w.write()
	if w.events.Error(status.ForRequest(err, "watch", w.Resource.GroupResource())) == nil {
		_ = w.flush() // the stream ends either way
	}
}

// flush sends what was written. A client that does not read makes it wait here,
// which costs the client its position and nobody else anything; the janitor ends
// waits that last too long.
func (w *watchStream) flush() error {
	if !w.writing {
		w.entry.begin()
	}
	err := w.events.Flush()
	w.entry.end()
	w.writing = false
	w.s.cfg.Observer.WatchEvents(&w.Kind, w.unsent, w.written-w.reportedBytes)
	w.unsent, w.reportedBytes = 0, w.written
	return err
}
