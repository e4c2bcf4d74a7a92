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
	// magic is what a segment begins with, before its format.
	magic      = "QUOWAL\x00"
	headerSize = 40
	// format is that of new segments. Those of format 1 are read, and nothing is appended to them.
	format = 2

	frameHead = 48
	frameTail = 8
	// headMark is in the first eight bytes of each frame, and mark ends it: a frame's part of a sector
	// has many bits that are set, wherever the sector begins or ends.
	headMark = 0x6db5
	mark     = 0x51554f52

	// sector is the least that a disk writes as a whole.
	sector = 512
	// sectorBits is how many bits of each sector inside a frame are set at least. One would tell a
	// sector from a missing one, until it flips.
	sectorBits = 16

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
	format  byte   // that was read
}

// append appends the header of a segment of the newest format.
func (h header) append(b []byte) []byte {
	at := len(b)
	b = append(append(b, magic...), format)
	b = binary.LittleEndian.AppendUint64(b, h.number)
	b = binary.LittleEndian.AppendUint64(b, h.follows)
	b = binary.LittleEndian.AppendUint64(b, h.end)
	b = binary.LittleEndian.AppendUint32(b, h.size)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[at:], castagnoli))
}

// readHeader returns false for zeros: the segment has not been begun. Errors: ErrDamaged, and one for
// the format of a later release.
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
		size: binary.LittleEndian.Uint32(b[32:]), format: b[len(magic)],
	}
	sum := binary.LittleEndian.Uint32(b[headerSize-4:])
	if string(b[:len(magic)]) != magic || sum != crc32.Checksum(b[:headerSize-4], castagnoli) || h.number != number {
		return h, false, fmt.Errorf("wrong header: %w", ErrDamaged)
	}
	if h.format < 1 || h.format > format {
		return h, false, fmt.Errorf("format %d is unknown, this release knows up to %d", h.format, format)
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
	b = append(b, kind, byte(l.Type))
	b = binary.LittleEndian.AppendUint16(b, headMark)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(l.Extensions)))
	b = binary.LittleEndian.AppendUint32(b, batch)
	b = binary.LittleEndian.AppendUint64(b, l.Index)
	b = binary.LittleEndian.AppendUint64(b, l.Term)
	b = binary.LittleEndian.AppendUint64(b, nanoseconds(l.AppendedAt))
	b = binary.LittleEndian.AppendUint64(b, 0) // mask and sum of the head
	b = append(b, l.Extensions...)
	b = append(b, l.Data...)
	b = append(b, zeroBytes[:padded(size)-size]...)
	b = binary.LittleEndian.AppendUint32(b, 0) // sum
	b = binary.LittleEndian.AppendUint32(b, mark)
	f := b[start:]
	if mask := maskFor(f, at); mask != 0 {
		binary.LittleEndian.PutUint32(f[frameHead-8:], mask)
		applyMask(f[frameHead:len(f)-frameTail], mask)
	}
	sum := frameSum(number, at, f[:frameHead-4])
	binary.LittleEndian.PutUint32(f[frameHead-4:], sum)
	// Without the head's sum: what follows a sum of CRC32C does not depend on what that one covers.
	sum = crc32.Update(sum, castagnoli, f[frameHead:len(f)-frameTail])
	binary.LittleEndian.PutUint32(f[len(f)-frameTail:], sum)
	return b
}

var zeroBytes [8]byte

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

// frameLength is how long the frame is that b begins with, going by its head, whose sum is
// not looked at; 0 if no frame has such a head.
func frameLength(b []byte) int {
	if len(b) < frameHead || binary.LittleEndian.Uint16(b[6:]) != headMark {
		return 0
	}
	size, extensions := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[8:])
	if b[4] < kindEntry || b[4] > kindCut || extensions > size || size > maxBytes-frameHead-frameTail-8 {
		return 0
	}
	return frameSize(int(size))
}

// readHead is frameLength for a head whose sum holds, and returns that sum.
func readHead(b []byte, number uint64, at uint32) (length int, sum uint32) {
	if length = frameLength(b); length == 0 {
		return 0, 0
	}
	if sum = frameSum(number, at, b[:frameHead-4]); sum != binary.LittleEndian.Uint32(b[frameHead-4:]) {
		return 0, 0
	}
	return length, sum
}

// readFrame returns the frame of the newest format that b begins with, which stands at a place of a
// segment, and its length. The entry may share b. ok is false if there is none that holds.
func readFrame(b []byte, number uint64, at uint32) (f frame, length int, ok bool) {
	length, sum := readHead(b, number, at)
	if length == 0 || length > len(b) {
		return f, 0, false
	}
	tail := b[length-frameTail : length]
	sum = crc32.Update(sum, castagnoli, b[frameHead:length-frameTail])
	if binary.LittleEndian.Uint32(tail[4:]) != mark || binary.LittleEndian.Uint32(tail) != sum {
		return f, 0, false
	}
	payload := b[frameHead : length-frameTail]
	if mask := binary.LittleEndian.Uint32(b[frameHead-8:]); mask != 0 {
		payload = bytes.Clone(payload)
		applyMask(payload, mask)
	}
	return frameOf(b, payload), length, true
}

// frameOf is the frame of a head, whose beginning all formats have, and a payload.
func frameOf(head, payload []byte) frame {
	size, extensions := int(binary.LittleEndian.Uint32(head)), int(binary.LittleEndian.Uint32(head[8:]))
	f := frame{kind: head[4], batch: binary.LittleEndian.Uint32(head[12:]), log: raft.Log{
		Type: raft.LogType(head[5]), Index: binary.LittleEndian.Uint64(head[16:]), Term: binary.LittleEndian.Uint64(head[24:]),
	}}
	if nanos := binary.LittleEndian.Uint64(head[32:]); nanos != 0 {
		f.log.AppendedAt = time.Unix(0, int64(nanos)).UTC()
	}
	if extensions > 0 {
		f.log.Extensions = payload[:extensions:extensions]
	}
	if extensions < size {
		f.log.Data = payload[extensions:size:size]
	}
	return f
}

// scan reads the frames of a segment, from its header up to the first that does not hold,
// and returns where that is. visit's error ends it.
func scan(b []byte, format byte, number uint64, visit func(at uint32, length int, f frame) error) (end int, err error) {
	read, at := reader(format), headerSize
	for at < len(b) {
		f, length, ok := read(b[at:], number, uint32(at))
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

// reader returns what reads frames of a format.
func reader(format byte) func(b []byte, number uint64, at uint32) (f frame, length int, ok bool) {
	if format == 1 {
		return readFrameOne
	}
	return readFrame
}

// torn says what the bytes from end on are, at which a frame of the newest segment does
// not hold: false if nothing was written there, true if the last batch was torn. Errors:
// ErrDamaged.
//
// What was torn lacks a sector. Each part of a sector that a frame has, has bits that are set, and
// behind a frame stands another one or nothing: so a sector of the frame is missing if there are
// zeros from where the frame begins in it to the sector's end. How long the frame is, is known if
// its head holds, and needed if it does not: then the head's own sectors must be the missing ones.
func torn(b []byte, format byte, number uint64, end int) (bool, error) {
	if zeros(b[end:]) {
		return false, nil
	}
	if err := laterBatch(b, format, number, end); err != nil {
		return false, err
	}
	if format == 1 {
		return tornOne(b, end)
	}
	if missing(b, end, end+frameHead) {
		return true, nil
	}
	length, _ := readHead(b[end:], number, uint32(end))
	switch {
	case length == 0:
		return false, fmt.Errorf("the head of a frame at %d does not hold: %w", end, ErrDamaged)
	case end+length > len(b) && end > headerSize:
		// Only a frame that is alone in its segment is longer than what was prepared.
		return false, fmt.Errorf("a frame at %d is longer than its segment: %w", end, ErrDamaged)
	case missing(b, end, end+length) || end+length > len(b):
		return true, nil
	}
	return false, fmt.Errorf("a frame at %d does not hold: %w", end, ErrDamaged)
}

// laterBatch returns ErrDamaged if a frame of a batch that begins behind end holds: what is
// before such a batch was synced.
func laterBatch(b []byte, format byte, number uint64, end int) error {
	read, written := reader(format), len(bytes.TrimRight(b, "\x00")) // where zeros begin
	for at := end + 8; at < written; at += 8 {
		if f, _, ok := read(b[at:], number, uint32(at)); ok && int(f.batch) > end {
			return fmt.Errorf("a frame at %d does not hold, and one behind it at %d does: %w", end, at, ErrDamaged)
		}
	}
	return nil
}

// missing reports whether the bytes of a file from at on, up to to, lie in a sector that has nothing
// but zeros from there on.
func missing(b []byte, at, to int) bool {
	for at < min(to, len(b)) {
		next := min((at/sector+1)*sector, len(b))
		if zeros(b[at:next]) {
			return true
		}
		at = next
	}
	return false
}

func zeros(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }
