package disk

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/quorate/quorate/proto"
	"go.etcd.io/bbolt"

	"github.com/quorate/quorate/raftstore/wal"
)

// refusedWrite reports whether a write found no room, and not a sync: of what a failed sync has left nobody knows.
func refusedWrite(err error) bool {
	var write *os.PathError
	return errors.As(err, &write) && write.Op == "write" && wal.NoRoom(write.Err)
}

// errUnsupported is returned by calls that a system or a file system does not have.
var errUnsupported = errors.New("not supported here")

// allocateRange is a variable for tests, which replace it by one that breaks its promise.
var allocateRange = allocate

// allocate allocates the range from one offset of a file to another, so that later writes there need no more room.
// The file system keeps the data of the range. Where it cannot allocate, zeros are written over them.
func allocate(f *os.File, from, to int64) error {
	err := fallocate(f, from, to-from)
	if !errors.Is(err, errUnsupported) {
		return err
	}
	zeros := make([]byte, min(to-from, 1<<20))
	for from < to {
		n := min(to-from, int64(len(zeros)))
		if _, err := f.WriteAt(zeros[:n], from); err != nil {
			return err
		}
		from += n
	}
	return nil
}

// adopt finds out how far a file is allocated. Another process may have made it.
func (f *file) adopt() error {
	if err := f.measure(); err != nil {
		return err
	}
	info, err := f.os.Stat()
	if err != nil {
		return err
	}
	f.size = max(f.end, info.Size())
	if f.size == f.end {
		return nil
	}
	// bbolt grew the files of earlier releases without allocating them.
	switch err := fallocate(f.os, f.end, f.size-f.end); {
	case wal.NoRoom(err) && allocatedBytes(info) < f.size:
		f.size = f.end
	case err != nil && !wal.NoRoom(err) && !errors.Is(err, errUnsupported):
		return fmt.Errorf("allocate %s: %w", stateFile, err)
	}
	return nil
}

// measure notes where the pages end.
func (f *file) measure() error {
	return f.bolt.View(func(tx *bbolt.Tx) error {
		f.end = tx.Size()
		f.size = max(f.size, f.end)
		return nil
	})
}

// freePages is how many pages the next transaction finds free. It is to be called before that begins.
func (f *file) freePages() int64 {
	s := f.bolt.Stats()
	if s.OpenTxN > 0 {
		return int64(s.FreePageN) // readers may see the others
	}
	return int64(s.FreePageN + s.PendingPageN)
}

// extend allocates a file up to some size, and reports whether there was room. Its size is durable then: no
// transaction relies on one that is not.
func (f *file) extend(to int64) (bool, error) {
	if to <= f.size {
		return true, nil
	}
	info, err := f.os.Stat()
	if err != nil {
		return false, err
	}
	if err := allocateRange(f.os, f.size, to); err != nil {
		// Some file systems keep the part that they could allocate, and the log needs it more. If the truncation
		// fails as well, the file is only longer.
		_ = f.os.Truncate(info.Size())
		if wal.NoRoom(err) {
			return false, nil
		}
		return false, fmt.Errorf("allocate %s: %w", stateFile, err)
	}
	failpoint("allocated")
	if err := f.os.Sync(); err != nil {
		return false, fmt.Errorf("sync %s: %w", stateFile, err)
	}
	f.size = to
	return true, nil
}

// keepReserve extends a file so that the reserve is there behind need bytes, if the file system has room for
// it. Files grow in steps, of which each costs a sync. Called with DB.writing.
func (db *DB) keepReserve(f *file, need int64) error {
	want := f.end + need + db.o.Reserve
	if f.size >= want {
		db.cramped.Store(false)
		return nil
	}
	to := want + min(max(f.end/4, 1<<20), db.largestStep())
	if free, ok := freeBytes(f.os); ok && free < to-f.size {
		return nil // without trying, which would take the last room from the log for a moment
	}
	there, err := f.extend(to)
	db.cramped.Store(!there)
	return err
}

// Cramped reports whether the reserve could not be made, though the file system says that it has room: a quota, for example.
func (db *DB) Cramped() bool { return db.cramped.Load() }

// largestStep is how much more than it needs a file gets at most when it grows.
func (db *DB) largestStep() int64 { return min(16<<20, db.o.Reserve) }

// demand is an estimate of the pages that a transaction takes. One that is too low does no harm: bbolt
// then writes pages where nothing is allocated, and if one of them finds no room, the meta page is not written yet.
type demand struct {
	pageSize int64
	leaves   int64 // for what is added
	size     int64 // of the leaf that is being filled
	removals int64 // pages of leaves that lose some of their fragments
	last     proto.Revision
	meta     int // bytes of the state record
}

func (d *demand) pages(n int64) int64 { return (n + d.pageSize - 1) / d.pageSize }

// added counts a record of n bytes at the end of the versions, as bbolt splits leaves.
func (d *demand) added(n int) {
	most := int64(fragmentBytes(int(d.pageSize)))
	for left := int64(n); left > 0; left -= most {
		size := min(left, most) + pageElement + fragmentKey
		if d.leaves == 0 || pageHeader+d.size+size > d.pageSize {
			d.leaves, d.size = d.leaves+1, 0
		}
		d.size += size
	}
}

// leavesOfRun are what is left of the leaves in which a run of removed records begins and ends, and one beside them with which one is merged.
const leavesOfRun = 3

// removed counts a removed record, as if one with the next revision were the next one in the file, and another one far from it.
func (d *demand) removed(r proto.Revision) {
	if r != d.last+1 {
		d.removals += leavesOfRun
	}
	d.last = r
}

// recount looks for runs in the file, where removed does not tell how much is copied: revisions have gaps, and versions that are removed here and there may
// be in the same leaf.
func (d *demand) recount(bolt *bbolt.DB, removed []proto.Revision) error {
	slices.Sort(removed)
	d.removals = 0
	// Not in the transaction that removes them: bbolt's cursors do not get out of leaves that have become empty.
	return bolt.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket(versionsBucket).Cursor()
		for i := 0; i < len(removed); {
			begin := i
			k, v := c.Seek(revisionKey(removed[i]))
			for ; i < len(removed) && k != nil && revisionOf(k) == removed[i]; i++ {
				k, v = c.Seek(revisionKey(removed[i] + 1))
			}
			if i == begin {
				i++ // it came and went: it is not in the file
				continue
			}
			d.removals += leavesOfRun
			for n := int64(0); i < len(removed) && k != nil && n < d.pageSize; k, v = c.Next() {
				if revisionOf(k) >= removed[i] {
					d.removals-- // the next run begins in this leaf or in the one beside it
					break
				}
				n += int64(pageElement + len(k) + len(v))
			}
		}
		return nil
	})
}

// bytes is by how much a file of so many pages may have to grow, of which some are free.
func (d *demand) bytes(pages, free int64) int64 {
	// The last leaf is written once more, the roots of both buckets, the branches above, of which each has a hundred children or more, but for those
	// that removals have thinned out.
	n := d.leaves + min(d.removals, pages-free) + d.pages(int64(d.meta)) + 3
	n += n/40 + min(n, pages/40) + 8
	return max(0, n-free) * d.pageSize
}

// wait describes a flush that has found no room.
type wait struct {
	size  int64 // the size that the file needs; 0 if it is not known
	pause time.Duration
	again time.Time // when to estimate again: fewer pages may be needed by then, and more may be free
}

const longestPause = 2 * time.Second

// noRoomFor begins or goes on to wait, and returns why.
func (db *DB) noRoomFor(size int64, why error) error {
	w := &db.wait
	w.size = size
	w.pause = min(max(2*w.pause, db.o.FlushEvery), longestPause)
	w.again = time.Now().Add(w.pause)
	db.waiting.Store(true)
	if why != nil {
		return fmt.Errorf("write %s: %w: %w", stateFile, ErrNoRoom, why)
	}
	return fmt.Errorf("%s has to grow to %d bytes: %w", stateFile, size, ErrNoRoom)
}

// stillNoRoom returns ErrNoRoom while it is not worth estimating again.
func (db *DB) stillNoRoom(f *file) error {
	w := &db.wait
	if !db.waiting.Load() || !time.Now().Before(w.again) {
		return nil
	}
	if w.size > 0 {
		if there, err := f.extend(w.size); err != nil || there {
			return err
		}
	}
	return fmt.Errorf("%s has to grow: %w", stateFile, ErrNoRoom)
}

// makeRoom sees to it that need bytes behind the pages are allocated, and the reserve behind these if possible.
func (db *DB) makeRoom(f *file, need int64) error {
	if err := db.keepReserve(f, need); err != nil {
		return err
	}
	to := f.end + need
	there, err := f.extend(to)
	if err == nil && !there {
		err = db.noRoomFor(to, nil)
	}
	return err
}

// Room returns how many bytes state.db can still take without any more room on the disk, behind its pages and in those that are
// free, less what waits to be written, and whether that waits for room. Nobody waits for the disk.
func (db *DB) Room() (bytes int64, waiting bool) {
	db.mu.Lock()
	pending := db.bytes
	db.mu.Unlock()
	return max(0, db.room.Load()-pending*5/4), db.waiting.Load()
}
