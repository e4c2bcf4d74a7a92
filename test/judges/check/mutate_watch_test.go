package check

import (
	"net/http"
	"slices"

	"github.com/quorate/quorate/test/judges/history"
)

// watchMutations make what a watch saw wrong.
var watchMutations = []mutation{
	{"drop an event", []string{WatchReliable}, func(m *mutant) bool {
		return m.event(func(w *history.Watch, e int) bool {
			if e+1 == len(w.Events) || w.Events[e+1].Type == history.Error {
				return false
			}
			w.Events = slices.Delete(w.Events, e, e+1)
			return true
		})
	}},
	{"swap two events", []string{WatchOrdered}, func(m *mutant) bool {
		return m.event(func(w *history.Watch, e int) bool {
			if e+1 == len(w.Events) || !change(w.Events[e+1]) {
				return false
			}
			w.Events[e], w.Events[e+1] = w.Events[e+1], w.Events[e]
			return true
		})
	}},
	{"duplicate an event", []string{WatchUnique}, func(m *mutant) bool {
		return m.event(func(w *history.Watch, e int) bool {
			w.Events = slices.Insert(w.Events, e+1+m.r.IntN(len(w.Events)-e), w.Events[e])
			return true
		})
	}},
	{"early bookmark", []string{WatchBookmark}, func(m *mutant) bool {
		return m.event(func(w *history.Watch, e int) bool {
			if !w.Bookmarks {
				return false
			}
			w.Events = slices.Insert(w.Events, e, history.Event{Type: history.Bookmark, At: w.Events[e].At, Item: history.Item{Revision: w.Events[e].Revision}})
			return true
		})
	}},
	{"late bookmark", []string{WatchOrdered, WatchBookmark}, func(m *mutant) bool {
		return m.event(func(w *history.Watch, e int) bool {
			if !w.Bookmarks {
				return false
			}
			w.Events = slices.Insert(w.Events, e+1, history.Event{Type: history.Bookmark, At: w.Events[e].At, Item: history.Item{Revision: w.Events[e].Revision - 1}})
			return true
		})
	}},
	{"unasked bookmark", []string{WatchBookmark}, func(m *mutant) bool {
		return m.event(func(w *history.Watch, e int) bool {
			if w.Bookmarks {
				return false
			}
			w.Events = slices.Insert(w.Events, e+1, history.Event{Type: history.Bookmark, At: w.Events[e].At, Item: history.Item{Revision: w.Events[e].Revision}})
			return true
		})
	}},
	{"bookmark before a missing event", []string{WatchReliable}, func(m *mutant) bool {
		return m.event(func(w *history.Watch, e int) bool {
			if !w.Bookmarks || e+1 < len(w.Events) {
				return false
			}
			w.Events[e] = history.Event{Type: history.Bookmark, At: w.Events[e].At, Item: history.Item{Revision: w.Events[e].Revision}}
			return true
		})
	}},
	{"another value in an event", []string{WatchContent}, func(m *mutant) bool {
		return m.event(func(w *history.Watch, e int) bool { w.Events[e].Value += "?"; return true })
	}},
	{"another key in an event", []string{WatchContent}, func(m *mutant) bool {
		return m.event(func(w *history.Watch, e int) bool { w.Events[e].Key += "?"; return true })
	}},
	{"another type of event", []string{WatchType}, func(m *mutant) bool {
		return m.event(func(w *history.Watch, e int) bool {
			types := []history.EventType{history.Added, history.Modified, history.Deleted}
			w.Events[e].Type = types[(slices.Index(types, w.Events[e].Type)+1+m.r.IntN(2))%3]
			return true
		})
	}},
	{"an event of no version", []string{WatchContent}, func(m *mutant) bool {
		return m.event(func(w *history.Watch, e int) bool {
			w.Events[e].Revision += 100000
			return true
		})
	}},
	{"an event that the filter hides", []string{WatchFilter}, func(m *mutant) bool {
		return m.event(func(w *history.Watch, e int) bool {
			if w.Prefix == "" || e+1 == len(w.Events) {
				return false
			}
			for i := range m.log {
				v := &m.log[i]
				if v.rev > w.Events[e].Revision && v.rev < w.Events[e+1].Revision && v.key[0] != w.Prefix[0] {
					w.Events = slices.Insert(w.Events, e+1, history.Event{Type: history.Modified, At: w.Events[e].At, Item: history.Item{Key: v.key, Value: v.value, Revision: v.rev}})
					return true
				}
			}
			return false
		})
	}},
	{"an event from before the watch", []string{WatchResumable}, func(m *mutant) bool {
		return m.watches(func(w *history.Watch) bool {
			for i := range m.log {
				if v := &m.log[i]; !w.Initial && v.rev == w.From {
					w.Events = slices.Insert(w.Events, 0, history.Event{Type: history.Modified, At: w.Begin, Item: history.Item{Key: v.key, Value: v.value, Revision: v.rev}})
					return true
				}
			}
			return false
		})
	}},
	{"drop an initial event", []string{WatchInitial}, func(m *mutant) bool {
		return m.initial(func(w *history.Watch, end int) bool {
			e := m.r.IntN(end)
			w.Events = slices.Delete(w.Events, e, e+1)
			return true
		})
	}},
	{"an initial event twice", []string{WatchUnique}, func(m *mutant) bool {
		return m.initial(func(w *history.Watch, end int) bool {
			w.Events = slices.Insert(w.Events, m.r.IntN(end), w.Events[m.r.IntN(end)])
			return true
		})
	}},
	{"a stale initial event", []string{WatchInitial}, func(m *mutant) bool {
		return m.initial(func(w *history.Watch, end int) bool {
			e := m.r.IntN(end)
			old := m.older(w.Events[e].Item)
			if old == nil {
				return false
			}
			w.Events[e].Item = *old
			return true
		})
	}},
	{"stale initial events", []string{WatchFresh}, func(m *mutant) bool {
		return m.initial(func(w *history.Watch, end int) bool {
			if !w.Unset {
				return false
			}
			known := m.before(w.Begin)
			if known == 0 {
				return false
			}
			i := m.after(known) - 2
			if i < 0 {
				return false
			}
			at := m.log[i].rev
			items, _ := m.snapshot(at, w.Prefix, "", w.Selector, 0)
			mark := w.Events[end]
			mark.Revision = at
			w.Events = w.Events[:0]
			for _, it := range items {
				w.Events = append(w.Events, history.Event{Type: history.Added, Item: it, At: mark.At})
			}
			w.Events = append(w.Events, mark)
			return true
		})
	}},
	{"410 above the floor", []string{WatchExpired}, func(m *mutant) bool {
		return m.watches(func(w *history.Watch) bool {
			if w.From <= m.floor {
				return false
			}
			w.Events = append(w.Events, history.Event{Type: history.Error, Code: http.StatusGone, At: w.End})
			return true
		})
	}},
	{"500 in a stream", []string{WatchError}, func(m *mutant) bool {
		return m.watches(func(w *history.Watch) bool {
			w.Events = append(w.Events, history.Event{Type: history.Error, Code: 500, At: w.End})
			return true
		})
	}},
	{"an event behind an error", []string{WatchError}, func(m *mutant) bool {
		return m.event(func(w *history.Watch, e int) bool {
			w.Events = slices.Insert(w.Events, e, history.Event{Type: history.Error, Code: 504, At: w.Events[e].At})
			return true
		})
	}},
}
