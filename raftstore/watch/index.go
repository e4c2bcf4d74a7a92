package watch

import (
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// interests are the watchers of one table by what they are interested in. Guarded
// by Hub.watchersMu.
type interests struct {
	groups map[mvcc.Interest]*group
	// fields are the names of the fields that groups are by, with how many there are.
	fields map[string]int
	narrow int // groups that are not everything
}

// group are the watchers with the same interest, in no order.
type group struct{ watchers []*Watcher }

func (t *interests) add(w *Watcher) {
	g := t.groups[w.only]
	if g == nil {
		g = &group{}
		t.groups[w.only] = g
		t.counted(w.only, 1)
	}
	w.place = len(g.watchers)
	g.watchers = append(g.watchers, w)
}

// remove reports whether the watcher was there.
func (t *interests) remove(w *Watcher) bool {
	g := t.groups[w.only]
	if g == nil || w.place >= len(g.watchers) || g.watchers[w.place] != w {
		return false
	}
	last := len(g.watchers) - 1
	g.watchers[w.place] = g.watchers[last]
	g.watchers[w.place].place = w.place
	g.watchers[last] = nil
	g.watchers = g.watchers[:last]
	if last == 0 {
		delete(t.groups, w.only)
		t.counted(w.only, -1)
	}
	return true
}

func (t *interests) counted(only mvcc.Interest, n int) {
	if only.All() {
		return
	}
	t.narrow += n
	if name := only.Field.Name; name != "" {
		if t.fields == nil {
			t.fields = map[string]int{}
		}
		if t.fields[name] += n; t.fields[name] == 0 {
			delete(t.fields, name)
		}
	}
}

// routeBatch is how many versions are read at once; a round has rarely more.
const routeBatch = 64

// route tells the watchers that are interested about the versions of a table in
// (since, upTo]. The versions are read from the history: there is no queue.
func (t *interests) route(table *mvcc.Table, since, upTo proto.Revision) {
	t.groups[mvcc.Interest{}].wake(since + 1)
	if t.narrow == 0 {
		return
	}
	if table == nil {
		// The table has changed and is gone: its last deletion has left the history. They
		// have to look at the floor.
		t.wakeAll(since + 1)
		return
	}
	cursor, err := table.Watch(since)
	var batch [routeBatch]*mvcc.Version
	for n := routeBatch; err == nil && n == routeBatch; {
		n, err = cursor.Next(batch[:], upTo)
		for _, v := range batch[:n] {
			t.wakeFor(v)
		}
	}
	if err != nil {
		// The floor has passed this goroutine. They have to look for themselves.
		t.wakeAll(since + 1)
	}
}

// wakeFor wakes the watchers with a narrow interest that a version concerns.
func (t *interests) wakeFor(v *mvcc.Version) {
	t.groups[mvcc.Interest{Key: v.Key}].wake(v.Revision)
	if prefix := mvcc.PrefixOf(v.Key); prefix != "" {
		t.groups[mvcc.Interest{Prefix: prefix}].wake(v.Revision)
	}
	if len(t.fields) == 0 {
		return
	}
	before := v.Prev()
	if before == nil && !v.Created() {
		// The floor has cut it off: who was interested in it is not known any more.
		for only, g := range t.groups {
			if only.Field.Name != "" {
				g.wake(v.Revision)
			}
		}
		return
	}
	for name := range t.fields {
		now, _ := v.Fields.Get(name)
		t.groups[mvcc.Interest{Field: mvcc.Pair{Name: name, Value: now}}].wake(v.Revision)
		if v.Created() {
			continue
		}
		if was, _ := before.Fields.Get(name); was != now {
			t.groups[mvcc.Interest{Field: mvcc.Pair{Name: name, Value: was}}].wake(v.Revision)
		}
	}
}

func (t *interests) wakeAll(from proto.Revision) {
	for _, g := range t.groups {
		g.wake(from)
	}
}

// wake tells a group, which may be nil, that there may be something from a revision
// on. A watcher keeps the first one that it was told until it reads.
func (g *group) wake(from proto.Revision) {
	if g == nil {
		return
	}
	for _, w := range g.watchers {
		w.due.CompareAndSwap(0, uint64(from))
		w.Poke()
	}
}
