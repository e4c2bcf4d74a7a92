package probe

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestBreaks is the judge of each answer.
func TestBreaks(t *testing.T) {
	const ms = time.Millisecond
	stale := func(age time.Duration) Answer { return Answer{Staleness: Staleness{Versions: 1, Age: age}} }
	said := func(age, bound time.Duration) Answer {
		a := stale(age)
		a.Bound, a.Bounded = bound, true
		return a
	}
	for _, c := range []struct {
		name       string
		mode       Mode
		list       bool
		a          Answer
		asked, got uint64
		want       bool
	}{
		{"Any may be stale", Any, false, said(90*ms, 100*ms), 9, 5, false},
		{"Any at its bound", Any, false, said(100*ms, 100*ms), 9, 5, false},
		{"Any staler than it says", Any, false, said(100*ms+1, 100*ms), 9, 5, true},
		{"Any that knows no bound", Any, true, stale(time.Hour), 9, 5, false},
		{"Most Recent, current", MostRecent, false, Answer{}, 9, 5, false},
		{"Most Recent that lacks one", MostRecent, false, stale(1), 9, 9, true},
		{"Not older: the object itself may be older", NotOlderThan, false, Answer{}, 9, 5, false},
		{"Not older: a list may not", NotOlderThan, true, Answer{}, 9, 8, true},
		{"Not older, newer", NotOlderThan, true, Answer{}, 9, 12, false},
		{"Not older that lacks one", NotOlderThan, false, stale(1), 9, 9, true},
		{"Exact", Exact, true, Answer{}, 9, 9, false},
		{"Exact, newer", Exact, true, Answer{}, 9, 10, true},
		{"Exact that lacks one", Exact, true, stale(1), 9, 9, true},
	} {
		c.a.List, c.a.Revision = c.list, c.got
		if got := c.a.Breaks(c.mode, c.asked); (got != "") != c.want {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

func TestMarks(t *testing.T) {
	object := newObject(3, 4, 100)
	var decoded struct {
		Metadata struct{ Name string }
		Data     map[string]string
	}
	if err := json.Unmarshal(object, &decoded); err != nil || decoded.Data["probe"] != "3/0" || len(decoded.Data["value"]) != 100 || decoded.Metadata.Name != Name(3) {
		t.Errorf("%s: %v", object, err)
	}
	if strings.Contains(string(newObject(4, 4, 10)), probeKey) {
		t.Error("the fifth object of four probes is a probe")
	}
	var got []int64
	list := `{"metadata":{"resourceVersion":"77"},"items":[{"metadata":{"resourceVersion":"5"},"data":{` + mark(0, 12) + `}},{"data":{` + mark(1, 0) + `}}]}`
	if err := Marks([]byte(list), func(k int, n int64) { got = append(got, int64(k), n) }); err != nil || !slices.Equal(got, []int64{0, 12, 1, 0}) {
		t.Errorf("%v, %v", got, err)
	}
	if n, err := RevisionOf([]byte(list)); err != nil || n != 77 {
		t.Errorf("revision %d, %v", n, err)
	}
	for _, bad := range []string{`"probe":"1"`, `"probe":"1/x"`, `"probe":"-1/2"`, `"probe":"1/-2"`, `"probe":"1/2`} {
		if err := Marks([]byte(bad), func(int, int64) {}); err == nil {
			t.Errorf("%s is taken for a mark", bad)
		}
	}
	if _, err := RevisionOf([]byte(`{"metadata":{}}`)); err == nil {
		t.Error("a revision out of nothing")
	}
}

// TestJudge: answers to reads of two probes, whose newest writes 3 and 1 were acknowledged at revision 9.
func TestJudge(t *testing.T) {
	s := &Space{Namespace: "x", Ledger: NewLedger(2)}
	for n := range int64(4) {
		s.Ledger.Acknowledged(0, n, uint64(n)+5, time.Duration(n)*time.Second)
	}
	s.Ledger.Acknowledged(1, 0, 4, 0)
	s.Ledger.Acknowledged(1, 1, 9, 4*time.Second)
	var snap Snapshot
	s.Ledger.Now(&snap, func() time.Duration { return 5 * time.Second })
	object := func(k int, n int64) string { return `{"resourceVersion":"8",` + mark(k, n) + `}` }
	list := func(items ...string) string { return `{"resourceVersion":"9",` + strings.Join(items, ",") + `}` }
	for _, c := range []struct {
		name   string
		mode   Mode
		list   bool
		query  string
		answer string
		lacks  int64
		broken bool
		err    string
	}{
		{"current", MostRecent, false, "", object(0, 3), 0, false, ""},
		{"stale", MostRecent, false, "", object(0, 2), 1, true, ""},
		{"stale, which Any may be", Any, false, "resourceVersion=0", object(0, 1), 2, false, ""},
		{"not older", NotOlderThan, false, "resourceVersion=9", object(0, 3), 0, false, ""},
		{"another object", MostRecent, false, "", object(1, 1), 0, false, "0 probes instead of 1"},
		{"no object", MostRecent, false, "", "{}", 0, false, "0 probes"},
		{"no version", MostRecent, false, "", mark(0, 3), 0, false, "no resourceVersion"},
		{"all", Exact, true, "resourceVersion=9&resourceVersionMatch=Exact", list(mark(0, 3), mark(1, 1)), 0, false, ""},
		{"one of a list is stale", NotOlderThan, true, "resourceVersion=9&resourceVersionMatch=NotOlderThan", list(mark(0, 3), mark(1, 0)), 1, true, ""},
		{"one is not there", Any, true, "resourceVersion=0", list(mark(0, 3)), 0, false, "1 probes instead of 2"},
	} {
		if r := s.Read(c.mode, c.list, 0, snap.Revision); r.Query != c.query || strings.HasSuffix(r.Path, "/"+Name(0)) == c.list {
			t.Errorf("%s: asks %s?%s", c.name, r.Path, r.Query)
		}
		a, broken, err := s.Judge(c.mode, c.list, 0, &snap, []byte(c.answer), nil)
		if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, want %q", c.name, err, c.err)
		}
		if err == nil && (a.Versions != c.lacks || (broken != "") != c.broken) || err != nil && broken != "" {
			t.Errorf("%s: lacks %d, breaks %q", c.name, a.Versions, broken)
		}
	}
}
