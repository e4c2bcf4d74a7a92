package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/url"
	"strconv"
	"time"

	"github.com/quorate/quorate/test/history"
	"github.com/quorate/quorate/test/wire"
)

// watcher watches, is cut, and resumes on another node, again and again.
type watcher struct {
	c   *cluster
	id  int
	rng *rand.Rand

	prefix, selector string
	bookmarks        bool
	slow             time.Duration // what it takes for an event

	from    uint64 // where to resume; 0: it starts anew
	watches []history.Watch
	// 410s: where the history was to reach back, and where a fault had cut it off.
	relists, overtaken int
	stop               <-chan struct{}
}

// frame is an event on the wire.
type frame struct {
	Type   history.EventType `json:"type"`
	Object object            `json:"object"`
}

func newWatcher(c *cluster, id int, rng *rand.Rand, stop <-chan struct{}) *watcher {
	w := &watcher{c: c, id: id, rng: rng, stop: stop, bookmarks: rng.IntN(4) > 0}
	if rng.IntN(3) == 0 {
		w.prefix = "default/"
	}
	if rng.IntN(3) == 0 {
		w.selector = wire.Colors[rng.IntN(len(wire.Colors))]
	}
	if rng.IntN(4) == 0 {
		w.slow = time.Duration(rng.Int64N(int64(100 * time.Millisecond)))
	}
	return w
}

func (w *watcher) run() {
	for {
		select {
		case <-w.stop:
			return
		default:
		}
		if s := w.c.anySeat(w.rng); s == nil || !w.watch(s) {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// watch makes one request and reads its events until it ends or is cut.
func (w *watcher) watch(s *seat) bool {
	record := history.Watch{Client: w.id, Node: s.name, Bookmarks: w.bookmarks, Prefix: w.prefix, Selector: w.selector}
	q := w.start(&record)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	namespace := ""
	if w.prefix != "" {
		namespace = "default"
	}
	record.Begin = w.c.now()
	in, err := s.open(ctx, collection(namespace), q)
	if err != nil {
		return false
	}
	// The client cuts it after a while, or the run ends.
	cut := make(chan struct{})
	defer close(cut)
	life := w.c.profile.watchLife/2 + time.Duration(w.rng.Int64N(int64(w.c.profile.watchLife)))
	go func() {
		timer := time.NewTimer(life)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-w.stop:
		case <-cut:
		}
		cancel()
	}()
	record.Ended = w.read(in, &record)
	if ctx.Err() != nil {
		record.Ended = ""
	}
	record.End = w.c.now()
	w.watches = append(w.watches, record)
	return true
}

// start chooses where a watch begins.
func (w *watcher) start(record *history.Watch) url.Values {
	q := url.Values{"watch": {"1"}}
	if w.bookmarks {
		q.Set("allowWatchBookmarks", "true")
	}
	if w.selector != "" {
		q.Set("labelSelector", "color="+w.selector)
	}
	if w.rng.IntN(3) == 0 {
		q.Set("timeoutSeconds", strconv.Itoa(1+w.rng.IntN(4)))
	}
	from := w.from
	if from > 0 && w.rng.IntN(6) == 0 {
		from = 0 // forget, as a restarted controller does
	}
	if from == 0 {
		switch w.rng.IntN(5) {
		case 0:
			record.Unset, record.Initial = true, true
			return q
		case 1:
			record.Initial = true
			q.Set("resourceVersion", "0")
			return q
		case 2:
			record.Initial = true
			record.From = w.c.seen.Around(w.rng, 20, 0)
			q.Set("sendInitialEvents", "true")
			q.Set("resourceVersionMatch", "NotOlderThan")
			q.Set("resourceVersion", strconv.FormatUint(record.From, 10))
			return q
		}
		from = w.c.seen.Around(w.rng, 100, 100)
	}
	record.From = from
	q.Set("resourceVersion", strconv.FormatUint(from, 10))
	return q
}

// read records events until the stream ends, and says why it did.
func (w *watcher) read(in *stream, record *history.Watch) string {
	for {
		data, err := in.next()
		switch {
		case errors.Is(err, errLost):
			return "the process ended"
		case err != nil:
			return "ended by the server"
		}
		for _, line := range bytes.Split(data, []byte{'\n'}) {
			if len(line) == 0 {
				continue
			}
			if ended := w.event(in, record, line); ended != "" {
				return ended
			}
			if w.slow > 0 {
				time.Sleep(w.slow)
			}
		}
	}
}

// event records one event.
func (w *watcher) event(in *stream, record *history.Watch, line []byte) (ended string) {
	var f frame
	if in.code != 200 {
		if err := json.Unmarshal(line, &f.Object); err == nil {
			return "refused: " + strconv.Itoa(f.Object.Code) + " " + f.Object.Reason
		}
	}
	if err := json.Unmarshal(line, &f); err != nil {
		w.c.fail("watch on %s: %q: %v", record.Node, line, err)
		return "broken"
	}
	e := history.Event{Type: f.Type, At: w.c.now()}
	switch f.Type {
	case history.Error:
		return w.failed(record, e, &f.Object)
	case history.Bookmark:
		e.Revision = f.Object.Revision()
		e.InitialEnd = f.Object.InitialEventsEnd()
		w.from = max(w.from, e.Revision)
	default:
		e.Item = itemOf(&f.Object)
		w.c.seen.Note(e.Item)
		// Initial events come in the order of keys: to resume behind one of them
		// would lose the others.
		if !record.Initial || initialOver(record, e) {
			w.from = e.Revision
		}
	}
	record.Events = append(record.Events, e)
	return ""
}

// initialOver reports whether e is behind the initial events: behind their
// bookmark, or, without bookmarks, an event that only a change makes.
func initialOver(record *history.Watch, e history.Event) bool {
	if !record.Bookmarks {
		return e.Type != history.Added
	}
	for i := range record.Events {
		if record.Events[i].InitialEnd {
			return true
		}
	}
	return false
}

// failed records an ERROR event and prepares the next watch.
func (w *watcher) failed(record *history.Watch, e history.Event, o *object) string {
	e.Code = o.Code
	w.from = 0
	if o.Code != 410 {
		// A revision that does not exist yet, or a node without a quorum: the reads'
		// business, not an event of the stream.
		return "error: " + strconv.Itoa(o.Code) + " " + o.Reason
	}
	position := record.From
	for i := range record.Events {
		position = max(position, record.Events[i].Revision)
	}
	if floor := w.c.trace.compacted(); position < floor {
		w.overtaken++
	} else {
		w.relists++
		w.c.fail("watch by %d on %s at %d: 410 (%s), but no floor is above %d", w.id, record.Node, position, o.Message, floor)
	}
	record.Events = append(record.Events, e)
	return "410"
}
