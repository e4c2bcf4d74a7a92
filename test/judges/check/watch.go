package check

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/quorate/quorate/test/judges/history"
)

// watches checks every watch against the log. A watch that resumes another is
// checked from its From like any other, so that together they show each event once.
func (j *judge) watches(bounds []bound) {
	for i := range j.h.Watches {
		w := &watching{judge: j, i: i, Watch: &j.h.Watches[i], sel: j.selectFor(&j.h.Watches[i]), bound: bounds[i]}
		w.check()
	}
}

// watching is the check of one watch.
type watching struct {
	*judge
	*history.Watch
	i     int
	sel   *selection
	bound bound
}

func (w *watching) violation(check string, events []int, format string, args ...any) {
	x := Violation{Check: check, Node: w.Node, Watch: w.i, Events: events, At: w.Begin}
	text := DescribeWatch(w.h, w.i)
	if len(events) > 0 {
		x.At = w.Events[events[0]].At
		text += ", " + DescribeEvent(w.h, w.i, events[0])
	}
	x.Text = text + ": " + fmt.Sprintf(format, args...)
	w.v.add(x)
}

// check splits the stream into its initial events and the rest.
func (w *watching) check() {
	w.errors()
	first, start := 0, w.From
	switch {
	case w.Initial && w.Bookmarks:
		var whole bool
		if first, start, whole = w.initial(); !whole {
			return
		}
	case w.Initial:
		first, start = w.unmarked()
		if first < 0 {
			return
		}
	case w.From == 0:
		var some bool
		if start, some = w.now(); !some {
			return
		}
	}
	w.follow(first, start)
}

// least returns what the state at the watch's start must contain, and why.
func (w *watching) least() reached {
	switch {
	case w.Unset:
		return w.bound.all
	case w.From == 0:
		return w.bound.node
	}
	return reached{rev: w.From, by: nobody}
}

// initial checks the events before the bookmark that ends them.
func (w *watching) initial() (first int, start uint64, whole bool) {
	end := -1
	for e := range w.Events {
		if w.Events[e].InitialEnd {
			end = e
			break
		}
	}
	if end < 0 {
		w.partial()
		return 0, 0, false
	}
	at := w.Events[end].Revision
	w.snapshotIs(end, at)
	if l := w.least(); at < l.rev {
		w.violation(WatchFresh, []int{end}, "the snapshot had to contain %d, %s", l.rev, w.why(l))
	}
	return end + 1, at, true
}

func (w *watching) why(l reached) string {
	if l.by == nobody {
		return "which was asked for"
	}
	return "which was seen by " + w.who(l.by)
}

// snapshotIs compares the first events with the state at a revision.
func (w *watching) snapshotIs(end int, at uint64) {
	got := map[string]int{}
	for e := range w.Events[:end] {
		x := &w.Events[e]
		if x.Type != history.Added {
			w.violation(WatchInitial, []int{e}, "initial events are ADDED")
			continue
		}
		if other, twice := got[x.Key]; twice {
			w.v.Counts.Duplicated++
			w.violation(WatchUnique, []int{e, other}, "the initial events have %s twice", x.Key)
		}
		got[x.Key] = e
	}
	if at < w.h.LogFrom {
		return
	}
	var mark []int
	if end < len(w.Events) {
		mark = []int{end}
	}
	want, _ := w.snapshot(at, w.Prefix, "", w.Selector, 0)
	for _, it := range want {
		e, ok := got[it.Key]
		switch {
		case !ok:
			w.v.Counts.Missing++
			w.violation(WatchInitial, mark, "the initial events lack %s", showItem(it))
		case w.Events[e].Item != it:
			w.violation(WatchInitial, append([]int{e}, mark...), "at %d it was %s", at, showItem(it))
		}
		delete(got, it.Key)
	}
	for _, e := range got {
		w.violation(WatchInitial, append([]int{e}, mark...), "at %d there was no such object that matches", at)
	}
}

// partial checks initial events whose end was not seen: they must be parts of one
// state that is new enough.
func (w *watching) partial() {
	newest, oldest := uint64(0), never
	newestAt, oldestAt := -1, -1
	for e := range w.Events {
		x := &w.Events[e]
		switch x.Type {
		case history.Error, history.Bookmark:
			continue
		case history.Added:
		default:
			w.violation(WatchInitial, []int{e}, "initial events are ADDED")
			continue
		}
		p, ok := w.shown(x.Item)
		if !ok {
			w.violation(WatchInitial, []int{e}, "%s", w.notShown(x.Item))
			continue
		}
		if !strings.HasPrefix(x.Key, w.Prefix) || !strings.Contains(x.Value, w.Selector) {
			w.violation(WatchFilter, []int{e}, "it does not match")
		}
		if newest < x.Revision {
			newest, newestAt = x.Revision, e
		}
		if p.until < oldest {
			oldest, oldestAt = p.until, e
		}
	}
	if l := w.least(); oldest <= newest {
		w.violation(WatchInitial, []int{oldestAt, newestAt}, "it was gone at %d, but another initial event is from %d", oldest, newest)
	} else if oldest <= l.rev {
		w.violation(WatchFresh, []int{oldestAt}, "the snapshot had to contain %d, %s", l.rev, w.why(l))
	}
}

// unmarked finds the end of initial events that no bookmark ends: the most events
// that are a state, such that the rest follows from it.
func (w *watching) unmarked() (first int, start uint64) {
	n, newest := 0, uint64(0)
	var tops []uint64
	keys := map[string]int{}
	for ; n < len(w.Events) && w.Events[n].Type == history.Added; n++ {
		if _, twice := keys[w.Events[n].Key]; twice {
			break
		}
		keys[w.Events[n].Key] = n
		tops = append(tops, newest)
		newest = max(newest, w.Events[n].Revision)
	}
	tops = append(tops, newest)
	found, foundAt := -1, uint64(0)
	for k := n; k >= 0; k-- {
		for _, at := range w.candidates(k, keys, max(tops[k], w.least().rev)) {
			dry := *w
			dry.judge = &judge{facts: w.facts, v: &Verdict{}}
			dry.snapshotIs(k, at)
			if !dry.v.OK() {
				continue
			}
			if found < 0 {
				found, foundAt = k, at
			}
			if dry.follow(k, at); dry.v.OK() {
				return k, at
			}
		}
	}
	if found < 0 && n == len(w.Events) {
		// It may have been cut before their end, which nothing marks.
		dry := *w
		dry.judge = &judge{facts: w.facts, v: &Verdict{}}
		if dry.partial(); dry.v.OK() {
			return found, foundAt
		}
	}
	if found < 0 && len(w.Events) > 0 && w.Events[0].Type != history.Error {
		w.violation(WatchInitial, nil, "the first events, up to %d, are the state of no revision from %d on", n, w.least().rev)
	}
	return found, foundAt
}

// candidates returns revisions from rev on that have k matching objects, up to the
// first change of one of the first k: objects that came and went leave no trace.
func (w *watching) candidates(k int, keys map[string]int, rev uint64) []uint64 {
	var all []uint64
	if w.sel.matching(rev) == k {
		all = append(all, rev)
	}
	for i := w.sel.after(rev); i < len(w.sel.events); i++ {
		e := &w.sel.events[i]
		if n, ok := keys[e.Key]; ok && n < k {
			break
		}
		if e.live == k {
			all = append(all, e.Revision)
		}
	}
	return all
}

// now finds where a watch without a resourceVersion and without initial events
// began: that shows only in its first event, which must not be older than what it asked for.
func (w *watching) now() (start uint64, some bool) {
	for e := range w.Events {
		x := &w.Events[e]
		if x.Type == history.Error {
			continue
		}
		if l := w.least(); x.Revision < l.rev || x.Revision == l.rev && x.Type != history.Bookmark {
			w.violation(WatchFresh, []int{e}, "the watch had to begin at %d or later, %s", l.rev, w.why(l))
		}
		if x.Type == history.Bookmark {
			return x.Revision, true
		}
		return x.Revision - 1, true
	}
	return 0, false
}

// errors checks the errors in the stream.
func (w *watching) errors() {
	position := w.From
	if w.Unset {
		position = w.bound.all.rev
	}
	for e := range w.Events {
		x := &w.Events[e]
		if e > 0 && w.Events[e-1].Type == history.Error {
			w.violation(WatchError, []int{e - 1, e}, "the stream went on after it")
		}
		if x.Type != history.Error {
			if !w.Initial || x.InitialEnd || position > w.From {
				position = max(position, x.Revision)
			}
			continue
		}
		switch x.Code {
		case http.StatusGone:
			if w.floors && position >= w.floor && position > 0 {
				w.violation(WatchExpired, []int{e}, "the watch had come to %d, and the floor was never above %d", position, w.floor)
			}
		case http.StatusGatewayTimeout:
		default:
			w.violation(WatchError, []int{e}, "a stream ends with 410 or 504, or without an error")
		}
	}
}
