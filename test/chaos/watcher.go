//go:build linux && amd64

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/quorate/quorate/test/history"
	"github.com/quorate/quorate/test/wire"
)

// watcher watches, is cut, and resumes on another node, again and again.
type watcher struct {
	*client
	r   *run
	id  int
	rng *rand.Rand

	prefix, selector string
	bookmarks        bool
	slow             time.Duration // what it takes for an event
	faithful         bool          // it never forgets where it was

	last    *Node  // that it watched
	from    uint64 // where to resume; 0: it starts anew
	watches []history.Watch
	relists int
}

func newWatcher(r *run, id int, rng *rand.Rand) *watcher {
	w := &watcher{client: newClient(r.c), r: r, id: id, rng: rng, bookmarks: rng.IntN(4) > 0, faithful: id%2 == 0}
	switch id % 4 {
	case 1:
		w.selector = wire.Colors[rng.IntN(len(wire.Colors))]
	case 3:
		w.prefix = r.key(rng)
	}
	if id%3 == 2 {
		w.slow = time.Duration(rng.Int64N(int64(30 * time.Millisecond)))
	}
	return w
}

func (w *watcher) loop(ctx context.Context) {
	defer w.close()
	for ctx.Err() == nil {
		// After a cut the watch goes on at another node.
		n := w.r.anyNode(w.rng)
		for n == w.last && len(w.r.targets()) > 1 {
			n = w.r.anyNode(w.rng)
		}
		w.last = n
		if !w.watch(ctx, n) {
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
}

// watch makes one request and reads its events until it ends or is cut. It
// reports whether the node answered.
func (w *watcher) watch(stop context.Context, n *Node) bool {
	record := history.Watch{Client: w.id, Node: n.Name, Bookmarks: w.bookmarks, Prefix: w.prefix, Selector: w.selector}
	q := w.start(&record)
	life := w.r.mix.WatchLife/2 + time.Duration(w.rng.Int64N(int64(w.r.mix.WatchLife)))
	ctx, cancel := context.WithTimeout(stop, life)
	defer cancel()
	record.Begin = w.r.now()
	resp, err := w.open(ctx, n, request{method: http.MethodGet, path: collection, query: q})
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
		var o object
		_ = json.Unmarshal(b, &o)
		// Without a quorum, at shutdown: it is tried again elsewhere. A node whose clock
		// is behind takes a new certificate for one of the future.
		if resp.StatusCode == http.StatusUnauthorized && w.r.c.shape.Clocks {
			w.r.count("watches refused by a clock that is behind", 1)
			return false
		}
		if resp.StatusCode < 500 && resp.StatusCode != http.StatusTooManyRequests {
			w.r.fail("%s: a watch was refused with %d: %s", n.Name, resp.StatusCode, b)
		}
		return false
	}
	record.Ended = w.read(ctx, resp.Body, &record)
	if ctx.Err() != nil {
		record.Ended = ""
	}
	record.End = w.r.now()
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
	if w.prefix != "" {
		q.Set("fieldSelector", "metadata.name="+w.prefix)
	}
	if w.rng.IntN(3) == 0 {
		q.Set("timeoutSeconds", strconv.Itoa(1+w.rng.IntN(5)))
	}
	rv := func(n uint64) { record.From = n; q.Set("resourceVersion", strconv.FormatUint(n, 10)) }
	if w.from > 0 && (w.faithful || w.rng.IntN(4) > 0) {
		rv(w.from)
		return q
	}
	w.from = 0 // as a restarted controller does
	switch w.rng.IntN(6) {
	case 0:
		record.Unset, record.Initial = true, true
	case 1:
		record.Initial = true
		q.Set("resourceVersion", "0")
	case 2:
		record.Unset, record.Initial = true, true
		q.Set("sendInitialEvents", "true")
		q.Set("resourceVersionMatch", "NotOlderThan")
	case 3:
		record.Initial = true
		q.Set("sendInitialEvents", "true")
		q.Set("resourceVersionMatch", "NotOlderThan")
		rv(w.r.seen.Around(w.rng, 100, 0))
	default:
		rv(max(w.r.seen.Around(w.rng, w.r.mix.Back, 100), w.r.from))
	}
	return q
}

// read takes the events of a stream and says why it ended.
func (w *watcher) read(ctx context.Context, in io.Reader, record *history.Watch) string {
	initial := record.Initial
	for d := json.NewDecoder(in); ; {
		var f struct {
			Type   history.EventType `json:"type"`
			Object object            `json:"object"`
		}
		if err := d.Decode(&f); err != nil {
			if errors.Is(err, io.EOF) {
				return "closed"
			}
			return err.Error()
		}
		e := history.Event{Type: f.Type, Item: itemOf(&f.Object), At: w.r.now()}
		switch f.Type {
		case history.Error:
			e.Item, e.Code = history.Item{}, f.Object.Code
			record.Events = append(record.Events, e)
			if e.Code == http.StatusGone {
				w.relist()
			}
			w.from = 0
			return f.Object.Message
		case history.Bookmark:
			e.Item = history.Item{Revision: f.Object.Revision()}
			e.InitialEnd = f.Object.InitialEventsEnd()
			initial = initial && !e.InitialEnd
			if !initial {
				w.from = e.Revision
			}
		default:
			// Initial events are in no order: what was seen of them is no place to
			// resume from. Without bookmarks their end does not show either.
			if !initial {
				w.from = e.Revision
			}
			w.r.seen.Note(history.Item{Key: e.Key, Revision: e.Revision})
		}
		record.Events = append(record.Events, e)
		if w.slow > 0 {
			select {
			case <-ctx.Done():
				return ""
			case <-time.After(w.slow):
			}
		}
	}
}

// relist counts a 410 for a watcher that had got as far as it says; one that had
// made up its position was told the truth and lost nothing.
func (w *watcher) relist() {
	if w.from > 0 {
		w.relists++
	}
}
