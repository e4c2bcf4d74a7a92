package proto

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// FormatVersion is the first byte of every log entry and state record.
const FormatVersion = 1

// Kind is the second byte of every log entry and state record. Values are on
// disk and on the wire: do not renumber.
type Kind byte

const (
	KindWrite   Kind = 1
	KindCompact Kind = 2
	KindNewTerm Kind = 3
	KindCluster Kind = 4

	KindVersionRecord Kind = 16
	KindStateRecord   Kind = 17

	// KindIgnorable is set in the kind of an entry, or of a record of a backup, that a
	// node may skip when it does not know it. Any other unknown kind must stop the node.
	KindIgnorable Kind = 0x80

	// KindBackup is in backups only: a Backup, right behind the state record.
	KindBackup = KindIgnorable | 18
)

var (
	// ErrFormat is returned when bytes are not a frame of a known version, or
	// their body does not parse.
	ErrFormat = errors.New("unknown or damaged record format")
	// ErrUnknownKind is returned for a well-formed frame of a kind that this
	// version does not know and that is not ignorable.
	ErrUnknownKind = errors.New("unknown record kind")
)

// Encode frames a message: version, kind, body.
func Encode(kind Kind, m proto.Message) ([]byte, error) {
	b := make([]byte, 2, 2+proto.Size(m))
	b[0], b[1] = FormatVersion, byte(kind)
	b, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(b, m)
	if err != nil {
		return nil, fmt.Errorf("encode kind %d: %w", kind, err)
	}
	return b, nil
}

// InTerm returns the frame of a Write as the copy for the leader of a term. The frame
// itself is not changed: a field that comes again at the end of a message counts.
func InTerm(frame []byte, term Term) []byte {
	out := make([]byte, 0, len(frame)+InTermBytes)
	out = append(out, frame...)
	out = protowire.AppendTag(out, writeTermField, protowire.VarintType)
	return protowire.AppendVarint(out, uint64(term))
}

// InTermBytes is how much longer InTerm makes a frame at most.
const InTermBytes = 12

// writeTermField is the number of Write.term.
const writeTermField = 16

// Split checks the frame's version and returns its kind and body. The body
// aliases b.
func Split(b []byte) (Kind, []byte, error) {
	if len(b) < 2 {
		return 0, nil, fmt.Errorf("%d bytes: %w", len(b), ErrFormat)
	}
	if b[0] != FormatVersion {
		return 0, nil, fmt.Errorf("format version %d: %w", b[0], ErrFormat)
	}
	return Kind(b[1]), b[2:], nil
}

// Decode parses a body returned by Split. The message does not alias the body.
func Decode(body []byte, m proto.Message) error {
	if err := proto.Unmarshal(body, m); err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return nil
}

// Message is any protobuf message.
type Message = proto.Message
