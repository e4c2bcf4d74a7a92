package view_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/view"
)

// log is a state and its one writer.
type log struct {
	t       *testing.T
	state   atomic.Pointer[mvcc.State]
	entries [][]byte // from index 1 on
}

func newLog(t *testing.T) *log {
	l := &log{t: t}
	l.state.Store(mvcc.New())
	return l
}

func (l *log) State() *mvcc.State { return l.state.Load() }

// index is that of the newest entry.
func (l *log) index() proto.RaftIndex { return proto.RaftIndex(len(l.entries)) }

// apply applies an entry and shows it.
func (l *log) apply(kind proto.Kind, m proto.Message) {
	l.t.Helper()
	entry, err := proto.Encode(kind, m)
	if err != nil {
		l.t.Error(err)
	}
	l.entries = append(l.entries, entry)
	if _, err := l.State().Apply(l.index(), 1, entry); err != nil {
		l.t.Error(err)
	}
	l.State().Publish()
}

func (l *log) put(table, key string) {
	l.t.Helper()
	l.apply(proto.KindWrite, &proto.Write{
		Table: table, Key: key, Op: proto.Op_OP_PUT, Value: []byte("{}"), Since: uint64(l.State().Applied()),
		RequestId: binary.BigEndian.AppendUint64(make([]byte, proto.RequestIDSize-8, proto.RequestIDSize), uint64(l.index())),
	})
}

func (l *log) compact() {
	l.t.Helper()
	l.apply(proto.KindCompact, &proto.Compact{Floor: uint64(l.State().Applied())})
}

// replace puts another state with the same contents in the place of this one, as a
// snapshot does.
func (l *log) replace() {
	l.t.Helper()
	received := mvcc.New()
	for i, entry := range l.entries {
		if _, err := received.Apply(proto.RaftIndex(i+1), 1, entry); err != nil {
			l.t.Error(err)
		}
	}
	received.Publish()
	l.state.Store(received)
}

// keys is what the tests derive: the newest revision of each key, as "table/key".
type keys map[string]proto.Revision

// newKeys returns a view of tables, derived as authorizers derive theirs: from what
// has changed, and from everything where that is not known.
func newKeys(store view.Store, tables ...string) *view.View[keys] {
	cursors := make([]*mvcc.Cursor, len(tables))
	return view.New(store, tables, func(now view.Reading, was keys) (keys, error) {
		next := keys{}
		if now.Follows {
			maps.Copy(next, was)
		} else {
			clear(cursors)
		}
		for i, t := range now.Tables {
			if t == nil {
				continue
			}
			var versions []*mvcc.Version
			if cursors[i] == nil {
				page, err := t.Range(mvcc.Query{At: now.At})
				if err != nil {
					return nil, err
				}
				if cursors[i], err = t.Watch(now.At); err != nil {
					return nil, err
				}
				versions = page.Versions
			}
			for {
				var buf [4]*mvcc.Version
				n, err := cursors[i].Next(buf[:], now.At)
				if err != nil {
					return nil, err
				}
				versions = append(versions, buf[:n]...)
				if n < len(buf) {
					break
				}
			}
			for _, v := range versions {
				next[t.Name()+"/"+v.Key] = v.Revision
			}
		}
		return next, nil
	})
}

// TestNothingVisibleIsMissing writes, cuts the history behind it and replaces the
// state, while others ask. Each write that was visible before the question must be in
// the answer.
func TestNothingVisibleIsMissing(t *testing.T) {
	const writes = 200
	rounds := 50
	if testing.Short() {
		rounds = 15
	}
	names := []string{"a", "b", "c", "never"}
	for range rounds {
		l := newLog(t)
		v := newKeys(l, names...)
		var mu sync.Mutex
		visible := keys{}
		var wg sync.WaitGroup
		done := make(chan struct{})
		for range 2 {
			wg.Go(func() {
				for last := false; !last; {
					select {
					case <-done:
						last = true
					default:
					}
					mu.Lock()
					want := maps.Clone(visible)
					mu.Unlock()
					got := v.Get()
					for k, r := range want {
						if got[k] < r {
							t.Errorf("%s is visible at %d, the view has it at %d", k, r, got[k])
							return
						}
					}
				}
			})
		}
		for i := range writes {
			table, key := names[i%3], fmt.Sprint("k", i%5)
			l.put(table, key)
			mu.Lock()
			visible[table+"/"+key] = proto.Revision(l.index())
			mu.Unlock()
			switch {
			case i%11 == 10:
				l.compact()
			case i == writes/2:
				l.replace()
			}
		}
		close(done)
		wg.Wait()
		if t.Failed() {
			return
		}
	}
}

// TestTableThatBegins has tables begin while another goroutine reads the view, which
// takes it as long as there are tables to look for: one that begins behind its back
// must not count as read.
func TestTableThatBegins(t *testing.T) {
	const tables = 500
	rounds := 3
	if testing.Short() {
		rounds = 1
	}
	names := make([]string, tables+1)
	for i := range tables {
		names[i] = fmt.Sprint("t", i)
	}
	names[tables] = "clock"
	for range rounds {
		l := newLog(t)
		v := newKeys(l, names...)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			for ctx.Err() == nil {
				v.Get()
			}
		})
		for _, name := range names[:tables] {
			l.put("clock", "k") // the other goroutine begins to read
			l.put(name, "k")
			if rev := v.Get()[name+"/k"]; rev != proto.Revision(l.index()) {
				t.Errorf("%s has begun at %d, the view has it at %d", name, l.index(), rev)
			}
		}
		cancel()
		wg.Wait()
		if t.Failed() {
			return
		}
	}
}

// TestSameValue: as long as nothing changes in its tables, a view is the same value,
// and asking allocates nothing.
func TestSameValue(t *testing.T) {
	l := newLog(t)
	made := 0
	v := view.New(l, []string{"a", "b"}, func(view.Reading, int) (int, error) {
		made++
		return made, nil
	})
	for _, step := range []struct {
		what string
		do   func()
		want int
	}{
		{"nothing is there", func() {}, 1},
		{"another table", func() { l.put("other", "k") }, 1},
		{"a table begins", func() { l.put("b", "k") }, 2},
		{"another table again", func() { l.put("other", "k") }, 2},
		{"a table grows", func() { l.put("b", "k2") }, 3},
		{"the history is cut", l.compact, 3},
		{"the state is another one", l.replace, 4},
	} {
		step.do()
		if got := v.Get(); got != step.want {
			t.Errorf("%s: value %d, want %d", step.what, got, step.want)
		}
		if n := testing.AllocsPerRun(10, func() { v.Get() }); n != 0 {
			t.Errorf("%s: asking allocates %v times", step.what, n)
		}
	}
}

// TestTableThatIsDropped: a view does not keep what it had of a table that is gone, whether it has read the
// deletion before or not, and sees what is in the next one of that name.
func TestTableThatIsDropped(t *testing.T) {
	for _, read := range []bool{true, false} {
		l := newLog(t)
		v := newKeys(l, "t") // of another table the floor would be noticed
		l.put("t", "k")
		v.Get()
		mark := v.Mark()
		l.apply(proto.KindWrite, &proto.Write{Table: "t", Key: "k", Op: proto.Op_OP_DELETE})
		if read {
			v.Get()
		}
		l.compact()
		if l.State().Table("t") != nil {
			t.Fatal("the table is not dropped")
		}
		if !v.Changed(mark) {
			t.Errorf("read %v: a deletion is no change", read)
		}
		// What newKeys derives keeps a deletion as the newest revision of a key.
		if got := v.Get(); !read && got["t/k"] != 0 {
			t.Errorf("read %v: %v", read, got)
		}
		mark = v.Mark()
		l.put("t", "k")
		if got := v.Get(); got["t/k"] != proto.Revision(l.index()) || !v.Changed(mark) {
			t.Errorf("read %v: %v, want t/k at %d", read, got, l.index())
		}
	}
}
