package mvcc

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

// log gives a state the entries 1, 2, 3, …
type log struct {
	testing.TB
	s     *State
	index proto.RaftIndex
}

func (l *log) put(key string) *Version {
	l.Helper()
	entry, err := proto.Encode(proto.KindWrite, &proto.Write{Table: "t", Key: key, Op: proto.Op_OP_PUT, Value: []byte("<>"), RevisionOffset: 1})
	return l.entry(entry, err).Version
}

func (l *log) compact(floor proto.Revision) {
	l.Helper()
	l.entry(proto.Encode(proto.KindCompact, &proto.Compact{Floor: uint64(floor)}))
}

func (l *log) entry(entry []byte, err error) Result {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
	l.index++
	r, err := l.s.Apply(l.index, 1, entry)
	if err != nil {
		l.Fatal(err)
	}
	l.s.Publish()
	return r
}

// A cursor that has read a full last chunk to its end, with the floor exactly
// there, goes on with what is written after the chunk was dropped.
func TestCursorAtDroppedTail(t *testing.T) {
	for _, room := range []int{chunkSize, chunkSize + 1, chunkSize / 2} {
		for _, floorBehind := range []proto.Revision{0, 1} {
			t.Run(fmt.Sprint(room, floorBehind), func(t *testing.T) {
				l := &log{TB: t, s: New()}
				for i := range chunkSize {
					l.put(fmt.Sprint("k", i))
				}
				tail := l.s.Applied()
				c, err := l.s.Table("t").Watch(0)
				must.OK(t, err)
				buf := make([]*Version, room)
				for read := 0; read < chunkSize; {
					n, err := c.Next(buf, tail)
					if err != nil || n == 0 {
						t.Fatal(n, err)
					}
					read += n
				}
				if floorBehind > 0 {
					// Another table's entry: the floor is above the chunk's end.
					l.entry(proto.Encode(proto.KindNewTerm, &proto.NewTerm{Term: 1}))
					if _, err := c.Next(buf, l.s.Applied()); err != nil {
						t.Fatal(err)
					}
				}
				l.compact(tail + floorBehind)
				v := l.put("k0")
				n, err := c.Next(buf, l.s.Applied())
				if err != nil || n != 1 || buf[0] != v {
					t.Errorf("%d events, %v; want the one at %d", n, err, v.Revision)
				}
			})
		}
	}
}

// A chunk of the history is let go when the floor is at its last version and it is full, or another one follows.
func TestTrim(t *testing.T) {
	for _, c := range []struct {
		versions, floor int
		chunks          int
	}{
		{chunkSize, chunkSize - 1, 1},
		{chunkSize, chunkSize, 0},
		{chunkSize - 1, chunkSize - 1, 1},
		{chunkSize + 1, chunkSize - 1, 2},
		{chunkSize + 1, chunkSize, 1},
		{3 * chunkSize, 2*chunkSize - 1, 2},
		{3 * chunkSize, 2 * chunkSize, 1},
		{3 * chunkSize, 2*chunkSize + 1, 1},
		{3*chunkSize + 1, 3*chunkSize + 1, 1},
	} {
		l := &log{TB: t, s: New()}
		for range c.versions {
			l.put("k")
		}
		l.compact(proto.Revision(c.floor))
		if n := len(l.s.Table("t").hist.list()); n != c.chunks {
			t.Errorf("of %d versions %d chunks are kept above %d, want %d", c.versions, n, c.floor, c.chunks)
		}
	}
}

// Chunks come and go; a cursor with little room sees every event once.
func TestCursorOverManyChunks(t *testing.T) {
	l := &log{TB: t, s: New()}
	l.put("k0")
	cursors := map[int]*Cursor{}
	for _, room := range []int{1, 7, chunkSize, 1000} {
		c, err := l.s.Table("t").Watch(0)
		must.OK(t, err)
		cursors[room] = c
	}
	written := []proto.Revision{1}
	at := map[int]int{}
	for i := range 6 * chunkSize {
		written = append(written, l.put(fmt.Sprint("k", i%300)).Revision)
		for room, c := range cursors {
			buf := make([]*Version, room)
			for n := room; n == room; {
				var err error
				if n, err = c.Next(buf, l.s.Applied()); err != nil {
					t.Fatal(err)
				}
				for _, v := range buf[:n] {
					if v.Revision != written[at[room]] {
						t.Fatalf("room %d: event %d, want %d", room, v.Revision, written[at[room]])
					}
					at[room]++
				}
			}
			if at[room] != len(written) {
				t.Fatalf("room %d: read %d of %d", room, at[room], len(written))
			}
		}
		if i%97 == 0 {
			l.compact(l.s.Applied())
			must.OK(t, l.s.Check())
		}
	}
	for room, c := range cursors {
		l.put("k0")
		after := c.After()
		if n, err := c.Next(nil, l.s.Applied()); n != 0 || err != nil || c.After() != after {
			t.Errorf("room %d: without room %d are read, up to %d from %d, %v", room, n, c.After(), after, err)
		}
	}
	if n := len(l.s.Table("t").hist.list()); n > 2 {
		t.Errorf("%d chunks are kept by a history without a window", n)
	}
}

func TestApplyRefusesWhatItDoesNotKnow(t *testing.T) {
	encode := func(kind proto.Kind, w *proto.Write) []byte {
		b, err := proto.Encode(kind, w)
		must.OK(t, err)
		return b
	}
	good := &proto.Write{Table: "t", Key: "k", Op: proto.Op_OP_PUT}
	for _, c := range []struct {
		name  string
		index proto.RaftIndex
		entry []byte
		want  error
	}{
		{"an index that does not rise", 5, encode(proto.KindWrite, good), ErrOrder},
		{"no frame", 6, []byte{1}, proto.ErrFormat},
		{"another format", 6, []byte{9, 1}, proto.ErrFormat},
		{"a damaged body", 6, []byte{1, 1, 0xff}, proto.ErrFormat},
		{"an unknown kind", 6, []byte{1, 100}, proto.ErrUnknownKind},
		{"no operation", 6, encode(proto.KindWrite, &proto.Write{Table: "t", Key: "k"}), proto.ErrUnknownKind},
		{"a condition of the future", 6, encode(proto.KindWrite, &proto.Write{Table: "t", Key: "k", Op: proto.Op_OP_PUT, Condition: 9}), proto.ErrUnknownKind},
	} {
		s := New()
		if _, err := s.Apply(5, 1, encode(proto.KindWrite, good)); err != nil {
			t.Fatal(err)
		}
		s.Publish()
		before := s.Mark()
		if r, err := s.Apply(c.index, 1, c.entry); !errors.Is(err, c.want) {
			t.Errorf("%s: %+v, %v", c.name, r, err)
		}
		s.Publish()
		if s.Mark() != before || s.Check() != nil {
			t.Errorf("%s: changed the state to %+v, %v", c.name, s.Mark(), s.Check())
		}
	}
	s := New()
	if _, err := s.Apply(1, 1, []byte{1, byte(proto.KindIgnorable) | 7}); err != nil {
		t.Errorf("an unknown kind that may be skipped: %v", err)
	}
}

func TestLoadRefusesBrokenRecords(t *testing.T) {
	state := &proto.StateRecord{Applied: 10, Floor: 5}
	rec := func(rev, create uint64, deleted bool) *proto.VersionRecord {
		return &proto.VersionRecord{Table: "t", Key: "k", Revision: rev, CreateRevision: create, Deleted: deleted}
	}
	for name, recs := range map[string][]*proto.VersionRecord{
		"no revision":                    {rec(0, 0, false)},
		"a revision beyond the state":    {rec(11, 11, false)},
		"created after it was written":   {rec(6, 7, false)},
		"twice":                          {rec(6, 6, false), rec(6, 6, false)},
		"not in order":                   {rec(7, 7, false), rec(6, 6, false)},
		"two at or below the floor":      {rec(3, 3, false), rec(4, 3, false)},
		"without the version before it":  {rec(6, 3, false)},
		"a tombstone of nothing we have": {rec(6, 3, true)},
	} {
		s := New()
		err := s.LoadState(state)
		for _, r := range recs {
			err = errors.Join(err, s.LoadVersion(r))
		}
		if !errors.Is(err, ErrOrder) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := New()
	if err := errors.Join(s.LoadState(state), s.LoadState(state)); !errors.Is(err, ErrOrder) {
		t.Errorf("a state record into a state: %v", err)
	}
	if err := New().LoadState(&proto.StateRecord{Applied: 10, Floor: 11}); !errors.Is(err, ErrOrder) {
		t.Errorf("a floor above the state: %v", err)
	}
	if err := New().LoadState(&proto.StateRecord{Applied: 10, Floor: 10}); err != nil {
		t.Errorf("a floor at the state: %v", err)
	}
}

func TestValidate(t *testing.T) {
	for name, w := range map[string]*proto.Write{
		"no op":         {Table: "t", Key: "k"},
		"no table":      {Key: "k", Op: proto.Op_OP_PUT},
		"no key":        {Table: "t", Op: proto.Op_OP_PUT},
		"offset":        {Table: "t", Key: "k", Op: proto.Op_OP_PUT, Value: []byte("ab"), RevisionOffset: 3},
		"id too short":  {Table: "t", Key: "k", Op: proto.Op_OP_PUT, RequestId: make([]byte, 15)},
		"bad condition": {Table: "t", Key: "k", Op: proto.Op_OP_DELETE, Condition: -1},
	} {
		if err := Validate(w); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, w := range map[string]*proto.Write{
		"an offset at the end": {Value: []byte("ab"), RevisionOffset: 2},
		"a request id":         {RequestId: make([]byte, proto.RequestIDSize)},
		"many ranges":          {DecidedAt: 1, RuleRanges: slices.Repeat([]*proto.RuleRange{{Table: "t"}}, maxRuleRanges)},
	} {
		w.Table, w.Key, w.Op = "t", "k", proto.Op_OP_PUT
		if err := Validate(w); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRevisionsInValues: a value gets its revision's digits where its slot is, in no more bytes than it needs, for
// they are kept.
func TestRevisionsInValues(t *testing.T) {
	for _, c := range []struct {
		value    string
		offset   uint32
		old, rev proto.Revision // without old the digits are inserted
		want     string
	}{
		{"", 0, 0, 7, ""},
		{"", 1, 0, 7, ""},
		{"<v>", 0, 0, 7, "<v>"},
		{"<v:>", 3, 0, 7, "<v:7>"},
		{"<v:", 3, 0, 12345, "<v:12345"},
		{"<v:", 4, 0, 7, "<v:"},
		{"<v:9>", 3, 9, 12345, "<v:12345>"},
		{"<v:9", 3, 9, 10, "<v:10"},
		{"<v:10>", 3, 10, 11, "<v:11>"},
		{"<v:", 3, 9, 10, "<v:"},
		{"<v>", 0, 9, 10, "<v>"},
	} {
		value := []byte(c.value)
		got := slices.Clip(value)
		if c.old > 0 {
			got = replaceRevision(got, c.offset, c.old, c.rev)
		} else {
			got = insertRevision(got, c.offset, c.rev)
		}
		if string(got) != c.want || string(value) != c.value {
			t.Errorf("%q with %d at %d is %q, want %q; the value before is %q", c.value, c.rev, c.offset, got, c.want, value)
		}
		if cap(got) != len(got) {
			t.Errorf("%q has %d bytes and takes %d", got, len(got), cap(got))
		}
	}
}

// TestAdvance: an index without a command moves the mark, and one that is not new does not.
func TestAdvance(t *testing.T) {
	s := New()
	for _, c := range []struct {
		index proto.RaftIndex
		term  proto.Term
		want  Mark
	}{
		{5, 2, Mark{Applied: 5, Term: 2}},
		{5, 3, Mark{Applied: 5, Term: 2}},
		{4, 3, Mark{Applied: 5, Term: 2}},
		{6, 3, Mark{Applied: 6, Term: 3}},
	} {
		s.Advance(c.index, c.term)
		s.Publish()
		if m := s.Mark(); m != c.want {
			t.Errorf("at %d: %+v, want %+v", c.index, m, c.want)
		}
	}
}

// TestGrow: a page that grows has the room that is asked for, whether it is a page that somebody has given back
// or a new one.
func TestGrow(t *testing.T) {
	first := &Version{}
	release := func() {
		p := Page{Versions: make([]*Version, manyVersions+1)}
		p.Release()
	}
	l := &log{TB: t, s: New()}
	l.put("k")
	for range 20 { // the pool may lose what it is given
		release()
		if page, err := l.s.Table("t").Range(Query{At: l.s.Applied()}); cap(page.Versions) > manyVersions || err != nil {
			t.Fatalf("a short page has taken what a long one had, %v", err)
		}
		for _, n := range []int{-1, 0, manyVersions - 1, manyVersions, manyVersions + 1} {
			release()
			got := grow([]*Version{first, nil}, n)
			if len(got) != 2 || got[0] != first || cap(got) < 2+n {
				t.Fatalf("%d versions with room for %d, want 2 with room for %d", len(got), cap(got), 2+n)
			}
		}
	}
}

// TestLongPages: a page that gets long grows once more, to what it will have: a list of ten thousand
// objects takes hardly more pieces of memory than one of some hundreds.
func TestLongPages(t *testing.T) {
	var allocations []float64
	for _, n := range []int{manyVersions + 1, 16 * manyVersions} {
		l := &log{TB: t, s: New()}
		for i := range n {
			l.put(fmt.Sprintf("k%05d", i))
		}
		table := l.s.Table("t")
		allocations = append(allocations, testing.AllocsPerRun(5, func() {
			if page, err := table.Range(Query{At: l.s.Applied()}); len(page.Versions) != n || err != nil {
				t.Fatalf("%d of %d versions, %v", len(page.Versions), n, err)
			}
		}))
	}
	if allocations[1] > allocations[0]+2 { // the tree that is walked through is deeper
		t.Errorf("a short and a long page take %v allocations", allocations)
	}
}

// TestMemo: what was stored last is there for all who read the version, and can be taken away.
func TestMemo(t *testing.T) {
	v := &Version{}
	for _, want := range []any{nil, "first", 2, nil} {
		if want != nil || v.Memo() != nil {
			v.SetMemo(want)
		}
		if got := v.Memo(); got != want {
			t.Errorf("it is %v, want %v", got, want)
		}
	}
}
