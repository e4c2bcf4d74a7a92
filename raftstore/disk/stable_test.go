package disk

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

// TestStableRecord: every flipped bit and every missing byte of a record is noticed.
func TestStableRecord(t *testing.T) {
	pairs := map[string][]byte{"CurrentTerm": {0, 0, 0, 0, 0, 0, 0, 7}, "LastVoteCand": []byte("n1"), "empty": {}}
	record := encodeStable(pairs)
	got, err := decodeStable(record)
	if err != nil || !maps.EqualFunc(got, pairs, bytes.Equal) {
		t.Fatalf("%v, %v", got, err)
	}
	for i := range record {
		for bit := range 8 {
			flipped := bytes.Clone(record)
			flipped[i] ^= 1 << bit
			if _, err := decodeStable(flipped); !errors.Is(err, ErrDamaged) {
				t.Errorf("bit %d of byte %d: %v", bit, i, err)
			}
		}
		if _, err := decodeStable(record[:i]); !errors.Is(err, ErrDamaged) {
			t.Errorf("%d bytes: %v", i, err)
		}
	}
}

// TestStableFile: whichever byte of the file flips, a vote that was given is there, or nothing is. bbolt
// has two pages that say where the data begins, and opens by the older one if the newer one is broken.
func TestStableFile(t *testing.T) {
	dir := t.TempDir()
	give := func(s *stableStore, term byte) {
		t.Helper()
		if err := s.SetAll(keyValue{[]byte("LastVoteTerm"), []byte{term}}, keyValue{[]byte("LastVoteCand"), []byte{'a' + term}}); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, stableFile)
	reopen := func() *stableStore {
		t.Helper()
		s, err := openStable(dir, nil, false)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if err := errors.Join(newStable(dir), os.Rename(path+newSuffix, path)); err != nil {
		t.Fatal(err)
	}
	s := reopen()
	give(s, 1)
	give(s, 2)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	whole = whole[:16*os.Getpagesize()] // it grows by 16 MiB, and has a few pages
	check := func(what string) {
		t.Helper()
		s, err := openStable(dir, nil, false)
		if err != nil {
			return // it is refused, whatever the reason
		}
		defer s.Close()
		if term, _ := s.Get([]byte("LastVoteTerm")); !bytes.Equal(term, []byte{2}) {
			t.Errorf("%s: the vote is in term %d", what, term)
		}
	}
	for page := 0; page < len(whole); page += os.Getpagesize() {
		for i := page; i < page+200; i++ { // what is used of it is not longer
			flipped := bytes.Clone(whole)
			flipped[i] ^= 1
			if err := os.WriteFile(path, flipped, 0o600); err != nil {
				t.Fatal(err)
			}
			check(fmt.Sprint("byte ", i))
		}
	}
	// A power failure before the second time: one page has the newest record.
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	s = reopen()
	if err := s.bolt.Set(recordKey, encodeStable(map[string][]byte{"LastVoteTerm": {3}})); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := reopen().Close(); err != nil {
		t.Fatal(err)
	}
	if whole, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	for page := range 2 {
		flipped := bytes.Clone(whole)
		flipped[page*os.Getpagesize()+72] ^= 1
		if err := os.WriteFile(path, flipped, 0o600); err != nil {
			t.Fatal(err)
		}
		// As bbolt reads it, for openStable refuses it.
		bolt, err := openBolt(path)
		if err != nil {
			t.Fatal(err)
		}
		record, err := bolt.Get(recordKey)
		if err := errors.Join(err, bolt.Close()); err != nil {
			t.Fatal(err)
		}
		if pairs, err := decodeStable(record); err != nil || !bytes.Equal(pairs["LastVoteTerm"], []byte{3}) {
			t.Errorf("page %d after a power failure: the vote is in term %d, %v", page, pairs["LastVoteTerm"], err)
		}
	}
}

// TestFlipsOfMetaPages flips each bit of both meta pages of a log whose newest change is a vote: the start is
// refused, by an error that names the page, or the vote is there.
func TestFlipsOfMetaPages(t *testing.T) {
	dir := t.TempDir()
	l, err := OpenLog(dir, shortSegments)
	must.OK(t, err)
	for term := range uint64(3) {
		must.OK(t, l.SetUint64(raftTerm, term+1))
		must.OK(t, l.SetUint64(voteTerm, term+1))
		must.OK(t, l.Set(voteCandidate, fmt.Append(nil, "n", term+1)))
	}
	must.OK(t, l.Close())
	path := filepath.Join(dir, stableFile)
	whole, err := os.ReadFile(path)
	must.OK(t, err)
	whole = usedPages(t, whole)
	for page := range 2 {
		for bit := range 8 * (pageHeader + metaSize) {
			flipped := bytes.Clone(whole)
			flipped[page*os.Getpagesize()+bit/8] ^= 1 << (bit % 8)
			must.OK(t, os.WriteFile(path, flipped, fileMode))
			l, err := OpenLog(dir, shortSegments)
			if err != nil {
				if want := fmt.Sprintf("meta page %d does not hold", page); !errors.Is(err, ErrDamaged) || errors.Is(err, ErrLogLost) || !strings.Contains(err.Error(), want) {
					t.Errorf("page %d, bit %d: %v, want %q", page, bit, err, want)
				}
				continue
			}
			term, err := l.GetUint64(voteTerm)
			must.OK(t, err)
			vote, err := l.Get(voteCandidate)
			must.OK(t, err)
			if term != 3 || string(vote) != "n3" {
				t.Errorf("page %d, bit %d: the vote of term %d for %s", page, bit, term, vote)
			}
			if bit/8 >= pageHeader {
				t.Errorf("page %d, bit %d: it is not noticed", page, bit)
			}
			must.OK(t, l.Close())
		}
	}
	// A recovery reads the survivor's log by the other page.
	for page := range 2 {
		flipped := bytes.Clone(whole)
		flipped[page*os.Getpagesize()+pageHeader+metaSize-1] ^= 1
		must.OK(t, os.WriteFile(path, flipped, fileMode))
		survivor := shortSegments
		survivor.Survivor = true
		l, err := OpenLog(dir, survivor)
		must.OK(t, err)
		if vote, err := l.Get(voteCandidate); err != nil || string(vote) != "n3" {
			t.Errorf("a survivor without page %d: %s %v", page, vote, err)
		}
		must.OK(t, l.Close())
		must.OK(t, os.WriteFile(path, whole, fileMode))
	}
	// A file that lost its end, but not all.
	for _, size := range []int{1, pageHeader + metaSize, os.Getpagesize(), os.Getpagesize() + pageHeader} {
		must.OK(t, os.WriteFile(path, whole[:size], fileMode))
		if _, err := OpenLog(dir, shortSegments); !errors.Is(err, ErrDamaged) {
			t.Errorf("%d bytes of raft.db: %v", size, err)
		}
	}
}

func FuzzDecodeStable(f *testing.F) {
	f.Add(encodeStable(nil)[4:8])
	f.Add([]byte("\x01a\x02bc"))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, body []byte) {
		record := append(encodeStable(nil)[:4:4], body...)
		pairs, err := decodeStable(seal(record))
		if err != nil {
			return
		}
		again, err := decodeStable(encodeStable(pairs))
		if err != nil || !maps.EqualFunc(again, pairs, bytes.Equal) {
			t.Errorf("%q: %v, then %v, %v", body, pairs, again, err)
		}
	})
}
