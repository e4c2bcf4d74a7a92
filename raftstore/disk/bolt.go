package disk

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
)

// boltStore is Raft's log and stable store in a bbolt file. The format is that of
// raft-boltdb/v2, whose place it takes (TestBoltFormat compares them): that library
// makes each change a transaction of its own, so that a vote of two keys can be
// half on disk, and a long log can only be cut at one go.
type boltStore struct{ db *bbolt.DB }

var (
	// logsBucket has the entries, by index: 8 bytes, big-endian. Do not rename.
	logsBucket = []byte("logs")
	// confBucket has the stable store. Do not rename.
	confBucket = []byte("conf")
)

// errNotFound is returned for a key that is not there. Raft compares its text.
var errNotFound = errors.New("not found")

// entryFormat is how raft-boltdb encodes entries: with the time of go-msgpack 1.1.4.
var entryFormat = func() *codec.MsgpackHandle {
	h := &codec.MsgpackHandle{}
	h.TimeNotBuiltin = true
	return h
}()

// newBoltStore opens a file, or makes an empty one.
func newBoltStore(path string) (*boltStore, error) {
	db, err := bbolt.Open(path, fileMode, boltOptions())
	if err != nil {
		return nil, err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(logsBucket)
		if err == nil {
			_, err = tx.CreateBucketIfNotExists(confBucket)
		}
		return err
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &boltStore{db}, nil
}

func (b *boltStore) Close() error { return b.db.Close() }

func indexKey(index uint64) []byte { return binary.BigEndian.AppendUint64(nil, index) }

// indexOf returns 0 for no key.
func indexOf(key []byte) uint64 {
	if len(key) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(key)
}

// FirstIndex implements raft.LogStore.
func (b *boltStore) FirstIndex() (uint64, error) { return b.FirstFrom(0) }

// FirstFrom returns the first index from min on that there is an entry at, or 0.
func (b *boltStore) FirstFrom(min uint64) (index uint64, err error) {
	err = b.db.View(func(tx *bbolt.Tx) error {
		key, _ := tx.Bucket(logsBucket).Cursor().Seek(indexKey(min))
		index = indexOf(key)
		return nil
	})
	return index, err
}

// LastIndex implements raft.LogStore.
func (b *boltStore) LastIndex() (index uint64, err error) {
	err = b.db.View(func(tx *bbolt.Tx) error {
		key, _ := tx.Bucket(logsBucket).Cursor().Last()
		index = indexOf(key)
		return nil
	})
	return index, err
}

// lastRun returns the first index of the entries that stand without a hole up to the
// newest one, or 0.
func (b *boltStore) lastRun() (first uint64, err error) {
	err = b.db.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket(logsBucket).Cursor()
		for key, _ := c.Last(); key != nil; key, _ = c.Prev() {
			index := indexOf(key)
			if first != 0 && index != first-1 {
				break
			}
			first = index
		}
		return nil
	})
	return first, err
}

// GetLog implements raft.LogStore.
func (b *boltStore) GetLog(index uint64, log *raft.Log) error {
	return b.db.View(func(tx *bbolt.Tx) error {
		value := tx.Bucket(logsBucket).Get(indexKey(index))
		if value == nil {
			return raft.ErrLogNotFound
		}
		// Through a reader, which copies: value is the file's memory.
		return codec.NewDecoder(bytes.NewReader(value), entryFormat).Decode(log)
	})
}

// StoreLog implements raft.LogStore.
func (b *boltStore) StoreLog(log *raft.Log) error { return b.StoreLogs([]*raft.Log{log}) }

// StoreLogs implements raft.LogStore.
func (b *boltStore) StoreLogs(logs []*raft.Log) error {
	return b.db.Update(func(tx *bbolt.Tx) error {
		entries := tx.Bucket(logsBucket)
		var buf []byte
		encoder := codec.NewEncoderBytes(&buf, entryFormat)
		for _, l := range logs {
			buf = make([]byte, 0, len(l.Data)+len(l.Extensions)+logOverhead) // bbolt keeps it until the commit
			encoder.ResetBytes(&buf)
			if err := encoder.Encode(l); err != nil {
				return err
			}
			if err := entries.Put(indexKey(l.Index), buf); err != nil {
				return err
			}
		}
		return nil
	})
}

// DeleteRange implements raft.LogStore, in one transaction.
func (b *boltStore) DeleteRange(min, max uint64) error {
	return b.db.Update(func(tx *bbolt.Tx) error {
		c := tx.Bucket(logsBucket).Cursor()
		for key, _ := c.Seek(indexKey(min)); key != nil && indexOf(key) <= max; key, _ = c.Next() {
			if err := c.Delete(); err != nil {
				return err
			}
		}
		return nil
	})
}

// DeleteFront deletes the oldest entries up to max, in one transaction: at most n,
// and no more once they have so many bytes together. It reports whether there are more.
func (b *boltStore) DeleteFront(max uint64, n, size int) (more bool, err error) {
	err = b.db.Update(func(tx *bbolt.Tx) error {
		c := tx.Bucket(logsBucket).Cursor()
		key, value := c.First()
		for ; key != nil && indexOf(key) <= max; key, value = c.Next() {
			if n <= 0 || size <= 0 {
				more = true
				return nil
			}
			n--
			size -= len(value)
			if err := c.Delete(); err != nil {
				return err
			}
		}
		return nil
	})
	return more, err
}

// Set implements raft.StableStore.
func (b *boltStore) Set(key, value []byte) error { return b.SetAll(keyValue{key, value}) }

// SetAll sets keys in one transaction.
func (b *boltStore) SetAll(pairs ...keyValue) error {
	return b.db.Update(func(tx *bbolt.Tx) error {
		conf := tx.Bucket(confBucket)
		for _, p := range pairs {
			if err := conf.Put(p.key, p.value); err != nil {
				return err
			}
		}
		return nil
	})
}

// Get implements raft.StableStore.
func (b *boltStore) Get(key []byte) (value []byte, err error) {
	err = b.db.View(func(tx *bbolt.Tx) error {
		found := tx.Bucket(confBucket).Get(key)
		if found == nil {
			return errNotFound
		}
		value = bytes.Clone(found)
		return nil
	})
	return value, err
}

// stable returns everything that was set.
func (b *boltStore) stable() (pairs []keyValue, err error) {
	err = b.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(confBucket).ForEach(func(k, v []byte) error {
			pairs = append(pairs, keyValue{bytes.Clone(k), bytes.Clone(v)})
			return nil
		})
	})
	return pairs, err
}

// SetUint64 implements raft.StableStore.
func (b *boltStore) SetUint64(key []byte, value uint64) error { return b.Set(key, indexKey(value)) }

// GetUint64 implements raft.StableStore.
func (b *boltStore) GetUint64(key []byte) (uint64, error) {
	value, err := b.Get(key)
	if err != nil {
		return 0, err
	}
	if len(value) != 8 {
		return 0, ErrDamaged
	}
	return indexOf(value), nil
}
