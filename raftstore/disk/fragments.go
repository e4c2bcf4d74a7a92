package disk

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"iter"

	"github.com/quorate/quorate/proto"
	"go.etcd.io/bbolt"
)

// A record is stored in fragments of which four fit on a page, so that each leaf of the versions bucket is one page. A longer leaf takes
// pages in a row: on a full disk there may be none, however many are free, and each change of one of its records writes all of them again.
// A leaf of four is the largest that bbolt does not split.
//
// The first fragment has the revision as its key, the others have their number behind it. The record's checksum, at its end,
// says whether they are all there. Files of format 1 have whole records, which read as one fragment.

const fragmentKey = 8 + 2

// fragmentBytes is the length of fragments in a file with pages of some size.
func fragmentBytes(pageSize int) int { return (pageSize-pageHeader)/4 - pageElement - fragmentKey }

// fragments yields the keys of a record of n bytes and where each fragment ends. A key is valid until the next one.
func fragments(r proto.Revision, n, most int) iter.Seq2[[]byte, int] {
	return func(yield func(key []byte, end int) bool) {
		key := make([]byte, fragmentKey)
		binary.BigEndian.PutUint64(key, uint64(r))
		if !yield(key[:8], min(n, most)) {
			return
		}
		for i, end := 1, most; end < n; i++ {
			end += most
			binary.BigEndian.PutUint16(key[8:], uint16(i))
			if !yield(key, min(n, end)) {
				return
			}
		}
	}
}

func revisionOf(key []byte) proto.Revision { return proto.Revision(binary.BigEndian.Uint64(key)) }

// records reads the versions bucket. It is for one goroutine.
type records struct {
	cursor     *bbolt.Cursor
	begun      bool
	key, value []byte // that were read ahead
	parts      [][]byte
	joined     []byte
}

func readRecords(tx *bbolt.Tx) *records { return &records{cursor: tx.Bucket(versionsBucket).Cursor()} }

// fragments returns those of the next record, which the transaction holds, or none at the end. The slice is valid until the next call.
// Error: ErrDamaged.
func (r *records) fragments() (proto.Revision, [][]byte, error) {
	if !r.begun {
		r.begun = true
		r.key, r.value = r.cursor.First()
	}
	if r.key == nil {
		return 0, nil, nil
	}
	first := r.key
	if len(first) != 8 {
		return 0, nil, fmt.Errorf("record %x begins nowhere: %w", first, ErrDamaged)
	}
	r.parts = r.parts[:0]
	for i := 0; ; {
		r.parts = append(r.parts, r.value)
		r.key, r.value = r.cursor.Next()
		if !bytes.HasPrefix(r.key, first) {
			return revisionOf(first), r.parts, nil
		}
		if i++; len(r.key) != fragmentKey || int(binary.BigEndian.Uint16(r.key[8:])) != i {
			return 0, nil, fmt.Errorf("record %x follows fragment %d: %w", r.key, i-1, ErrDamaged)
		}
	}
}

// next returns the payload of the next record, which is valid until the next call, or nil at the end. Error: ErrDamaged.
func (r *records) next() (revision proto.Revision, payload []byte, sum uint32, err error) {
	revision, parts, err := r.fragments()
	if parts == nil {
		return 0, nil, 0, err
	}
	value := parts[0]
	if len(parts) > 1 {
		r.joined = join(r.joined[:0], parts)
		value = r.joined
	}
	if payload, sum, err = open(value); err != nil {
		return 0, nil, 0, fmt.Errorf("record %x: %w", uint64(revision), err)
	}
	return revision, payload, sum, nil
}

func join(to []byte, parts [][]byte) []byte {
	for _, p := range parts {
		to = append(to, p...)
	}
	return to
}

// put stores a sealed record, and adds it to the totals.
func put(versions *bbolt.Bucket, r proto.Revision, value []byte, tot *totals) error {
	at := 0
	for key, end := range fragments(r, len(value), fragmentBytes(versions.Tx().DB().Info().PageSize)) {
		if err := versions.Put(key, value[at:end]); err != nil {
			return fmt.Errorf("revision %d: %w", r, err)
		}
		at = end
	}
	n := len(value) - sumSize
	tot.add(n, binary.BigEndian.Uint32(value[n:]))
	return nil
}

// drop deletes a record, and takes it out of the totals. It does not compare the record with its checksum, for
// which the kernel may have to read many pages: loading compares the totals with what is left.
func drop(versions *bbolt.Bucket, r proto.Revision, tot *totals) error {
	n, most := 0, fragmentBytes(versions.Tx().DB().Info().PageSize)
	tail := make([]byte, 0, 2*sumSize) // the last fragment may have less than the checksum
	for key := range fragments(r, maxRecord, most) {
		// Not by a cursor's Next, which does not get out of leaves that have become empty.
		value := versions.Get(key)
		if value == nil {
			break
		}
		n += len(value)
		tail = append(tail[max(0, len(tail)-sumSize):], value[max(0, len(value)-sumSize):]...)
		if err := versions.Delete(key); err != nil {
			return fmt.Errorf("remove revision %d: %w", r, err)
		}
		if len(value) != most {
			break
		}
	}
	if n < sumSize {
		return fmt.Errorf("revision %d is to be removed, but has %d bytes: %w", r, n, ErrDamaged)
	}
	tot.sub(n-sumSize, binary.BigEndian.Uint32(tail[len(tail)-sumSize:]))
	return nil
}
