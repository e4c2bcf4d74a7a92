package disk

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"
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
		s, err := openStable(dir, nil)
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
		s, err := openStable(dir, nil)
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
		s := reopen()
		if term, _ := s.Get([]byte("LastVoteTerm")); !bytes.Equal(term, []byte{3}) {
			t.Errorf("page %d after a power failure: the vote is in term %d", page, term)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
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
