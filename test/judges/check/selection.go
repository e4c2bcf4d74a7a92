package check

import (
	"cmp"
	"slices"
	"strings"

	"github.com/quorate/quorate/test/judges/history"
)

// filter is what a watch asks for.
type filter struct{ prefix, selector string }

// expected is an event that a filter makes of a version.
type expected struct {
	history.Item // of DELETED the previous value, at the revision of the change
	kind         history.EventType
	// unsure: what the object was before is not known. The value of a deletion
	// and the type are then anybody's guess.
	unsure bool
	live   int // objects that match after this event
}

// selection is the log through a filter.
type selection struct {
	events []expected
	base   int // objects that match before the log
}

// selectFor returns the log through a filter, made once for all watches that share it.
func (j *judge) selectFor(w *history.Watch) *selection {
	key := filter{w.Prefix, w.Selector}
	if s, ok := j.selections[key]; ok {
		return s
	}
	s := &selection{}
	for _, b := range j.base {
		if strings.HasPrefix(b.Key, key.prefix) && strings.Contains(b.Value, key.selector) {
			s.base++
		}
	}
	live := s.base
	for i := range j.log {
		v := &j.log[i]
		if !strings.HasPrefix(v.key, key.prefix) {
			continue
		}
		e, ok := key.event(v)
		if !ok {
			continue
		}
		// What is unsure was not counted: nobody has seen the object before.
		switch {
		case e.kind == history.Added, e.kind == history.Modified && e.unsure:
			live++
		case e.kind == history.Deleted && !e.unsure:
			live--
		}
		e.live = live
		s.events = append(s.events, e)
	}
	if j.selections == nil {
		j.selections = map[filter]*selection{}
	}
	j.selections[key] = s
	return s
}

// event says how a version looks through a selector: an object that begins to
// match is ADDED, one that ceases to match is DELETED with its previous value.
func (f filter) event(v *version) (expected, bool) {
	e := expected{Item: history.Item{Key: v.key, Value: v.value, Revision: v.rev}, unsure: v.unsure}
	was := v.live && (strings.Contains(v.prev, f.selector) || v.unsure)
	is := !v.deleted && strings.Contains(v.value, f.selector)
	switch {
	case is && was:
		e.kind = history.Modified
	case is:
		e.kind = history.Added
	case was:
		e.kind = history.Deleted
		if !v.unsure {
			e.Value = v.prev
		}
	default:
		return e, false
	}
	return e, true
}

// after returns the position of the first event above a revision.
func (s *selection) after(rev uint64) int {
	i, _ := slices.BinarySearchFunc(s.events, rev, func(e expected, rev uint64) int {
		if e.Revision <= rev {
			return -1
		}
		return 1
	})
	return i
}

// at returns the event of a revision, or nil.
func (s *selection) at(rev uint64) *expected {
	i, ok := slices.BinarySearchFunc(s.events, rev, func(e expected, rev uint64) int { return cmp.Compare(e.Revision, rev) })
	if !ok {
		return nil
	}
	return &s.events[i]
}

// matching returns how many objects match at a revision.
func (s *selection) matching(rev uint64) int {
	if i := s.after(rev); i > 0 {
		return s.events[i-1].live
	}
	return s.base
}
