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
