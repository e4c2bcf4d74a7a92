package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/quorate/quorate/test/judges/history"
)

// following compares the events of a watch with the log, from a revision on.
type following struct {
	*watching
	start    uint64
	next     int            // the next expected event
	skipped  map[uint64]int // expected events that were passed over -> event that did so
	bookmark uint64         // the newest
	marked   int            // its event
	last     uint64         // the newest revision of an event
}

// follow checks the events from first on; the watch has all up to start.
func (w *watching) follow(first int, start uint64) {
	f := &following{watching: w, start: start, next: w.sel.after(max(start, w.h.LogFrom)), skipped: map[uint64]int{}}
	for e := first; e < len(w.Events); e++ {
		switch w.Events[e].Type {
		case history.Error:
		case history.Bookmark:
			f.mark(e)
		default:
			f.event(e)
		}
	}
	f.missing()
}

// mark checks a bookmark: everything up to it came before it.
func (f *following) mark(e int) {
	x := &f.Events[e]
	switch {
	case !f.Bookmarks:
		f.violation(WatchBookmark, []int{e}, "nobody asked for bookmarks")
	case x.InitialEnd:
		f.violation(WatchBookmark, []int{e}, "a second end of the initial events, or one that nobody asked for")
	case x.Revision < f.start:
		f.violation(WatchBookmark, []int{e}, "the watch began at %d", f.start)
	case x.Revision < f.bookmark || x.Revision < f.last:
		f.v.Counts.Misordered++
		f.violation(WatchOrdered, []int{e}, "the stream had come to %d", max(f.bookmark, f.last))
	}
	f.skip(x.Revision+1, e)
	if x.Revision >= f.bookmark {
		f.bookmark, f.marked = x.Revision, e
	}
}

// skip passes over the expected events below a revision.
func (f *following) skip(below uint64, e int) {
	for ; f.next < len(f.sel.events) && f.sel.events[f.next].Revision < below; f.next++ {
		if x := &f.sel.events[f.next]; !x.unsure || f.Selector == "" {
			f.skipped[x.Revision] = e
		}
	}
}

func (f *following) event(e int) {
	x := &f.Events[e]
	if x.Revision <= f.start {
		f.v.Counts.Duplicated++
		f.violation(WatchResumable, []int{e}, "the watch began after %d", f.start)
		return
	}
	if x.Revision <= f.h.LogFrom {
		return
	}
	f.skip(x.Revision, e)
	want := f.sel.at(x.Revision)
	switch {
	case want == nil:
		f.unexpected(e)
		return
	case f.next < len(f.sel.events) && f.sel.events[f.next].Revision == x.Revision:
		f.next++
		f.last = max(f.last, x.Revision)
	default:
		f.late(e)
	}
	f.content(e, want)
}

// late reports an event that comes again or after a higher one.
func (f *following) late(e int) {
	x := &f.Events[e]
	if _, ok := f.skipped[x.Revision]; !ok {
		f.v.Counts.Duplicated++
		f.violation(WatchUnique, []int{e}, "it came before")
		return
	}
	delete(f.skipped, x.Revision)
	f.v.Counts.Misordered++
	if x.Revision <= f.bookmark {
		f.violation(WatchBookmark, []int{e, f.marked}, "it comes after the bookmark %s", DescribeEvent(f.h, f.i, f.marked))
		return
	}
	f.violation(WatchOrdered, []int{e}, "it comes after %d", f.last)
}

// unexpected reports an event that the filter makes of no version.
func (f *following) unexpected(e int) {
	x := &f.Events[e]
	v := f.at(x.Revision)
	switch {
	case v == nil:
		f.violation(WatchContent, []int{e}, "the log has nothing at %d", x.Revision)
	case v.key != x.Key:
		f.violation(WatchContent, []int{e}, "the log has at %d: %s", x.Revision, f.describe(v))
	default:
		f.violation(WatchFilter, []int{e}, "it does not pass the filter: %s", f.describe(v))
	}
}

// content compares an event with what it should be.
func (f *following) content(e int, want *expected) {
	x := &f.Events[e]
	switch {
	case x.Key != want.Key:
		f.violation(WatchContent, []int{e}, "the log has at %d: %s", x.Revision, f.describe(f.at(x.Revision)))
	case x.Type != want.kind && f.complete && !want.unsure:
		f.violation(WatchType, []int{e}, "it is %s: %s", want.kind, f.describe(f.at(x.Revision)))
	case x.Value != want.Value && x.Type == want.kind && !(want.unsure && want.kind == history.Deleted) && f.complete:
		what := "its value is"
		if want.kind == history.Deleted {
			what = "the previous value was"
		}
		f.violation(WatchContent, []int{e}, "%s %s", what, want.Value)
	}
}

// missing reports what was passed over and never came.
func (f *following) missing() {
	if len(f.skipped) == 0 {
		return
	}
	f.v.Counts.Missing += len(f.skipped)
	byEvent := map[int][]uint64{}
	for rev, e := range f.skipped {
		byEvent[e] = append(byEvent[e], rev)
	}
	for _, e := range slices.Sorted(maps.Keys(byEvent)) {
		revs := byEvent[e]
		slices.Sort(revs)
		var lacks []string
		for i, rev := range revs {
			if i == maxShown {
				lacks = append(lacks, fmt.Sprintf("and %d more", len(revs)-i))
				break
			}
			want := f.sel.at(rev)
			lacks = append(lacks, fmt.Sprintf("%s %s", want.kind, showItem(want.Item)))
		}
		f.violation(WatchReliable, []int{e}, "missing before it: %s", strings.Join(lacks, ", "))
	}
}
