package wal

import (
	"encoding/binary"
	"fmt"
)

// Segments of format 1 are read. Their frames have a shorter head, without a sum of its own, and sectors
// of zeros:
//
//	| size 4 | kind 1 | type 1 | 0 (2) | extensions 4 | batch 4 | index 8 | term 8 | appended 8 |
//	| extensions ... | data ... | zeros up to a multiple of 8 | sum 4 | mark 4 |
//
// So in the newest batch of such a log a flipped bit may be taken for a tear: one that makes a frame longer,
// or one in a frame that has a sector of zeros.
const frameHeadOne = 40

func frameLengthOne(b []byte) int {
	if len(b) < frameHeadOne {
		return 0
	}
	size, extensions := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[8:])
	if b[4] < kindEntry || b[4] > kindCut || b[6] != 0 || b[7] != 0 || extensions > size || size > maxBytes-frameHeadOne-frameTail-8 {
		return 0
	}
	return frameHeadOne + padded(int(size)) + frameTail
}

func readFrameOne(b []byte, number uint64, at uint32) (f frame, length int, ok bool) {
	length = frameLengthOne(b)
	if length == 0 || length > len(b) {
		return f, 0, false
	}
	tail := b[length-frameTail : length]
	if binary.LittleEndian.Uint32(tail[4:]) != mark || binary.LittleEndian.Uint32(tail) != frameSum(number, at, b[:length-frameTail]) {
		return f, 0, false
	}
	return frameOf(b, b[frameHeadOne:length-frameTail]), length, true
}

// tornOne is what torn does behind the look for a later batch.
func tornOne(b []byte, end int) (bool, error) {
	length := frameLengthOne(b[end:])
	if length == 0 {
		length = frameHeadOne
	}
	if end+length > len(b) && end > headerSize {
		return false, fmt.Errorf("a frame at %d does not hold: %w", end, ErrDamaged)
	}
	for at := end; at < min(end+length, len(b)); {
		next := min((at/sector+1)*sector, end+length, len(b))
		if zeros(b[at:next]) {
			return true, nil
		}
		at = next
	}
	if end+length > len(b) {
		return true, nil
	}
	return false, fmt.Errorf("a frame at %d does not hold: %w", end, ErrDamaged)
}
