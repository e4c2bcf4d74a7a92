package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"go.etcd.io/bbolt"
)

// stableFormat is the version of raft.db.
const stableFormat = 1

var (
	// confBucket has the pairs of the stable store. Do not rename.
	confBucket = []byte("conf")
	// stableFormatKey has the version of the file.
	stableFormatKey = []byte("Format")
	// segmentKey has the number of the newest segment that was made: segments that end
	// before it have lost entries.
	segmentKey = []byte("NewestSegment")
)

// errNotFound is returned for a key that is not there. Raft compares its text.
var errNotFound = errors.New("not found")

type keyValue struct{ key, value []byte }

// stableStore is Raft's stable store in a bbolt file. Each change is one transaction.
//
// A checksum follows each value and covers the key as well: a bit that flips in the term or
// the vote could give a vote twice. bbolt has no checksums of values.
type stableStore struct {
	db     *bbolt.DB
	commit CommitFunc // nil: changes are made directly
}

// openStable opens a directory's raft.db. Errors: ErrDamaged, ErrLogLost, those of files.
func openStable(dir string, commit CommitFunc) (*stableStore, error) {
	s, err := openStableFile(filepath.Join(dir, stableFile))
	if err != nil {
		return nil, err
	}
	switch format, err := s.GetUint64(stableFormatKey); {
	case errors.Is(err, errNotFound):
		return nil, errors.Join(fmt.Errorf("%s was emptied: %w", stableFile, ErrLogLost), s.Close())
	case err != nil:
		return nil, errors.Join(fmt.Errorf("%s: its format: %w", stableFile, err), s.Close())
	case format != stableFormat:
		return nil, errors.Join(fmt.Errorf("%s has format %d, this release knows %d", stableFile, format, stableFormat), s.Close())
	}
	s.commit = commit
	return s, nil
}

// newStable makes an unnamed raft.db, with nothing in it but its format.
func newStable(dir string) error {
	path := filepath.Join(dir, stableFile+newSuffix)
	s, err := openStableFile(path)
	if err != nil {
		return err
	}
	return errors.Join(s.SetUint64(stableFormatKey, stableFormat), s.Close(), syncFile(path))
}

func openStableFile(path string) (s *stableStore, err error) {
	if err := checkPages(path); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	err = guard(func() error {
		db, err := bbolt.Open(path, fileMode, boltOptions())
		if err != nil {
			return err
		}
		err = db.Update(func(tx *bbolt.Tx) error {
			_, err := tx.CreateBucketIfNotExists(confBucket)
			return err
		})
		if err != nil {
			return errors.Join(err, db.Close())
		}
		s = &stableStore{db: db}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

func (s *stableStore) Close() error { return s.db.Close() }

const sumBytes = 4

func valueSum(key, value []byte) []byte {
	head := binary.BigEndian.AppendUint64(nil, uint64(len(key)))
	return binary.BigEndian.AppendUint32(nil, checksumOf(append(head, key...), value))
}

// SetAll sets keys in one transaction.
func (s *stableStore) SetAll(pairs ...keyValue) error {
	change := func() error {
		return s.db.Update(func(tx *bbolt.Tx) error {
			conf := tx.Bucket(confBucket)
			for _, p := range pairs {
				if err := conf.Put(p.key, append(slices.Clip(p.value), valueSum(p.key, p.value)...)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if s.commit == nil {
		return change()
	}
	return s.commit(stableFile, change)
}

// Set implements raft.StableStore.
func (s *stableStore) Set(key, value []byte) error { return s.SetAll(keyValue{key, value}) }

// Get implements raft.StableStore. Errors: also ErrDamaged.
func (s *stableStore) Get(key []byte) (value []byte, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		found := tx.Bucket(confBucket).Get(key)
		if found == nil {
			return errNotFound
		}
		value = bytes.Clone(found)
		return nil
	})
	if err != nil {
		return nil, err
	}
	at := len(value) - sumBytes
	if at < 0 || string(value[at:]) != string(valueSum(key, value[:at])) {
		return nil, fmt.Errorf("%s: %s: wrong checksum: %w", stableFile, key, ErrDamaged)
	}
	return value[:at:at], nil
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
