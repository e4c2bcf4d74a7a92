package disk

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"runtime/debug"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// maxRecord bounds one framed record. An entry is at most proto.MaxEntryBytes
// and a record adds little to it; the rest is room for later versions.
const maxRecord = 16 << 20

const sumSize = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// seal appends the checksum that open verifies.
func seal(payload []byte) []byte {
	return binary.BigEndian.AppendUint32(payload, checksum(payload))
}

// open returns the payload of a sealed value and its checksum.
func open(value []byte) (payload []byte, sum uint32, err error) {
	n := len(value) - sumSize
	if n < 0 {
		return nil, 0, fmt.Errorf("%d bytes: %w", len(value), ErrDamaged)
	}
	payload = value[:n:n]
	sum = binary.BigEndian.Uint32(value[n:])
	if got := checksum(payload); got != sum {
		return nil, 0, fmt.Errorf("checksum %08x, want %08x: %w", got, sum, ErrDamaged)
	}
	return payload, sum, nil
}

func revisionKey(r proto.Revision) []byte {
	return binary.BigEndian.AppendUint64(make([]byte, 0, 8), uint64(r))
}

// encodeVersion returns the sealed record of a version: what protobuf makes of v.Record, byte by
// byte, in a third of the time. What uses something or sets limits is protobuf's. Texts are not
// looked at: they come from entries and records that were parsed.
func encodeVersion(table string, v *mvcc.Version) ([]byte, error) {
	var b []byte
	if v.Charged() {
		var err error
		if b, err = proto.Encode(proto.KindVersionRecord, v.Record(table)); err != nil {
			return nil, fmt.Errorf("revision %d: %w", v.Revision, err)
		}
	} else {
		b = appendVersion(make([]byte, 0, versionRoom(table, v)), table, v)
	}
	if len(b) > maxRecord {
		return nil, fmt.Errorf("revision %d: %d bytes: %w", v.Revision, len(b), ErrTooLarge)
	}
	return seal(b), nil
}

// versionRoom is enough for a sealed record in most cases, so that it does not have to grow.
func versionRoom(table string, v *mvcc.Version) int {
	room := 100 + len(table) + len(v.Key) + v.ValueSize() + len(v.UID)
	for _, list := range [...]mvcc.Attributes{v.Labels, v.Fields} {
		for name, value := range list.All() {
			room += 8 + len(name) + len(value)
		}
	}
	return room
}

// appendVersion appends the record of a version that uses nothing and sets no limits.
func appendVersion(b []byte, table string, v *mvcc.Version) []byte {
	b = append(b, proto.FormatVersion, byte(proto.KindVersionRecord))
	b = appendNumber(b, 1, uint64(v.Revision))
	b = appendNumber(b, 2, uint64(v.CreateRevision))
	b = appendText(b, 3, table)
	b = appendText(b, 4, v.Key)
	if v.Deleted {
		b = appendNumber(b, 5, 1)
	}
	if n := v.ValueSize(); n > 0 {
		b = protowire.AppendTag(b, 6, protowire.BytesType)
		b = v.AppendValue(protowire.AppendVarint(b, uint64(n)))
	}
	b = appendNumber(b, 7, uint64(v.RevisionOffset))
	b = appendText(b, 8, v.UID)
	b = appendAttributes(b, 9, v.Labels)
	b = appendAttributes(b, 10, v.Fields)
	b = appendNumber(b, 11, uint64(v.Flags))
	if v.RequestID != ([proto.RequestIDSize]byte{}) {
		b = protowire.AppendTag(b, 12, protowire.BytesType)
		b = protowire.AppendBytes(b, v.RequestID[:])
	}
	return b
}

func appendNumber(b []byte, number protowire.Number, n uint64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), n)
}

func appendText(b []byte, number protowire.Number, text string) []byte {
	if text == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), text)
}

func appendAttributes(b []byte, number protowire.Number, list mvcc.Attributes) []byte {
	for name, value := range list.All() {
		b = protowire.AppendTag(b, number, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(sizeOfText(name)+sizeOfText(value)))
		b = appendText(appendText(b, 1, name), 2, value)
	}
	return b
}

// sizeOfText is the size of a field that is text, with a number below 16.
func sizeOfText(text string) int {
	if text == "" {
		return 0
	}
	return 1 + protowire.SizeBytes(len(text))
}

// decodeVersion parses an unsealed record.
func decodeVersion(payload []byte, r *proto.VersionRecord) error {
	return decodeKind(payload, proto.KindVersionRecord, r)
}

func decodeKind(payload []byte, want proto.Kind, m proto.Message) error {
	kind, body, err := proto.Split(payload)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if kind != want {
		return fmt.Errorf("record of kind %d, want %d: %w", kind, want, ErrDamaged)
	}
	if err := proto.Decode(body, m); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return nil
}

// totals describe all version records of a file. They are written in the same
// transaction as the records, so that a file whose tree has lost, doubled or
// mixed pages does not pass, and so that a stream's size is known before it is
// sent.
type totals struct {
	versions uint64
	bytes    uint64 // of unsealed records
	sum      uint64 // of the records' checksums
}

func (t *totals) add(bytes int, sum uint32) {
	t.versions++
	t.bytes += uint64(bytes)
	t.sum += uint64(sum)
}

func (t *totals) sub(bytes int, sum uint32) {
	t.versions--
	t.bytes -= uint64(bytes)
	t.sum -= uint64(sum)
}

func (t totals) encode() []byte {
	b := make([]byte, 0, 24+sumSize)
	b = binary.BigEndian.AppendUint64(b, t.versions)
	b = binary.BigEndian.AppendUint64(b, t.bytes)
	b = binary.BigEndian.AppendUint64(b, t.sum)
	return seal(b)
}

func decodeTotals(value []byte) (totals, error) {
	b, _, err := open(value)
	if err == nil && len(b) != 24 {
		err = ErrDamaged
	}
	if err != nil {
		return totals{}, fmt.Errorf("totals: %w", err)
	}
	return totals{
		versions: binary.BigEndian.Uint64(b),
		bytes:    binary.BigEndian.Uint64(b[8:]),
		sum:      binary.BigEndian.Uint64(b[16:]),
	}, nil
}

// guard runs f and turns a panic into ErrDamaged: bbolt asserts on pages that
// make no sense, and reading behind the end of a cut file is a fault. It covers
// this goroutine only.
func guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v: %w", r, ErrDamaged)
		}
	}()
	return f()
}
