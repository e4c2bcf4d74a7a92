package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"time"

	"github.com/hashicorp/raft"
)

const (
	magic      = "QUOWAL\x00\x01"
	headerSize = 40

	frameHead = 40
	frameTail = 8
	// mark ends each frame.
	mark = 0x51554f52

	// sector is the least that a disk writes as a whole.
	sector = 512

	// maxBytes bounds a segment, also one with a single entry: what a machine of 32 bits
	// can count.
	maxBytes = math.MaxInt32
)

// Kinds of frames.
const (
	kindEntry    = 1
	kindTruncate = 2
	kindCut      = 3
)

var (
	// ErrDamaged is returned when the bytes of a log are not what was written.
	ErrDamaged = errors.New("damaged data")
	// ErrEndLost is returned for a log whose newest segments are gone.
	ErrEndLost = errors.New("the end of the log is gone")

	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// header is the beginning of a segment.
type header struct {
	number  uint64
	follows uint64 // index of the newest entry before, or 0
	end     uint64 // where the segment before ends, or 0
	size    uint32 // of the file at least
}

func (h header) append(b []byte) []byte {
	at := len(b)
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint64(b, h.number)
	b = binary.LittleEndian.AppendUint64(b, h.follows)
	b = binary.LittleEndian.AppendUint64(b, h.end)
	b = binary.LittleEndian.AppendUint32(b, h.size)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[at:], castagnoli))
}

// readHeader returns false for zeros: the segment has not been begun. Errors: ErrDamaged.
func readHeader(b []byte, number uint64) (h header, begun bool, err error) {
	if len(b) < headerSize {
		return h, false, fmt.Errorf("it has %d bytes: %w", len(b), ErrDamaged)
	}
	b = b[:headerSize]
	if zeros(b) {
		return h, false, nil
	}
	h = header{
		number: binary.LittleEndian.Uint64(b[8:]), follows: binary.LittleEndian.Uint64(b[16:]), end: binary.LittleEndian.Uint64(b[24:]),
		size: binary.LittleEndian.Uint32(b[32:]),
	}
	if !bytes.Equal(h.append(nil), b) || h.number != number {
		return h, false, fmt.Errorf("wrong header: %w", ErrDamaged)
	}
	return h, true, nil
}

// frame is one frame of a segment.
type frame struct {
	kind  byte
	batch uint32
	log   raft.Log // of frames that are no entry, the index alone
}

// frameSize is how many bytes a frame takes that has so many bytes of extensions and data.
func frameSize(size int) int { return frameHead + padded(size) + frameTail }

func padded(n int) int { return (n + 7) &^ 7 }

// appendFrame appends the frame that stands at a place of a segment, which ends below maxBytes.
func appendFrame(b []byte, number uint64, at, batch uint32, kind byte, l *raft.Log) []byte {
	start, size := len(b), len(l.Extensions)+len(l.Data)
	b = binary.LittleEndian.AppendUint32(b, uint32(size))
	b = append(b, kind, byte(l.Type), 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(l.Extensions)))
	b = binary.LittleEndian.AppendUint32(b, batch)
	b = binary.LittleEndian.AppendUint64(b, l.Index)
	b = binary.LittleEndian.AppendUint64(b, l.Term)
	b = binary.LittleEndian.AppendUint64(b, nanoseconds(l.AppendedAt))
	b = append(b, l.Extensions...)
	b = append(b, l.Data...)
	b = append(b, make([]byte, padded(size)-size)...)
	b = binary.LittleEndian.AppendUint32(b, frameSum(number, at, b[start:]))
	return binary.LittleEndian.AppendUint32(b, mark)
}

// frameSum covers where the frame is, so that one that has come to another place is not
// taken for the one that should be there.
func frameSum(number uint64, at uint32, b []byte) uint32 {
	var place [12]byte
	binary.LittleEndian.PutUint64(place[:], number)
	binary.LittleEndian.PutUint32(place[8:], at)
	return crc32.Update(crc32.Checksum(place[:], castagnoli), castagnoli, b)
}

// nanoseconds is 0 for no time, and for times that do not fit.
func nanoseconds(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(t.UnixNano())
}

// frameLength is how long the frame is that b begins with, going by its head; 0 if no
// frame has such a head.
func frameLength(b []byte) int {
	if len(b) < frameHead {
		return 0
	}
	size, extensions := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[8:])
	if b[4] < kindEntry || b[4] > kindCut || b[6] != 0 || b[7] != 0 || extensions > size || size > maxBytes-frameHead-frameTail-8 {
		return 0
	}
	return frameSize(int(size))
}

// readFrame returns the frame that b begins with, which stands at a place of a segment,
// and its length. The entry shares b. ok is false if there is none that holds.
func readFrame(b []byte, number uint64, at uint32) (f frame, length int, ok bool) {
	length = frameLength(b)
	if length == 0 || length > len(b) {
		return f, 0, false
	}
	tail := b[length-frameTail : length]
	if binary.LittleEndian.Uint32(tail[4:]) != mark || binary.LittleEndian.Uint32(tail) != frameSum(number, at, b[:length-frameTail]) {
		return f, 0, false
	}
	size, extensions := int(binary.LittleEndian.Uint32(b)), int(binary.LittleEndian.Uint32(b[8:]))
	f = frame{kind: b[4], batch: binary.LittleEndian.Uint32(b[12:]), log: raft.Log{
		Type: raft.LogType(b[5]), Index: binary.LittleEndian.Uint64(b[16:]), Term: binary.LittleEndian.Uint64(b[24:]),
	}}
	if nanos := binary.LittleEndian.Uint64(b[32:]); nanos != 0 {
		f.log.AppendedAt = time.Unix(0, int64(nanos)).UTC()
	}
	payload := b[frameHead : frameHead+size]
	if extensions > 0 {
		f.log.Extensions = payload[:extensions:extensions]
	}
	if extensions < size {
		f.log.Data = payload[extensions:size:size]
	}
	return f, length, true
}

// scan reads the frames of a segment, from its header up to the first that does not hold,
// and returns where that is. visit's error ends it.
func scan(b []byte, number uint64, visit func(at uint32, length int, f frame) error) (end int, err error) {
	at := headerSize
	for at < len(b) {
		f, length, ok := readFrame(b[at:], number, uint32(at))
		if !ok {
			break
		}
		if err := visit(uint32(at), length, f); err != nil {
			return at, err
		}
		at += length
	}
	return min(at, len(b)), nil
}

// torn says what the bytes from end on are, at which a frame of the newest segment does
// not hold: false if nothing was written there, true if the last batch was torn. Errors:
// ErrDamaged.
func torn(b []byte, number uint64, end int) (bool, error) {
	written := end + len(bytes.TrimRight(b[end:], "\x00")) // where zeros begin
	if written == end {
		return false, nil
	}
	for at := end + 8; at < written; at += 8 {
		if f, _, ok := readFrame(b[at:], number, uint32(at)); ok && int(f.batch) > end {
			return false, fmt.Errorf("a frame at %d does not hold, and one behind it at %d does: %w", end, at, ErrDamaged)
		}
	}
	length := frameLength(b[end:])
	if length == 0 {
		length = frameHead
	}
	if end+length > len(b) && end > headerSize {
		// Only a frame that is alone in its segment is longer than what was prepared.
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

func zeros(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }
