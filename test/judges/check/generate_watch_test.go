package check

import (
	"slices"
	"strings"

	"github.com/quorate/quorate/test/judges/history"
)

// stepWatch begins, feeds or ends a watch.
func (s *simulation) stepWatch(w *simWatch) {
	switch {
	case !w.open:
		if s.r.IntN(4) == 0 {
			s.beginWatch(w)
		}
	case w.node.fault >= 0 && s.h.Faults[w.node.fault].Kind != "cut":
	case s.r.IntN(60) == 0:
		s.deliver(w, true)
		s.endWatch(w, "server")
	case s.r.IntN(2) == 0:
		s.deliver(w, false)
	}
}

func (s *simulation) beginWatch(w *simWatch) {
	n := s.pick(true)
	client := w.Client
	prefix, selector := w.Prefix, w.Selector
	from := w.last
	if from > 0 && from < s.floor {
		s.h.Overtaken++
		from = 0
	}
	if from == 0 {
		prefix = []string{"", "", "a"}[s.r.IntN(3)]
		selector = []string{"", "", "x"}[s.r.IntN(3)]
	}
	*w = simWatch{node: n, open: true, Watch: history.Watch{
		Client: client, Node: n.name, Begin: s.now, From: from, Prefix: prefix, Selector: selector, Bookmarks: s.r.IntN(4) > 0,
	}}
	if from > 0 {
		w.last = from
		return
	}
	w.Initial, w.Unset = true, s.r.IntN(2) == 0
	if w.Unset {
		w.least = s.rev
	}
}

// deliver sends what the node has.
func (s *simulation) deliver(w *simWatch, all bool) {
	if !w.open || w.node.fault >= 0 && !all {
		return
	}
	if all {
		w.node.applied = max(w.node.applied, w.From, w.least)
	}
	if !w.begun {
		w.node.applied = max(w.node.applied, w.least)
		if w.node.applied < w.From {
			return
		}
		w.begun = true
		if w.Initial {
			s.initialEvents(w)
		}
	}
	for i, e := range s.h.Log {
		if e.Revision <= w.last || e.Revision > w.node.applied {
			continue
		}
		if !all && s.r.IntN(5) == 0 {
			return
		}
		s.send(w, i)
		w.last = e.Revision
	}
	if w.Bookmarks && s.r.IntN(4) == 0 && w.node.applied >= w.last && w.node.applied > 0 {
		w.last = w.node.applied
		w.Events = append(w.Events, history.Event{Type: history.Bookmark, Item: history.Item{Revision: w.last}, At: s.now})
	}
}

func (s *simulation) initialEvents(w *simWatch) {
	for _, it := range s.before(w.node.applied) {
		if strings.HasPrefix(it.Key, w.Prefix) && strings.Contains(it.Value, w.Selector) {
			w.Events = append(w.Events, history.Event{Type: history.Added, Item: it, At: s.now})
		}
	}
	w.last = w.node.applied
	if w.Bookmarks {
		w.Events = append(w.Events, history.Event{Type: history.Bookmark, Item: history.Item{Revision: w.last}, At: s.now, InitialEnd: true})
	}
}

// send makes an event of an entry, if it passes the filter.
func (s *simulation) send(w *simWatch, i int) {
	e := s.h.Log[i]
	var old *history.Entry
	for k := i - 1; k >= 0; k-- {
		if s.h.Log[k].Key == e.Key {
			old = &s.h.Log[k]
			break
		}
	}
	if !strings.HasPrefix(e.Key, w.Prefix) {
		return
	}
	was := old != nil && !old.Deleted && strings.Contains(old.Value, w.Selector)
	is := !e.Deleted && strings.Contains(e.Value, w.Selector)
	x := history.Event{Item: e.Item, At: s.now}
	switch {
	case was && is:
		x.Type = history.Modified
	case is:
		x.Type = history.Added
	case was:
		x.Type, x.Value = history.Deleted, old.Value
	default:
		return
	}
	w.Events = append(w.Events, x)
}

func (s *simulation) endWatch(w *simWatch, why string) {
	if !w.open {
		return
	}
	w.open, w.End, w.Ended = false, s.now, why
	s.h.Watches = append(s.h.Watches, w.Watch)
	// Without an event or a bookmark it does not know where it was.
	last := w.From
	for _, e := range w.Events {
		if !w.Initial || w.Bookmarks {
			last = max(last, e.Revision)
		}
	}
	if w.Initial && w.Bookmarks && !slices.ContainsFunc(w.Events, func(e history.Event) bool { return e.InitialEnd }) {
		last = 0
	}
	w.last = last
}
