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

	"github.com/quorate/quorate/test/judges/history"
	"github.com/quorate/quorate/test/judges/wire"
)

// watcher watches, is cut, and resumes on another node, again and again.
type watcher struct {
	wire.Watcher
	c    *cluster
	id   int
	rng  *rand.Rand
	slow time.Duration // what it takes for an event

	// 410s: where the history was to reach back, and where a fault had cut it off.
	relists, overtaken int
	stop               <-chan struct{}
}

func newWatcher(c *cluster, id int, rng *rand.Rand, stop <-chan struct{}) *watcher {
	w := &watcher{Watcher: wire.Watcher{Bookmarks: rng.IntN(4) > 0}, c: c, id: id, rng: rng, stop: stop}
	if rng.IntN(3) == 0 {
		w.Prefix = "default/"
	}
	if rng.IntN(3) == 0 {
		w.Selector = wire.Colors[rng.IntN(len(wire.Colors))]
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
	record, q := w.Watch(w.id, s.name)
	w.begin(record, q)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	record.Begin = w.c.now()
	in, err := s.open(ctx, collection(w.Prefix), q)
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
	why := w.read(in, record)
	if ctx.Err() != nil {
		why = ""
	}
	record.Over(why, w.c.now())
	return true
}

// begin chooses where a watch begins.
func (w *watcher) begin(record *wire.Watching, q url.Values) {
	if w.rng.IntN(3) == 0 {
		q.Set("timeoutSeconds", strconv.Itoa(1+w.rng.IntN(4)))
	}
	from := w.From
	if from > 0 && w.rng.IntN(6) == 0 {
		from = 0 // forget, as a restarted controller does
	}
	if from == 0 {
		switch w.rng.IntN(5) {
		case 0:
			record.Newest()
			return
		case 1:
			record.Any(q)
			return
		case 2:
			record.List(q, w.c.seen.Around(w.rng, 20, 0))
			return
		}
		from = w.c.seen.Around(w.rng, 100, 100)
	}
	record.After(q, from)
}

// read records events until the stream ends, and says why it did.
func (w *watcher) read(in *stream, record *wire.Watching) string {
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
func (w *watcher) event(in *stream, record *wire.Watching, line []byte) (ended string) {
	var f wire.Frame
	if in.code != 200 {
		if err := json.Unmarshal(line, &f.Object); err == nil {
			return "refused: " + strconv.Itoa(f.Object.Code) + " " + f.Object.Reason
		}
	}
	if err := json.Unmarshal(line, &f); err != nil {
		w.c.fail("watch on %s: %q: %v", record.Node, line, err)
		return "broken"
	}
	if f.Type == history.Error {
		return w.failed(record, &f.Object)
	}
	var it history.Item
	if f.Type != history.Bookmark {
		it = itemOf(&f.Object)
		w.c.seen.Note(it)
	}
	record.Note(&f, it, w.c.now())
	return ""
}

// failed records an ERROR event and prepares the next watch.
func (w *watcher) failed(record *wire.Watching, o *wire.Object) string {
	e := history.Event{Type: history.Error, Code: o.Code, At: w.c.now()}
	w.From = 0
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
