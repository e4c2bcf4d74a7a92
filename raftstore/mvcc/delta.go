package mvcc

import (
	"encoding/binary"
	"errors"
	"math/bits"
)

// A delta says how a text is put together from another one, its base: runs of bytes that the base
// has too, and what comes between them. It is a sequence of
//
//	varint length of new bytes, the new bytes, varint length of a copy, varint of its offset
//
// where the offset, zigzag, counts from where the copy before ended in the base. The last copy may be
// missing. To put a text together costs a copy of its bytes and some nanoseconds for each part.
//
// Deltas are of this process alone: they are never stored or sent.

// gram is how many equal bytes a copy begins to look from, and longest how much of a base is
// indexed in full: in a longer one every second, fourth ... place is.
const (
	gram    = 8
	longest = 1 << 14
)

// deltaIndex finds places in a base. A table of places by the hash of what stands there: a place that
// two share belongs to the last.
type deltaIndex struct {
	base   []byte
	places []uint32 // plus one
	shift  uint
}

// reset makes it an index of base.
func (x *deltaIndex) reset(base []byte) {
	step := 1
	for len(base)/step > longest {
		step *= 2
	}
	// As many entries as places, at least: of the next power of two.
	order := bits.Len(uint(len(base) / step))
	if n := 1 << order; cap(x.places) >= n {
		x.places = x.places[:n]
		clear(x.places)
	} else {
		x.places = make([]uint32, n)
	}
	x.base, x.shift = base, uint(64-order)
	for i := 0; i+gram <= len(base); i += step {
		x.places[x.hash(base[i:])] = uint32(i) + 1
	}
}

func (x *deltaIndex) hash(b []byte) uint64 {
	return binary.LittleEndian.Uint64(b) * 0x9e3779b97f4a7c15 >> x.shift
}

// append appends the delta of text to b. It gives up, and returns nil, when there is more than most of it.
func (x *deltaIndex) append(b, text []byte, most int) []byte {
	start := len(b)
	base := x.base
	done, end := 0, 0 // of the text, and where the last copy ended in the base
	misses := 0       // since the last copy: where nothing is alike, not every place is looked at
	for i := 0; i+gram <= len(text); {
		at := end + i - done // as if some bytes were others since the last copy, and no more or less
		if !sameGram(base, at, text, i) {
			if at = int(x.places[x.hash(text[i:])]) - 1; at < 0 || !sameGram(base, at, text, i) {
				i += 1 + misses>>6
				if misses++; len(b)-start+i-done > most {
					return nil
				}
				continue
			}
		}
		n := gram
		for i+n < len(text) && at+n < len(base) && text[i+n] == base[at+n] {
			n++
		}
		for i > done && at > 0 && text[i-1] == base[at-1] {
			i, at, n = i-1, at-1, n+1
		}
		b = append(binary.AppendUvarint(b, uint64(i-done)), text[done:i]...)
		b = binary.AppendUvarint(b, uint64(n))
		b = binary.AppendVarint(b, int64(at-end))
		i, end = i+n, at+n
		done, misses = i, 0
	}
	if done < len(text) {
		b = append(binary.AppendUvarint(b, uint64(len(text)-done)), text[done:]...)
	}
	if len(b)-start > most {
		return nil
	}
	return b
}

func sameGram(base []byte, at int, text []byte, i int) bool {
	return at+gram <= len(base) && binary.LittleEndian.Uint64(base[at:]) == binary.LittleEndian.Uint64(text[i:])
}

// errDelta is for a delta that is not of its base: this process is broken.
var errDelta = errors.New("a delta does not fit its base")

// appendDelta appends what a delta makes of its base.
func appendDelta(b []byte, delta string, base []byte) ([]byte, error) {
	end := 0
	for len(delta) > 0 {
		n, rest := uvarint(delta)
		if n > len(rest) {
			return b, errDelta
		}
		b = append(b, rest[:n]...)
		if delta = rest[n:]; len(delta) == 0 {
			return b, nil
		}
		n, rest = uvarint(delta)
		by, rest := uvarint(rest)
		from := end + (by>>1 ^ -(by & 1))
		if from < 0 || n > len(base)-from {
			return b, errDelta
		}
		b = append(b, base[from:from+n]...)
		delta, end = rest, from+n
	}
	return b, nil
}
