package disk

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"
	"github.com/quorate/quorate/proto"
)

// streamPreamble begins every snapshot stream and backup file. Its first byte is
// the version of the format.
const streamPreamble = "\x01QUORATE"

const (
	frameHead   = 8             // length and checksum of a payload
	trailerSize = 4 + 8 + 8 + 4 // zero length, count, digest, checksum
)

// streamSize is the exact length of a stream.
func streamSize(header int, t totals) int64 {
	return int64(len(streamPreamble)) + frameHead + int64(header) +
		int64(t.versions)*frameHead + int64(t.bytes) + trailerSize
}

// frames writes the parts of a stream into a buffer.
type frames struct {
	digest xxhash.Digest
	count  uint64
}

func (f *frames) preamble(b []byte) []byte {
	f.digest.Reset()
	_, _ = f.digest.WriteString(streamPreamble)
	return append(b, streamPreamble...)
}

// frame appends a payload whose checksum is known.
func (f *frames) frame(b, payload []byte, sum uint32) []byte {
	n := len(b)
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	b = binary.BigEndian.AppendUint32(b, sum)
	_, _ = f.digest.Write(b[n:])
	return append(b, payload...)
}

func (f *frames) trailer(b []byte) []byte {
	n := len(b)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint64(b, f.count)
	b = binary.BigEndian.AppendUint64(b, f.digest.Sum64())
	return binary.BigEndian.AppendUint32(b, checksum(b[n:]))
}

// Stats of a snapshot stream.
type Stats struct {
	Versions uint64 // records, history and tombstones included
	Bytes    int64  // length of the stream
	// About is nil for a stream that is not a backup.
	About *proto.Backup
}

// parser reads a snapshot stream and believes nothing of it.
type parser struct {
	r      *bufio.Reader
	digest xxhash.Digest
	read   int64
	last   uint64 // revision
	count  uint64
	state  *proto.StateRecord
	about  *proto.Backup // nil: not a backup
	buf    []byte

	versions versionParser
}

// newParser reads up to the end of the header.
func newParser(r io.Reader) (*parser, error) {
	p := &parser{r: bufio.NewReaderSize(r, 256<<10)}
	p.digest.Reset()
	head := make([]byte, len(streamPreamble))
	if err := p.full(head); err != nil {
		return nil, fmt.Errorf("preamble: %w", err)
	}
	if err := checkPreamble(head); err != nil {
		return nil, err
	}
	_, _ = p.digest.Write(head)
	payload, _, err := p.frame()
	if err == nil && payload == nil {
		err = fmt.Errorf("no state record: %w", ErrDamaged)
	}
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	p.state = &proto.StateRecord{}
	if err := decodeKind(payload, proto.KindStateRecord, p.state); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	return p, nil
}

// checkPreamble refuses what does not begin as a stream does.
func checkPreamble(head []byte) error {
	switch {
	case string(head) == streamPreamble:
		return nil
	case string(head[1:]) == streamPreamble[1:]:
		return fmt.Errorf("snapshot stream of version %d: %w", head[0], proto.ErrFormat)
	}
	return errNotBackup
}

// full reads exactly len(b) bytes.
func (p *parser) full(b []byte) error {
	n, err := io.ReadFull(p.r, b)
	p.read += int64(n)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("cut off after %d bytes: %w", p.read, ErrDamaged)
	}
	return err
}

// frame returns the next payload, which is valid until the next call, or nil
// for the head of the trailer.
func (p *parser) frame() (payload []byte, sum uint32, err error) {
	var head [frameHead]byte
	if err := p.full(head[:4]); err != nil {
		return nil, 0, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n == 0 {
		return nil, 0, nil
	}
	if n > maxRecord {
		return nil, 0, fmt.Errorf("frame of %d bytes at %d: %w", n, p.read, ErrDamaged)
	}
	if err := p.full(head[4:]); err != nil {
		return nil, 0, err
	}
	sum = binary.BigEndian.Uint32(head[4:])
	_, _ = p.digest.Write(head[:])
	if cap(p.buf) < int(n) {
		p.buf = make([]byte, n, max(int(n), 2*cap(p.buf)))
	}
	payload = p.buf[:n]
	if err := p.full(payload); err != nil {
		return nil, 0, err
	}
	if got := checksum(payload); got != sum {
		return nil, 0, fmt.Errorf("checksum %08x at %d, want %08x: %w", got, p.read, sum, ErrDamaged)
	}
	return payload, sum, nil
}

// next parses the next version into rec, which may have been used before, and returns its payload, which is valid
// until the next call. At the end, when everything has been verified, it
// returns io.EOF.
func (p *parser) next(rec *proto.VersionRecord) (payload []byte, sum uint32, err error) {
	for {
		if payload, sum, err = p.frame(); err != nil {
			return nil, 0, err
		}
		if len(payload) < 2 || proto.Kind(payload[1])&proto.KindIgnorable == 0 {
			break
		}
		if err := p.aside(payload); err != nil {
			return nil, 0, fmt.Errorf("record %d: %w", p.count, err)
		}
	}
	if payload == nil {
		if err := p.end(); err != nil {
			return nil, 0, fmt.Errorf("trailer: %w", err)
		}
		return nil, 0, io.EOF
	}
	if err := p.versions.parse(payload, rec); err != nil {
		return nil, 0, fmt.Errorf("record %d: %w", p.count, err)
	}
	if rec.Revision <= p.last || rec.Revision > p.state.Applied {
		return nil, 0, fmt.Errorf("revision %d after %d in a state at %d: %w", rec.Revision, p.last, p.state.Applied, ErrDamaged)
	}
	p.last = rec.Revision
	p.count++
	return payload, sum, nil
}

// aside takes note of a record that is no version.
func (p *parser) aside(payload []byte) error {
	about, err := readAside(payload)
	if about != nil {
		p.about = about
	}
	return err
}

// readAside reads a record that is no version: of those that may be skipped, the one
// that this release knows. Its fields need not all be known.
func readAside(payload []byte) (*proto.Backup, error) {
	kind, body, err := proto.Split(payload)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if kind != proto.KindBackup {
		return nil, nil
	}
	about := &proto.Backup{}
	if err := proto.Decode(body, about); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return about, nil
}

// end verifies the trailer, whose first four bytes have been read.
func (p *parser) end() error {
	var b [trailerSize]byte
	if err := p.full(b[4:]); err != nil {
		return err
	}
	n := trailerSize - sumSize
	count, digest := binary.BigEndian.Uint64(b[4:]), binary.BigEndian.Uint64(b[12:])
	switch {
	case checksum(b[:n]) != binary.BigEndian.Uint32(b[n:]):
		return fmt.Errorf("checksum: %w", ErrDamaged)
	case count != p.count || count != p.state.Versions:
		return fmt.Errorf("%d records, header says %d, trailer %d: %w", p.count, p.state.Versions, count, ErrDamaged)
	case digest != p.digest.Sum64():
		return fmt.Errorf("digest: %w", ErrDamaged)
	}
	switch _, err := p.r.ReadByte(); {
	case err == nil:
		return fmt.Errorf("bytes follow it: %w", ErrDamaged)
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}
