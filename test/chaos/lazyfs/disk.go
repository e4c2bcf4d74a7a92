//go:build linux

package lazyfs

import (
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
)

const (
	pageSize   = 4096
	sectorSize = 512
	rootID     = 1
)

// Disk is the content of one node's disk, now and after a power cut. Its methods
// may be called at any time.
type Disk struct {
	faults faults

	mu     sync.Mutex
	inodes map[uint64]*inode
	nextID uint64
	used   int64 // bytes of pages that a name leads to
	quota  int64 // 0: none
	off    bool  // without current: what changes or syncs fails

	operations int64         // that take room
	refuseFrom int64         // of these; 0: none is refused
	readOnly   bool          // all changes are refused then
	refuseWith syscall.Errno // by which they are
}

// inode is a file or a directory. The fields that begin with "synced" are what a
// power cut leaves.
type inode struct {
	id    uint64
	mode  uint32
	links int

	size       int64
	syncedSize int64
	pages      map[int64]*page
	dirty      map[int64]bool // pages that differ from what was synced

	names       map[string]uint64
	syncedNames map[string]uint64
}

// page is 4 KiB of a file; nil is all zero.
type page struct{ now, synced []byte }

func (i *inode) isDir() bool { return i.mode&syscall.S_IFMT == syscall.S_IFDIR }

// New makes an empty disk.
func New() *Disk {
	d := &Disk{inodes: map[uint64]*inode{}, nextID: rootID}
	d.make(syscall.S_IFDIR | 0o700).links = 1
	return d
}

// make adds an inode without a name. d.mu is held, or d is new.
func (d *Disk) make(mode uint32) *inode {
	i := &inode{id: d.nextID, mode: mode}
	if i.isDir() {
		i.names, i.syncedNames = map[string]uint64{}, map[string]uint64{}
	} else {
		i.pages, i.dirty = map[int64]*page{}, map[int64]bool{}
	}
	d.inodes[i.id] = i
	d.nextID++
	return i
}

// takesRoom is asked before each operation that needs room on the disk, and refuses those that Refuse was told of. d.mu is held.
func (d *Disk) takesRoom() error {
	d.operations++
	if d.refuseFrom > 0 && d.operations >= d.refuseFrom {
		d.faults.counts.full.Add(1)
		return d.refuseWith
	}
	return nil
}

// changes is asked before each operation that changes something and needs no room. d.mu is held.
func (d *Disk) changes() error {
	if d.readOnly && d.refuseFrom > 0 && d.operations+1 >= d.refuseFrom {
		return d.refuseWith
	}
	return nil
}

// Refuse has the operations that take room fail with an error from the n-th one from now on, until Heal. Those are: to make a file, and to
// write or allocate a page that a file has not had before. With EROFS all changes fail.
func (d *Disk) Refuse(n int64, with syscall.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.operations, d.refuseFrom, d.refuseWith, d.readOnly = 0, n, with, with == syscall.EROFS
}

// Operations is how many operations took room since Refuse was called.
func (d *Disk) Operations() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.operations
}

// makeRoom makes the pages of a range count as used. d.mu is held.
func (d *Disk) makeRoom(i *inode, at, length int64) error {
	grown := int64(0)
	for n := at / pageSize; n*pageSize < at+length; n++ {
		if i.pages[n] == nil {
			grown += pageSize
		}
	}
	if grown == 0 {
		return d.changes()
	}
	if d.quota > 0 && d.used+grown > d.quota {
		d.faults.counts.full.Add(1)
		return syscall.ENOSPC
	}
	return d.takesRoom()
}

// allocate is fallocate: it adds pages, and makes the file as long.
func (d *Disk) allocate(i *inode, at, length int64) error {
	if err := d.makeRoom(i, at, length); err != nil {
		return err
	}
	for n := at / pageSize; n*pageSize < at+length; n++ {
		d.page(i, n)
		i.dirty[n] = true
	}
	i.size = max(i.size, at+length)
	return nil
}

func (d *Disk) write(i *inode, at int64, data []byte) error {
	if err := d.makeRoom(i, at, int64(len(data))); err != nil {
		return err
	}
	i.size = max(i.size, at+int64(len(data)))
	for len(data) > 0 {
		n, offset := at/pageSize, at%pageSize
		p := d.page(i, n)
		written := copy(p.now[offset:], data)
		i.dirty[n] = true
		data, at = data[written:], at+int64(written)
	}
	return nil
}

// page returns a page that can be written to.
func (d *Disk) page(i *inode, n int64) *page {
	p := i.pages[n]
	if p == nil {
		p = &page{}
		i.pages[n] = p
	}
	if p.now == nil {
		p.now = make([]byte, pageSize)
		d.used += pageSize
	}
	return p
}

func (i *inode) read(at int64, buf []byte) int {
	if at >= i.size {
		return 0
	}
	buf = buf[:min(int64(len(buf)), i.size-at)]
	for done := 0; done < len(buf); {
		n, offset := (at+int64(done))/pageSize, (at+int64(done))%pageSize
		rest := buf[done:min(len(buf), done+int(pageSize-offset))]
		if p := i.pages[n]; p != nil && p.now != nil {
			copy(rest, p.now[offset:])
		} else {
			clear(rest)
		}
		done += len(rest)
	}
	return len(buf)
}

func (d *Disk) truncate(i *inode, size int64) {
	if size < i.size {
		for n, p := range i.pages {
			switch {
			case p.now == nil:
			case n*pageSize >= size:
				p.now = nil
				i.dirty[n] = true
				d.used -= pageSize
			case (n+1)*pageSize > size:
				clear(p.now[size-n*pageSize:])
				i.dirty[n] = true
			}
		}
	}
	i.size = size
}

// sync makes a file's or directory's present state durable.
func (i *inode) sync() {
	if i.isDir() {
		i.syncedNames = maps.Clone(i.names)
		return
	}
	i.syncedSize = i.size
	for n := range i.dirty {
		p := i.pages[n]
		p.synced = slices.Clone(p.now)
		if p.now == nil {
			delete(i.pages, n)
		}
	}
	clear(i.dirty)
}

// unlink drops the content of a file that has no name left, now or after a
// power cut. What was open goes on with an inode of zeros: our programs keep no
// deleted file open that they still read.
func (d *Disk) unlink(i *inode) {
	if i.links--; i.links > 0 || i.isDir() {
		return
	}
	for _, p := range i.pages {
		if p.now != nil {
			d.used -= pageSize
		}
	}
}

// PowerCut makes the disk what its last syncs have made durable, and of the rest
// each sector, size and name with probability kept. It says how many unsynced
// sectors were lost. The disk must not be mounted, or Off.
func (d *Disk) PowerCut(kept float64, rng *rand.Rand) (lost int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	keep := func() bool { return kept > 0 && rng.Float64() < kept }
	for _, id := range slices.Sorted(maps.Keys(d.inodes)) {
		i := d.inodes[id]
		if i.isDir() {
			// A directory is one block: its names change together.
			if !maps.Equal(i.names, i.syncedNames) && !keep() {
				lost++
				i.names = maps.Clone(i.syncedNames)
			}
			i.sync()
			continue
		}
		if i.size != i.syncedSize && !keep() {
			i.size = i.syncedSize
		}
		for n := range i.dirty {
			lost += i.pages[n].cut(keep)
		}
		i.drop()
		i.sync()
	}
	d.recount()
	d.off = false
	d.faults.clear()
	return lost
}

func (p *page) cut(keep func() bool) (lost int) {
	after := make([]byte, pageSize)
	copy(after, p.synced)
	for at := 0; at < pageSize; at += sectorSize {
		var now []byte
		if p.now != nil {
			now = p.now[at : at+sectorSize]
		} else {
			now = make([]byte, sectorSize)
		}
		switch {
		case string(now) == string(after[at:at+sectorSize]):
		case keep():
			copy(after[at:], now)
		default:
			lost++
		}
	}
	p.now = after
	return lost
}

// drop takes away what lies behind the end.
func (i *inode) drop() {
	for n, p := range i.pages {
		if n*pageSize >= i.size {
			p.now = nil
			i.dirty[n] = true
		} else if end := i.size - n*pageSize; end < pageSize && p.now != nil {
			clear(p.now[end:])
			i.dirty[n] = true
		}
	}
}

// recount forgets inodes without a name and counts the rest.
func (d *Disk) recount() {
	links := map[uint64]int{rootID: 1}
	for todo := []uint64{rootID}; len(todo) > 0; {
		i := d.inodes[todo[0]]
		todo = todo[1:]
		for _, id := range i.names {
			links[id]++
			if d.inodes[id].isDir() {
				todo = append(todo, id)
			}
		}
	}
	d.used = 0
	for id, i := range d.inodes {
		if i.links = links[id]; i.links == 0 {
			delete(d.inodes, id)
			continue
		}
		for _, p := range i.pages {
			if p.now != nil {
				d.used += pageSize
			}
		}
	}
}

// Used is how many bytes the files take.
func (d *Disk) Used() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.used
}

// SetQuota makes writes that need more than this many bytes fail with ENOSPC; 0
// makes room without end.
func (d *Disk) SetQuota(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.quota = bytes
}

// Off takes the current away: from now on nothing can be changed or synced.
// PowerCut gives it back.
func (d *Disk) Off() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.off = true
}

// ReadFile returns the present content of a file; its path has no leading slash.
func (d *Disk) ReadFile(path string) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := d.inodes[rootID]
	for _, name := range strings.Split(path, "/") {
		id, ok := i.names[name]
		if !ok {
			return nil, &os.PathError{Op: "read", Path: path, Err: os.ErrNotExist}
		}
		i = d.inodes[id]
	}
	buf := make([]byte, i.size)
	i.read(0, buf)
	return buf, nil
}
