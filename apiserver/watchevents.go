package apiserver

import (
	"context"
	"errors"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/transport/delivery"
	"github.com/quorate/quorate/apiserver/wire/status"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/watch"
)

// errGone ends a watch whose client cannot be written to.
var errGone = errors.New("the client is gone")

// emit writes one event; flush sends it.
func (w *watchStream) emit(event string, content *mvcc.Version, rev proto.Revision) error {
	w.unsent++
	if w.events.Event(event, content, rev) != nil {
		return errGone
	}
	return nil
}

func (w *watchStream) bookmark(rev proto.Revision, initialEnd bool) error {
	w.unsent++
	if w.events.Bookmark(rev, initialEnd) != nil {
		return errGone
	}
	return nil
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
	if len(batch) == 0 || objects.WebhookOf(w.Resource) == nil {
		return nil
	}
	w.delivery.Converts(true)
	defer w.delivery.Converts(false)
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
		return status.WatchTooOld(uint64(w.after), uint64(w.cfg.Store.State().Floor()))
	}
	return err
}

// fail ends the stream with an ERROR event.
func (w *watchStream) fail(err error) {
	if errors.Is(err, errGone) {
		return
	}
	w.unsent++
	if w.events.Error(status.ForRequest(err, "watch", w.Resource.GroupResource())) == nil {
		_ = w.flush(nil) // the stream ends either way
	}
}

// flush sends what was written; came are the moments of the events among that which are
// news. A client that does not read makes it wait here, which costs the client its position
// and nobody else anything; the janitor ends waits that last too long.
func (w *watchStream) flush(came []watch.Moment) error {
	encoded := watch.Now()
	w.delivery.Writing(encoded)
	w.to.flushing = true
	err := w.events.Flush()
	w.to.flushing = false
	if err == nil {
		w.delivery.Flushed(came, encoded)
	}
	w.cfg.Observer.WatchEvents(&w.Kind, w.unsent, w.written-w.reportedBytes)
	w.unsent, w.reportedBytes = 0, w.written
	return err
}

// watchConn is the connection of a watch. It notes when events wait for the client though
// they are not flushed: they have filled a buffer. A client that took what was written before
// is not stalled, however slow it is.
type watchConn struct {
	*call
	delivery *delivery.Watch
	flushing bool
}

// Write is the call's.
func (c *watchConn) Write(b []byte) (int, error) {
	if c.flushing { // it is noted already
		return c.call.Write(b)
	}
	return c.timed(c.call.Write, b)
}

// timed writes, and notes who waits for whom.
func (c *watchConn) timed(write func([]byte) (int, error), b []byte) (int, error) {
	c.delivery.Writing(watch.Now())
	n, err := write(b)
	c.delivery.Wrote()
	return n, err
}
