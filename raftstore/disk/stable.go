package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/quorate/quorate/raftstore/wal"
)

// stableFormat is the version of the record in raft.db, and of the log beside it: a log of format 2 may
// have segments of format 2 (package wal). The record is the same in both. A release that knows format 1 only
// is refused here, before it takes such a segment for a damaged one.
const stableFormat = 2

var (
	// recordKey has the record of the stable store. Do not rename.
	recordKey = []byte("quorate")
	// segmentKey has the number of the newest segment that was made: segments that end
	// before it have lost entries.
	segmentKey = []byte("NewestSegment")
)

// errNotFound is returned for a key that is not there. Raft compares its text.
var errNotFound = errors.New("not found")

type keyValue struct{ key, value []byte }

// stableStore is Raft's stable store in a file of raft-boltdb. All pairs are one record under one key:
// raft-boltdb makes each Set a transaction, and Raft sets a vote by two keys, so a vote in keys of its
// own could be half on disk.
//
// A checksum covers the record: a bit that flips in the term or the vote could give a vote twice, and
// bbolt has no checksums of values. bbolt also opens by the older of its two meta pages if the newer one is
// broken, without the last transaction. That is damage, and refused (checkMetaPages). Each record is written
// twice, so that both pages lead to it: also a page that the disk has not written takes no vote back.
type stableStore struct {
	bolt   *raftboltdb.BoltStore
	commit CommitFunc // nil: changes are made directly

	// writing has a token for the one change that is being written, so that each record has all changes
	// before it. It is not a mutex: a test in virtual time would stand still while one waits for it.
	writing chan struct{}
	pairs   atomic.Pointer[map[string][]byte]
}

// openStable opens a directory's raft.db; that of a survivor also if one of its meta pages does not hold. Errors:
// ErrDamaged, ErrLogLost, those of files.
func openStable(dir string, commit CommitFunc, survivor bool) (*stableStore, error) {
	path := filepath.Join(dir, stableFile)
	if err := checkMetaPages(path); err != nil && !(survivor && errors.Is(err, ErrDamaged)) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	bolt, err := openBolt(path)
	if err != nil {
		return nil, err
	}
	var record []byte
	err = guard(func() (err error) {
		if record, err = bolt.Get(recordKey); errors.Is(err, raftboltdb.ErrKeyNotFound) {
			// Not a lost log: recovery would drop entries that are there.
			if _, other := bolt.Get(raftTerm); other == nil {
				return errors.New("it has no record of the format that this release knows")
			}
			return fmt.Errorf("it was emptied: %w", ErrLogLost)
		}
		return err
	})
	s := &stableStore{bolt: bolt, commit: commit, writing: make(chan struct{}, 1)}
	if err == nil {
		var pairs map[string][]byte
		pairs, err = decodeStable(record)
		s.pairs.Store(&pairs)
	}
	if err == nil {
		// The end of the process may have come between the two times, and the format may be an older one.
		err = s.change(func() error { return bolt.Set(recordKey, encodeStable(*s.pairs.Load())) })
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", stableFile, err), bolt.Close())
	}
	return s, nil
}

// newStable makes an unnamed raft.db with an empty record.
func newStable(dir string) error {
	path := filepath.Join(dir, stableFile+newSuffix)
	bolt, err := openBolt(path)
	if err != nil {
		return err
	}
	return errors.Join(bolt.Set(recordKey, encodeStable(nil)), bolt.Close(), syncFile(path))
}

// stableBytes is what raft.db takes from the beginning, and for good: a vote is written on a full disk, too. The
// record and bbolt's pages for the one before it take a tenth of that.
const stableBytes = 256 << 10

// reserveStable makes raft.db, if there is one, as long as that. Without room it stays as it is.
func reserveStable(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && info.Size() > 0 && info.Size() < stableBytes {
		_, err = f.WriteAt(make([]byte, stableBytes-info.Size()), info.Size())
		if err == nil {
			err = f.Sync()
		}
		if wal.NoRoom(err) {
			err = nil
		}
	}
	return errors.Join(err, f.Close())
}

func openBolt(path string) (bolt *raftboltdb.BoltStore, err error) {
	if err = checkPages(path); err == nil {
		err = reserveStable(path)
	}
	if err == nil {
		err = guard(func() error {
			bolt, err = raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: boltOptions()})
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return bolt, nil
}

// encodeStable returns the record of pairs: the format, each key and value behind its length, and a
// checksum.
func encodeStable(pairs map[string][]byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, stableFormat)
	for _, key := range slices.Sorted(maps.Keys(pairs)) {
		b = append(binary.AppendUvarint(b, uint64(len(key))), key...)
		b = append(binary.AppendUvarint(b, uint64(len(pairs[key]))), pairs[key]...)
	}
	return seal(b)
}

// decodeStable reads what encodeStable returns. Errors: ErrDamaged.
func decodeStable(b []byte) (map[string][]byte, error) {
	b, _, err := open(b)
	if err != nil {
		return nil, err
	}
	if len(b) < 4 {
		return nil, fmt.Errorf("no format: %w", ErrDamaged)
	}
	if format := binary.BigEndian.Uint32(b); format < 1 || format > stableFormat {
		return nil, fmt.Errorf("format %d is unknown, this release knows up to %d", format, stableFormat)
	}
	pairs := map[string][]byte{}
	for rest := b[4:]; len(rest) > 0; {
		var field [2][]byte
		for i := range field {
			n, size := binary.Uvarint(rest)
			if size <= 0 || n > uint64(len(rest)-size) {
				return nil, fmt.Errorf("a length beyond the record: %w", ErrDamaged)
			}
			field[i], rest = rest[size:size+int(n)], rest[size+int(n):]
		}
		pairs[string(field[0])] = slices.Clone(field[1])
	}
	return pairs, nil
}

func (s *stableStore) Close() error { return s.bolt.Close() }

// SetAll sets keys in one transaction.
func (s *stableStore) SetAll(set ...keyValue) error {
	s.writing <- struct{}{}
	defer func() { <-s.writing }()
	pairs := maps.Clone(*s.pairs.Load())
	for _, p := range set {
		pairs[string(p.key)] = slices.Clone(p.value)
	}
	record := encodeStable(pairs)
	err := s.change(func() error {
		if err := s.bolt.Set(recordKey, record); err != nil {
			return err
		}
		return s.bolt.Set(recordKey, record)
	})
	if err == nil {
		s.pairs.Store(&pairs)
	}
	return err
}

// change makes a durable change.
func (s *stableStore) change(do func() error) error {
	if s.commit == nil {
		return do()
	}
	return s.commit(stableFile, do)
}

// Set implements raft.StableStore.
func (s *stableStore) Set(key, value []byte) error { return s.SetAll(keyValue{key, value}) }

// Get implements raft.StableStore. It does not wait for a change that is being written.
func (s *stableStore) Get(key []byte) ([]byte, error) {
	value, ok := (*s.pairs.Load())[string(key)]
	if !ok {
		return nil, errNotFound
	}
	return slices.Clone(value), nil
}

// SetUint64 implements raft.StableStore.
func (s *stableStore) SetUint64(key []byte, value uint64) error {
	return s.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

// GetUint64 implements raft.StableStore. Errors: also ErrDamaged.
func (s *stableStore) GetUint64(key []byte) (uint64, error) {
	b, err := s.Get(key)
	if err != nil {
		return 0, err
	}
	if len(b) != 8 {
		return 0, fmt.Errorf("%s: %s has %d bytes: %w", stableFile, key, len(b), ErrDamaged)
	}
	return binary.BigEndian.Uint64(b), nil
}
