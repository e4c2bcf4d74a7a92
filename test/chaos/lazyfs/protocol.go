//go:build linux

package lazyfs

import (
	"errors"
	"maps"
	"slices"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// valid is how long the kernel may believe what it was told: nobody but it
// changes anything.
const valid = time.Hour

// protocol answers the kernel's questions about a disk. Handles are not needed:
// the questions name the inode.
type protocol struct {
	fuse.RawFileSystem
	d *Disk
}

// at runs f with the disk locked and the inode found. It works without current:
// a process that is about to be killed may still look at what it has mapped.
func (p *protocol) at(id uint64, f func(*inode) error) fuse.Status {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	i := p.d.inodes[id]
	if i == nil {
		return fuse.ENOENT
	}
	return statusOf(f(i))
}

// change is at for what changes something.
func (p *protocol) change(id uint64, f func(*inode) error) fuse.Status {
	return p.at(id, func(i *inode) error {
		if p.d.off {
			return syscall.EIO
		}
		return f(i)
	})
}

func statusOf(err error) fuse.Status {
	var no syscall.Errno
	if errors.As(err, &no) {
		return fuse.Status(no)
	}
	return fuse.ToStatus(err)
}

func attributes(i *inode, out *fuse.Attr) {
	out.Ino, out.Mode, out.Size, out.Nlink, out.Blksize = i.id, i.mode, uint64(i.size), uint32(max(i.links, 0)), pageSize
	out.Blocks = uint64(len(i.pages)) * (pageSize / sectorSize)
}

func entry(i *inode, out *fuse.EntryOut) {
	out.NodeId, out.Generation = i.id, 1
	out.SetEntryTimeout(valid)
	out.SetAttrTimeout(valid)
	attributes(i, &out.Attr)
}

func (p *protocol) Lookup(_ <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	return p.at(h.NodeId, func(dir *inode) error {
		id, ok := dir.names[name]
		if !ok {
			return syscall.ENOENT
		}
		entry(p.d.inodes[id], out)
		return nil
	})
}

func (p *protocol) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	return p.at(in.NodeId, func(i *inode) error {
		out.SetTimeout(valid)
		attributes(i, &out.Attr)
		return nil
	})
}

func (p *protocol) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	return p.change(in.NodeId, func(i *inode) error {
		if err := p.d.changes(); err != nil {
			return err
		}
		if in.Valid&fuse.FATTR_SIZE != 0 {
			p.d.truncate(i, int64(in.Size))
		}
		if in.Valid&fuse.FATTR_MODE != 0 {
			i.mode = i.mode&syscall.S_IFMT | in.Mode&^syscall.S_IFMT
		}
		out.SetTimeout(valid)
		attributes(i, &out.Attr)
		return nil
	})
}

// add makes a new inode under a name.
func (p *protocol) add(parent uint64, name string, mode uint32, out *fuse.EntryOut) fuse.Status {
	return p.change(parent, func(dir *inode) error {
		if _, ok := dir.names[name]; ok {
			return syscall.EEXIST
		}
		if err := p.d.takesRoom(); err != nil {
			return err
		}
		i := p.d.make(mode)
		i.links = 1
		dir.names[name] = i.id
		entry(i, out)
		return nil
	})
}

func (p *protocol) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	return p.add(in.NodeId, name, syscall.S_IFDIR|in.Mode&0o7777, out)
}

func (p *protocol) Mknod(_ <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	if in.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return fuse.EPERM
	}
	return p.add(in.NodeId, name, in.Mode, out)
}

func (p *protocol) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	out.OpenFlags = fuse.FOPEN_KEEP_CACHE
	return p.add(in.NodeId, name, syscall.S_IFREG|in.Mode&0o7777, &out.EntryOut)
}

func (p *protocol) Link(_ <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	return p.change(in.NodeId, func(dir *inode) error {
		i := p.d.inodes[in.Oldnodeid]
		if i == nil {
			return syscall.ENOENT
		}
		if _, ok := dir.names[name]; ok {
			return syscall.EEXIST
		}
		if err := p.d.takesRoom(); err != nil {
			return err
		}
		i.links++
		dir.names[name] = i.id
		entry(i, out)
		return nil
	})
}

func (p *protocol) Unlink(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	return p.change(h.NodeId, func(dir *inode) error { return p.remove(dir, name) })
}

func (p *protocol) Rmdir(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	return p.change(h.NodeId, func(dir *inode) error { return p.remove(dir, name) })
}

func (p *protocol) remove(dir *inode, name string) error {
	id, ok := dir.names[name]
	if !ok {
		return syscall.ENOENT
	}
	if err := p.d.changes(); err != nil {
		return err
	}
	i := p.d.inodes[id]
	if len(i.names) > 0 {
		return syscall.ENOTEMPTY
	}
	delete(dir.names, name)
	p.d.unlink(i)
	return nil
}

func (p *protocol) Rename(_ <-chan struct{}, in *fuse.RenameIn, from, to string) fuse.Status {
	if in.Flags&^unix.RENAME_EXCHANGE != 0 {
		return fuse.EINVAL
	}
	return p.change(in.NodeId, func(dir *inode) error {
		target := p.d.inodes[in.Newdir]
		id, ok := dir.names[from]
		if !ok || target == nil {
			return syscall.ENOENT
		}
		if err := p.d.changes(); err != nil {
			return err
		}
		if in.Flags&unix.RENAME_EXCHANGE != 0 {
			other, ok := target.names[to]
			if !ok {
				return syscall.ENOENT
			}
			dir.names[from], target.names[to] = other, id
			return nil
		}
		if old, ok := target.names[to]; ok && old != id {
			if err := p.remove(target, to); err != nil {
				return err
			}
		}
		delete(dir.names, from)
		target.names[to] = id
		return nil
	})
}

func (p *protocol) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	// The cache is kept: mappings go on, and nobody else writes.
	out.OpenFlags = fuse.FOPEN_KEEP_CACHE
	return p.at(in.NodeId, func(*inode) error { return nil })
}

func (p *protocol) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	n := 0
	s := p.at(in.NodeId, func(i *inode) error {
		n = i.read(int64(in.Offset), buf)
		return nil
	})
	return fuse.ReadResultData(buf[:n]), s
}

func (p *protocol) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	p.d.faults.counts.writes.Add(1)
	s := p.change(in.NodeId, func(i *inode) error { return p.d.write(i, int64(in.Offset), data) })
	if !s.Ok() {
		return 0, s
	}
	return uint32(len(data)), s
}

func (p *protocol) Fallocate(_ <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	if in.Mode != 0 {
		return fuse.Status(syscall.EOPNOTSUPP)
	}
	return p.change(in.NodeId, func(i *inode) error { return p.d.allocate(i, int64(in.Offset), int64(in.Length)) })
}

func (p *protocol) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status { return fuse.OK }

func (p *protocol) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return statusOf(p.d.syncInode(in.NodeId))
}

func (p *protocol) FsyncDir(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return statusOf(p.d.syncInode(in.NodeId))
}

func (p *protocol) OpenDir(_ <-chan struct{}, in *fuse.OpenIn, _ *fuse.OpenOut) fuse.Status {
	return p.at(in.NodeId, func(*inode) error { return nil })
}

func (p *protocol) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return p.list(in, func(e fuse.DirEntry, _ *inode) bool { return out.AddDirEntry(e) })
}

func (p *protocol) ReadDirPlus(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return p.list(in, func(e fuse.DirEntry, i *inode) bool {
		o := out.AddDirLookupEntry(e)
		if o != nil {
			entry(i, o)
		}
		return o != nil
	})
}

// list gives the names in their order. A change between two calls may show a
// name twice or not: directories here are small enough for one.
func (p *protocol) list(in *fuse.ReadIn, add func(fuse.DirEntry, *inode) bool) fuse.Status {
	return p.at(in.NodeId, func(dir *inode) error {
		for n, name := range slices.Sorted(maps.Keys(dir.names)) {
			if uint64(n) < in.Offset {
				continue
			}
			i := p.d.inodes[dir.names[name]]
			if !add(fuse.DirEntry{Name: name, Ino: i.id, Mode: i.mode, Off: uint64(n) + 1}, i) {
				break
			}
		}
		return nil
	})
}

func (p *protocol) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	const unlimited = 1 << 40
	total := int64(unlimited)
	if p.d.quota > 0 {
		total = p.d.quota
	}
	out.Bsize, out.Frsize, out.NameLen = pageSize, pageSize, 255
	out.Blocks = uint64(total) / pageSize
	out.Bfree = uint64(max(total-p.d.used, 0)) / pageSize
	out.Bavail = out.Bfree
	return fuse.OK
}
