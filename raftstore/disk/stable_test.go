package disk

import (
	"bytes"
	"errors"
	"maps"
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
