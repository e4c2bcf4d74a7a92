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

	"github.com/quorate/quorate/test/judges/history"
	"github.com/quorate/quorate/test/judges/wire"
)

// watcher watches, is cut, and resumes on another node, again and again.
type watcher struct {
	wire.Watcher
	*client
	r        *run
	id       int
	rng      *rand.Rand
	slow     time.Duration // what it takes for an event
	faithful bool          // it never forgets where it was
	last     *Node         // that it watched
	relists  int
}

func newWatcher(r *run, id int, rng *rand.Rand) *watcher {
	w := &watcher{Watcher: wire.Watcher{Bookmarks: rng.IntN(4) > 0}, client: newClient(r.c), r: r, id: id, rng: rng, faithful: id%2 == 0}
	switch id % 4 {
	case 1:
		w.Selector = wire.Colors[rng.IntN(len(wire.Colors))]
	case 3:
		w.Prefix = r.key(rng)
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
	record, q := w.Watch(w.id, n.Name)
	w.begin(record, q)
	life := w.r.mix.WatchLife/2 + time.Duration(w.rng.Int64N(int64(w.r.mix.WatchLife)))
	ctx, cancel := context.WithTimeout(stop, life)
	defer cancel()
	record.Begin = w.r.now()
	resp, err := w.open(ctx, n, wire.Request{Method: http.MethodGet, Path: collection, Query: q})
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
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
	why := w.read(ctx, resp.Body, record)
	if ctx.Err() != nil {
		why = ""
	}
	record.Over(why, w.r.now())
	return true
}

// begin chooses where a watch begins.
func (w *watcher) begin(record *wire.Watching, q url.Values) {
	if w.Prefix != "" {
		q.Set("fieldSelector", "metadata.name="+w.Prefix)
	}
	if w.rng.IntN(3) == 0 {
		q.Set("timeoutSeconds", strconv.Itoa(1+w.rng.IntN(5)))
	}
	if w.From > 0 && (w.faithful || w.rng.IntN(4) > 0) {
		record.After(q, w.From)
		return
	}
	w.From = 0 // as a restarted controller does
	switch w.rng.IntN(6) {
	case 0:
		record.Newest()
	case 1:
		record.Any(q)
	case 2:
		record.List(q, 0)
	case 3:
		record.List(q, w.r.seen.Around(w.rng, 100, 0))
	default:
		record.After(q, max(w.r.seen.Around(w.rng, w.r.mix.Back, 100), w.r.from))
	}
}

// read takes the events of a stream and says why it ended.
func (w *watcher) read(ctx context.Context, in io.Reader, record *wire.Watching) string {
	for d := json.NewDecoder(in); ; {
		var f wire.Frame
		if err := d.Decode(&f); err != nil {
			if errors.Is(err, io.EOF) {
				return "closed"
			}
			return err.Error()
		}
		if f.Type == history.Error {
			record.Events = append(record.Events, history.Event{Type: f.Type, Code: f.Object.Code, At: w.r.now()})
			if f.Object.Code == http.StatusGone {
				w.relist()
			}
			w.From = 0
			return f.Object.Message
		}
		var it history.Item
		if f.Type != history.Bookmark {
			it = itemOf(&f.Object)
			w.r.seen.Note(history.Item{Key: it.Key, Revision: it.Revision})
		}
		record.Note(&f, it, w.r.now())
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
	if w.From > 0 {
		w.relists++
	}
}
