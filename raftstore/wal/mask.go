package wal

import (
	"encoding/binary"
	"math/bits"
)

// A sector that a power loss has kept from the disk is zeros, so no frame may have a sector of zeros of
// its own, nor one that a few flipped bits make one: a client chooses what objects have in them. A frame
// that would have one has its payload written XOR a mask, a word of four bytes that is repeated.

// maskFor returns the mask with which no sector inside a frame is sparse; 0 is none. The frame's mask and
// its sums may be zero still.
func maskFor(f []byte, at uint32) uint32 {
	first := int(-at % sector)
	for o := first; o+sector <= len(f); o += sector {
		if sparse(f[o : o+sector]) {
			return freeMask(f[first:])
		}
	}
	return 0
}

// sparse reports whether fewer than sectorBits bits of a sector are set.
func sparse(b []byte) bool {
	n := 0
	for i := 0; i < sector; i += 8 {
		if n += bits.OnesCount64(binary.LittleEndian.Uint64(b[i:])); n >= sectorBits {
			return false
		}
	}
	return true
}

// freeMask returns the least mask with which none of the sectors that b begins with is sparse. Two masks
// differ in a bit of each word at least, and so does what they make of a sector: a sector is sparse
// with one mask at most, and among one more than there are sectors one is free.
func freeMask(b []byte) uint32 {
	taken := make([]bool, len(b)/sector+2)
	for o := 0; o+sector <= len(b); o += sector {
		if mask := sparseWith(b[o : o+sector]); mask < uint32(len(taken)) {
			taken[mask] = true
		}
	}
	mask := uint32(1)
	for taken[mask] {
		mask++
	}
	return mask
}

// sparseWith returns the only mask with which a sector may be sparse: the word that most of its words are.
// Those that may belong to a frame's head or to its end are not masked, and not looked at.
func sparseWith(b []byte) (word uint32) {
	votes := 0
	for i := frameHead; i < sector-frameTail; i += 4 {
		switch w := binary.LittleEndian.Uint32(b[i:]); {
		case votes == 0:
			word, votes = w, 1
		case w == word:
			votes++
		default:
			votes--
		}
	}
	return word
}

// applyMask masks bytes, or takes the mask away. Their number is a multiple of eight.
func applyMask(b []byte, mask uint32) {
	word := uint64(mask)<<32 | uint64(mask)
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], binary.LittleEndian.Uint64(b[i:])^word)
	}
}
