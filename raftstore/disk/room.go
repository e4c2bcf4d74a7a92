package disk

import (
	"bytes"
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
		return nil
	}
	to := want + min(max(f.end/4, 1<<20), db.largestStep())
	if free, ok := freeBytes(f.os); ok && free < to-f.size {
		return nil // without trying, which would take the last room from the log for a moment
	}
	_, err := f.extend(to)
	return err
}

// largestStep is how much more than it needs a file gets at most when it grows.
func (db *DB) largestStep() int64 { return min(16<<20, db.o.Reserve) }

// demand is a high estimate of the pages that a transaction takes. An estimate that is too low does no harm: bbolt
// then writes pages where nothing is allocated, and if one of them finds no room, the meta page is not written yet.
type demand struct {
	pageSize int64
	single   int64 // pages that are allocated alone
	runs     int64 // pages of leaves that need several in a row
	meta     int   // bytes of the state record

	records, size int64 // of the leaf that is being filled
	removals      leaves
	last          proto.Revision // that was removed
	near          int64          // bytes that were removed before it, from the same leaf perhaps
}

// leaves are pages of leaves, as in demand.
type leaves struct{ single, runs int64 }

const recordOverhead = pageElement + 8

func (d *demand) pages(n int64) int64 { return (n + d.pageSize - 1) / d.pageSize }

// added counts a record at the end of the versions, as bbolt splits leaves: two records at least, and no more
// than a page.
func (d *demand) added(n int) {
	size := int64(n) + recordOverhead
	if d.records >= 2 && pageHeader+d.size+size > d.pageSize {
		d.closeLeaf()
	}
	d.records++
	d.size += size
}

func (d *demand) closeLeaf() {
	if n := d.pages(pageHeader + d.size); n > 1 {
		d.runs += n
	} else {
		d.single++
	}
	d.records, d.size = 0, 0
}

// lastLeaf counts the records before the first one that is added: they are written once more.
func (d *demand) lastLeaf(versions *bbolt.Bucket) {
	d.single++
	c := versions.Cursor()
	// A leaf of more than a page has four at most.
	for k, v := c.Last(); k != nil && d.records < 4; k, v = c.Prev() {
		d.records++
		d.size += int64(len(v)) + recordOverhead
	}
}

// removed counts the leaf of a record that goes, and the one beside it, which may have to be merged with it. Those
// of long records have up to four, which are likely to be as long.
func (d *demand) removed(r proto.Revision, n int) {
	size := int64(n) + recordOverhead
	if 4*size > d.pageSize {
		d.removals.runs += d.pages(4 * size)
	}
	next := r == d.last+1 // most probably in the same leaf
	if d.last = r; next && d.near+size < d.pageSize/2 {
		d.near += size
		return
	}
	d.near = 0
	d.removals.single++
	if !next {
		d.removals.single++
	}
}

// recount looks at what removals leave of leaves, in the file as it is, where removed does not tell how much that is: of many records that
// stand in a row, as the floor removes them, nothing is left.
func (d *demand) recount(bolt *bbolt.DB, removed []proto.Revision) error {
	slices.Sort(removed)
	d.removals = leaves{}
	// Not in the transaction that removes them: bbolt's cursors do not get out of leaves that have become empty.
	return bolt.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket(versionsBucket).Cursor()
		for i := 0; i < len(removed); {
			begin, first := i, revisionKey(removed[i])
			k, v := c.Seek(first)
			for ; i < len(removed) && bytes.Equal(k, revisionKey(removed[i])); i++ {
				k, v = c.Next()
			}
			if i == begin {
				i++ // it came and went: it is not in the file
				continue
			}
			d.removals.single++ // that is merged with another one
			d.rest(k, v, c.Next)
			c.Seek(first)
			k, v = c.Prev()
			d.rest(k, v, c.Prev)
		}
		return nil
	})
}

// rest counts the records on one side of a removed one, as far as they may be in its leaf.
func (d *demand) rest(k, v []byte, next func() (k, v []byte)) {
	size := int64(pageHeader)
	for n := 0; k != nil && n < 3 && size < d.pageSize; n++ {
		size += int64(len(v)) + recordOverhead
		k, v = next()
	}
	if n := d.pages(size); n > 1 && size > 2*d.pageSize {
		d.removals.runs += n
	} else {
		d.removals.single++
	}
}

// bytes is by how much the file may have to grow when bbolt has some free pages, and by how much at least. A leaf of one page
// takes any; runs may find none that are in a row, and take some of those that are.
func (d *demand) bytes(pages int64, free int) (most, least int64) {
	d.closeLeaf()
	single, runs := d.single+d.removals.single, d.runs+d.removals.runs
	runs += d.pages(int64(d.meta)) + 1 // the meta bucket
	// The branches above, of which each has a hundred children or more, but for those that removals have thinned out.
	touched := single + runs
	single += touched/40 + min(touched, pages/40) + 8
	least = max(0, single+runs-int64(free)) * d.pageSize
	return max(runs*d.pageSize, least), least
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

// makeRoom sees to it that most bytes behind the pages are allocated, and the reserve behind these if possible. Where there is no
// room for that, but least are allocated, bbolt may find runs among its free pages.
func (db *DB) makeRoom(f *file, most, least int64) error {
	if err := db.keepReserve(f, most); err != nil {
		return err
	}
	to := f.end + most
	switch there, err := f.extend(to); {
	case err != nil:
		return err
	case !there && f.end+least > f.size:
		return db.noRoomFor(to, nil)
	}
	return nil
}

// Room returns how many bytes state.db can still take without any more room on the disk, behind its pages and in those that are
// free, less what waits to be written, and whether that waits for room. Nobody waits for the disk.
func (db *DB) Room() (bytes int64, waiting bool) {
	db.mu.Lock()
	pending := db.bytes
	db.mu.Unlock()
	return max(0, db.room.Load()-pending*5/4), db.waiting.Load()
}
