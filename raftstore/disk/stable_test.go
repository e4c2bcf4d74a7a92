package disk

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
)

// TestFlippedLog flips single bits of what a log holds: an entry's data, a term and a
// vote. The entry's is noticed when the log is opened, the others' by the read.
func TestFlippedLog(t *testing.T) {
	term, vote, entry := []byte("CurrentTerm"), []byte("LastVoteCand"), bytes.Repeat([]byte("entry 7 "), 50)
	for _, x := range []struct {
		name   string
		needle []byte // in the file; the bit is at its end
	}{
		{"data", entry},
		{"term", append(bytes.Clone(term), 0, 0, 0, 0, 0, 0, 0, 41)},
		{"vote", append(bytes.Clone(vote), "somebody"...)},
	} {
		t.Run(x.name, func(t *testing.T) {
			dir := t.TempDir()
			l, err := OpenLog(dir, LogOptions{})
			must(t, err)
			batch := logs(41, 1, 20, 100)
			batch[6].Data = entry
			batch[7].Extensions = []byte("raft's own")
			must(t, l.StoreLogs(batch))
			must(t, l.SetUint64(term, 41))
			must(t, l.Set(vote, []byte("somebody")))
			must(t, l.Close())

			path, segmented := filepath.Join(dir, stableFile), x.name == "data"
			if segmented {
				path = filepath.Join(dir, segmentDir, "0000000000000001.log")
			}
			b, err := os.ReadFile(path)
			must(t, err)
			found := 0
			for at := 0; ; found++ {
				i := bytes.Index(b[at:], x.needle)
				if i < 0 {
					break
				}
				at += i + len(x.needle)
				b[at-1] ^= 4
			}
			if found == 0 {
				t.Fatal("it is not in the file")
			}
			must(t, os.WriteFile(path, b, 0o600))

			var fatal error
			l, err = OpenLog(dir, LogOptions{Fatal: func(err error) { fatal = err }})
			if segmented {
				if !errors.Is(err, ErrDamaged) {
					t.Errorf("opened: %v", err)
				}
				return
			}
			must(t, err)
			defer l.Close()
			damaged := 0
			note := func(err error) {
				if err == nil {
					return
				}
				if !errors.Is(err, ErrDamaged) {
					t.Error(err)
				}
				damaged++
			}
			for i := range uint64(20) {
				var got raft.Log
				err := l.GetLog(i+1, &got)
				note(err)
				want := batch[i]
				if err == nil && (!bytes.Equal(got.Data, want.Data) || got.Term != want.Term || !bytes.Equal(got.Extensions, want.Extensions)) {
					t.Errorf("entry %d: %+v", i+1, got)
				}
			}
			v, err := l.GetUint64(term)
			note(err)
			if err == nil && v != 41 {
				t.Errorf("term %d", v)
			}
			who, err := l.Get(vote)
			note(err)
			if err == nil && string(who) != "somebody" {
				t.Errorf("vote %q", who)
			}
			if damaged != 1 || !errors.Is(fatal, ErrDamaged) {
				t.Errorf("%d reads failed, fatal: %v", damaged, fatal)
			}
		})
	}
}
