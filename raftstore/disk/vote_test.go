package disk

import (
	"encoding/binary"
	"path/filepath"
	"slices"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

var currentTerm = []byte("CurrentTerm")

// TestVoteIsOneCommit: the two keys of a vote reach the disk together, whatever raft
// gets done of it, and are read as they were set. CurrentTerm does not wait.
func TestVoteIsOneCommit(t *testing.T) {
	term := func(v uint64) func(*Log) error {
		return func(l *Log) error { return l.SetUint64(voteTerm, v) }
	}
	candidate := func(c string) func(*Log) error {
		return func(l *Log) error { return l.Set(voteCandidate, []byte(c)) }
	}
	current := func(v uint64) func(*Log) error {
		return func(l *Log) error { return l.SetUint64(currentTerm, v) }
	}
	type vote struct {
		term      uint64
		candidate string
	}
	for _, row := range []struct {
		name    string
		steps   []func(*Log) error
		read    vote // at once
		durable vote // after a start
		commits int
	}{
		{"a whole vote", []func(*Log) error{term(5), candidate("b")}, vote{5, "b"}, vote{5, "b"}, 1},
		{"the term alone: the power fails", []func(*Log) error{term(5)}, vote{5, "a"}, vote{4, "a"}, 0},
		{"the candidate alone", []func(*Log) error{candidate("b")}, vote{4, "b"}, vote{4, "b"}, 1},
		{"the term twice", []func(*Log) error{term(5), term(6), candidate("b")}, vote{6, "b"}, vote{6, "b"}, 1},
		{"another key in between", []func(*Log) error{term(5), current(5), candidate("b")}, vote{5, "b"}, vote{5, "b"}, 2},
		{"two votes", []func(*Log) error{term(5), candidate("b"), term(6), candidate("c")}, vote{6, "c"}, vote{6, "c"}, 2},
		{"a vote, and the next one's term", []func(*Log) error{term(5), candidate("b"), term(6)}, vote{6, "b"}, vote{5, "b"}, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir, commits := t.TempDir(), 0
			open := func() *Log {
				t.Helper()
				l, err := OpenLog(dir, LogOptions{Commit: func(_ string, commit func() error) error { commits++; return commit() }})
				must.OK(t, err)
				return l
			}
			read := func(l *Log) (v vote) {
				t.Helper()
				var err error
				v.term, err = l.GetUint64(voteTerm)
				must.OK(t, err)
				raw, err := l.Get(voteTerm)
				must.OK(t, err)
				if !slices.Equal(raw, binary.BigEndian.AppendUint64(nil, v.term)) {
					t.Errorf("as bytes: %x, as a number: %d", raw, v.term)
				}
				c, err := l.Get(voteCandidate)
				must.OK(t, err)
				v.candidate = string(c)
				return v
			}
			l := open()
			for _, step := range []func(*Log) error{term(4), candidate("a"), current(4)} {
				must.OK(t, step(l))
			}
			commits = 0
			for _, step := range row.steps {
				must.OK(t, step(l))
			}
			if commits != row.commits {
				t.Errorf("%d commits, want %d", commits, row.commits)
			}
			if got := read(l); got != row.read {
				t.Errorf("read %+v, want %+v", got, row.read)
			}
			must.OK(t, l.Close()) // it writes nothing: what a kill leaves is the same
			l = open()
			if got := read(l); got != row.durable {
				t.Errorf("after a start: %+v, want %+v", got, row.durable)
			}
			must.OK(t, l.Close())
			must.OK(t, checkPages(filepath.Join(dir, stableFile)))
		})
	}
}
