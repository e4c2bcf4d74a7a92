package dense

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/judges/history"
)

// TestPlaces: what each operation is told to have found, "state/place", in the order of calls.
func TestPlaces(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"gaps are closed", `
			log a=1@4 b=2@9 a-@30
			op c1 n1 create a=1 0..1 ok @4
			op c1 n1 create b=2 2..3 ok @9
			op c2 n1 list MostRecent 4..5 ok @17 a=1@4 b=2@9
			op c1 n1 delete a 6..7 ok @30`, "2/2 3/3 3/3 4/4"},
		{"a get is told the least revision that fits", `
			log a=1@4 b=2@5 a=3@6
			op c1 n1 create a=1 0..1 ok @4
			op c1 n1 create b=2 2..20 ok @5
			op c1 n1 update a=3 4..20 ok @6
			op c2 n1 get a MostRecent 5..6 ok a=1@4
			op c2 n1 get a MostRecent 7..8 ok a=3@6
			op c2 n1 get b MostRecent 9..10 ok b=2@5`, "2/2 3/3 4/4 2/2 4/4 4/4"},
		{"but not less than what was seen before, by an event too", `
			log a=1@4 b=2@5
			op c1 n1 create a=1 0..1 ok @4
			op c1 n1 create b=2 2..20 ok @5
			op c2 n1 get a MostRecent 3..4 ok a=1@4
			watch c3 n1 0..20 from=4
			  5 ADDED b=2@5
			op c2 n1 get a MostRecent 6..7 ok a=1@4`, "2/2 3/3 2/2 3/3"},
		{"and where nothing fits, the least that real time allows", `
			log a=1@4 a=2@5
			op c1 n1 create a=1 0..1 ok @4
			op c1 n1 update a=2 2..3 ok @5
			op c2 n1 get a MostRecent 4..5 ok a=1@4`, "2/2 3/3 3/3"},
		{"an old read has a state, and a place behind what was acknowledged", `
			log a=1@4 a=2@5
			op c1 n1 create a=1 0..1 ok @4
			op c1 n1 update a=2 2..3 ok @5
			op c2 n1 get a Any 4..5 ok a=1@4
			op c2 n1 list Any 6..7 ok @4 a=1@4`, "2/2 3/3 2/3 2/3"},
		{"refusals are placed like reads", `
			log a=1@4 a-@5
			op c1 n1 create a=1 0..1 ok @4
			op c2 n1 create a=9 2..9 refused 409 AlreadyExists
			op c1 n1 delete a 3..4 ok @5
			op c2 n1 update a=8 5..6 refused 404
			op c2 n1 create a=7 7..8 refused 429`, "2/2 2/2 3/3 3/3"},
		{"a write without an answer happened if its value is there, a delete if a deletion is", `
			log a=1@4 a-@5
			op c1 n1 create a=1 0.. unknown
			op c1 n1 create a=2 1.. unknown
			op c1 n1 delete a 2.. unknown
			op c1 n1 delete a 3.. unknown`, "2/2 0/0 3/3 0/0"},
		{"what was there before comes first", `
			log-from 10
			log a=2@12
			op c1 n1 list MostRecent 0..1 ok @11 a=1@5 b=1@7
			op c1 n1 update a=2 2..3 ok @12`, "3/3 4/4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, _, err := history.Parse(c.text)
			must.OK(t, err)
			d, err := New(h)
			must.OK(t, err)
			var got []string
			for _, o := range d.Ops {
				got = append(got, fmt.Sprintf("%d/%d", o.State, o.Place))
			}
			if want := strings.Fields(c.want); !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// TestNoLog: without a log there is nothing to count.
func TestNoLog(t *testing.T) {
	if _, err := New(new(history.History)); !errors.Is(err, ErrNoLog) {
		t.Error(err)
	}
	h, _, err := history.Parse("log a=1@4 b=2@4")
	must.OK(t, err)
	if _, err := New(h); err == nil {
		t.Error("a log that does not rise has no dense revisions")
	}
}
