package disk

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/hashicorp/raft"
)

// summed adds a checksum to everything in raft.db, whose format has none: a bit that
// flips in an entry on one disk would be replicated to the others, and a bit in the
// term or the vote could give a vote twice.
//
// An entry's sum stands at the end of its Extensions on disk, and covers index,
// term, type, data and the other Extensions. Nobody above sees it. A value's sum
// stands behind the value, and covers the key as well.
type summed struct{ logBackend }

const sumBytes = 4

func entrySum(l *raft.Log) []byte {
	head := make([]byte, 0, 8+8+1+8+len(l.Extensions))
	head = binary.BigEndian.AppendUint64(head, l.Index)
	head = binary.BigEndian.AppendUint64(head, l.Term)
	head = append(head, byte(l.Type))
	head = binary.BigEndian.AppendUint64(head, uint64(len(l.Extensions)))
	head = append(head, l.Extensions...)
	return binary.BigEndian.AppendUint32(nil, checksumOf(head, l.Data))
}

func valueSum(key, value []byte) []byte {
	head := binary.BigEndian.AppendUint64(nil, uint64(len(key)))
	return binary.BigEndian.AppendUint32(nil, checksumOf(append(head, key...), value))
}

// StoreLog implements raft.LogStore.
func (s summed) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore. The entries are raft's and stay as they are.
func (s summed) StoreLogs(logs []*raft.Log) error {
	with := make([]raft.Log, len(logs))
	pointers := make([]*raft.Log, len(logs))
	for i, l := range logs {
		with[i] = *l
		with[i].Extensions = append(slices.Clip(l.Extensions), entrySum(l)...)
		pointers[i] = &with[i]
	}
	return s.logBackend.StoreLogs(pointers)
}

// GetLog implements raft.LogStore. Errors: also ErrDamaged.
func (s summed) GetLog(index uint64, l *raft.Log) error {
	if err := s.logBackend.GetLog(index, l); err != nil {
		return err
	}
	at := len(l.Extensions) - sumBytes
	if at < 0 {
		return fmt.Errorf("raft.db: entry %d has no checksum: %w", index, ErrDamaged)
	}
	sum := l.Extensions[at:]
	if l.Extensions = l.Extensions[:at:at]; at == 0 {
		l.Extensions = nil
	}
	if l.Index != index || string(sum) != string(entrySum(l)) {
		return fmt.Errorf("raft.db: entry %d: wrong checksum: %w", index, ErrDamaged)
	}
	return nil
}

// Set implements raft.StableStore.
func (s summed) Set(key, value []byte) error {
	return s.SetAll(keyValue{key, value})
}

// SetAll implements logBackend.
func (s summed) SetAll(pairs ...keyValue) error {
	with := make([]keyValue, len(pairs))
	for i, p := range pairs {
		with[i] = keyValue{p.key, append(slices.Clip(p.value), valueSum(p.key, p.value)...)}
	}
	return s.logBackend.SetAll(with...)
}

// Get implements raft.StableStore. Errors: also ErrDamaged.
func (s summed) Get(key []byte) ([]byte, error) {
	b, err := s.logBackend.Get(key)
	if err != nil {
		return nil, err
	}
	at := len(b) - sumBytes
	if at < 0 || string(b[at:]) != string(valueSum(key, b[:at])) {
		return nil, fmt.Errorf("raft.db: %s: wrong checksum: %w", key, ErrDamaged)
	}
	return b[:at:at], nil
}

// SetUint64 implements raft.StableStore.
func (s summed) SetUint64(key []byte, value uint64) error {
	return s.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

// GetUint64 implements raft.StableStore. Errors: also ErrDamaged.
func (s summed) GetUint64(key []byte) (uint64, error) {
	b, err := s.Get(key)
	if err != nil {
		return 0, err
	}
	if len(b) != 8 {
		return 0, fmt.Errorf("raft.db: %s has %d bytes: %w", key, len(b), ErrDamaged)
	}
	return binary.BigEndian.Uint64(b), nil
}
