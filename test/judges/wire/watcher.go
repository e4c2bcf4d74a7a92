package wire

import (
	"net/url"
	"strconv"
	"time"

	"github.com/quorate/quorate/test/judges/history"
)

// Frame is an event on the wire.
type Frame struct {
	Type   history.EventType `json:"type"`
	Object Object            `json:"object"`
}

// Watcher is what a client that watches again and again asks for, and how far it has
// come.
type Watcher struct {
	Prefix, Selector string
	Bookmarks        bool
	// From is the revision to resume at; 0: it lists again.
	From    uint64
	Watches []history.Watch
}

// Watching is one watch of a Watcher, and what came of it so far.
type Watching struct {
	history.Watch
	w    *Watcher
	over bool // the bookmark behind the initial events has come
}

// Watch is a watch that has not begun, and the parameters that it has wherever it begins.
func (w *Watcher) Watch(client int, node string) (*Watching, url.Values) {
	q := url.Values{"watch": {"1"}}
	if w.Bookmarks {
		q.Set("allowWatchBookmarks", "true")
	}
	if w.Selector != "" {
		q.Set("labelSelector", "color="+w.Selector)
	}
	return &Watching{w: w, Watch: history.Watch{Client: client, Node: node, Bookmarks: w.Bookmarks, Prefix: w.Prefix, Selector: w.Selector}}, q
}

// After begins behind a revision.
func (r *Watching) After(q url.Values, revision uint64) {
	r.From = revision
	q.Set("resourceVersion", strconv.FormatUint(revision, 10))
}

// Newest begins with the newest state.
func (r *Watching) Newest() { r.Unset, r.Initial = true, true }

// Any begins with any state.
func (r *Watching) Any(q url.Values) {
	r.Initial = true
	q.Set("resourceVersion", "0")
}

// List begins with a state that is not older than a revision, with KEP-3157's marks; 0 is
// the newest.
func (r *Watching) List(q url.Values, revision uint64) {
	r.Initial = true
	q.Set("sendInitialEvents", "true")
	q.Set("resourceVersionMatch", "NotOlderThan")
	if revision == 0 {
		r.Unset = true
		return
	}
	r.After(q, revision)
}

// Note records what is no ERROR, and with it the place to resume at.
func (r *Watching) Note(f *Frame, item history.Item, at time.Duration) {
	e := history.Event{Type: f.Type, At: at}
	if f.Type == history.Bookmark {
		e.Revision, e.InitialEnd = f.Object.Revision(), f.Object.InitialEventsEnd()
		r.over = r.over || e.InitialEnd
		r.w.From = max(r.w.From, e.Revision)
	} else {
		e.Item = item
		// Initial events come in the order of keys: to resume behind one of them would lose
		// the others. Without bookmarks only what a change makes shows that they are over.
		if !r.Initial || r.over || !r.Bookmarks && e.Type != history.Added {
			r.w.From = e.Revision
		}
	}
	r.Events = append(r.Events, e)
}

// Over records that a watch has ended, and why: "" if the client cut it.
func (r *Watching) Over(why string, at time.Duration) {
	r.Ended, r.End = why, at
	r.w.Watches = append(r.w.Watches, r.Watch)
}
