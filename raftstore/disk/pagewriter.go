package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"

	"github.com/quorate/quorate/proto"
)

// builder writes a new state file, record after record, as bbolt would have written it: leaves
// and branches from left to right, at last what is above them and the two meta pages. Records
// come in the order of their keys, so each page is written once and never looked at again, and
// what is kept is one open page for each level of the tree. bbolt's own transactions need five
// times the CPU for it.
//
// The file has a list of free pages, which is empty: bbolt opens it without walking its pages.
type builder struct {
	file     *os.File
	pageSize int
	most     int    // bytes of a fragment
	next     uint64 // page to be written
	out      []byte // whole pages that are not written yet
	last     proto.Revision
	totals   totals
	leaf     openLeaf
	branches []openBranch // of the versions bucket, the lowest first
}

// openLeaf is the leaf that is being filled.
type openLeaf struct {
	elements []byte // but for their positions, which are known when there are no more
	data     []byte
	first    []byte // key
}

func (l *openLeaf) count() int { return len(l.elements) / pageElement }
func (l *openLeaf) size() int  { return pageHeader + len(l.elements) + len(l.data) }

func (l *openLeaf) add(flags uint32, key []byte, value ...[]byte) {
	if len(l.elements) == 0 {
		l.first = append(l.first[:0], key...)
	}
	size := 0
	at := len(l.data)
	l.data = append(l.data, key...)
	for _, v := range value {
		l.data = append(l.data, v...)
		size += len(v)
	}
	l.elements = binary.NativeEndian.AppendUint32(l.elements, flags)
	l.elements = binary.NativeEndian.AppendUint32(l.elements, uint32(at))
	l.elements = binary.NativeEndian.AppendUint32(l.elements, uint32(len(key)))
	l.elements = binary.NativeEndian.AppendUint32(l.elements, uint32(size))
}

// openBranch is a branch that is being filled.
type openBranch struct {
	keys  []pageKey
	pages []uint64
	full  bool // there was one before it
}

// pageKey is the first key of a page.
type pageKey struct {
	bytes [fragmentKey]byte
	n     int
}

const (
	// builderBatch is how much is written at once.
	builderBatch = 1 << 20

	pageMeta     = 4
	pageFreelist = 16
	metaVersion  = 2
	// freePage is the page of the list of free ones, and firstPage the first behind it.
	freePage, firstPage = 2, 3
)

func newBuilder(path string) (*builder, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_RDWR, fileMode)
	if err != nil {
		return nil, err
	}
	b := &builder{file: f, pageSize: os.Getpagesize(), next: firstPage}
	b.most = fragmentBytes(b.pageSize)
	b.out = make([]byte, firstPage*b.pageSize, builderBatch+builderBatch/4) // written once more at the end
	return b, nil
}

// add appends a record; revisions must ascend. payload is copied.
func (b *builder) add(r proto.Revision, payload []byte, sum uint32) error {
	if r <= b.last {
		return fmt.Errorf("revision %d after %d: %w", r, b.last, ErrDamaged)
	}
	b.last = r
	b.totals.add(len(payload), sum)
	var seal [sumSize]byte
	binary.BigEndian.PutUint32(seal[:], sum)
	at := 0
	for key, end := range fragments(r, len(payload)+sumSize, b.most) {
		// As bbolt splits leaves: no more than a page.
		if b.leaf.size()+pageElement+len(key)+end-at > b.pageSize {
			if err := b.closeLeaf(); err != nil {
				return err
			}
		}
		n := len(payload)
		b.leaf.add(0, key, payload[min(at, n):min(end, n)], seal[max(0, at-n):max(0, end-n)])
		at = end
	}
	return nil
}

// closeLeaf writes the open leaf of the versions bucket.
func (b *builder) closeLeaf() error {
	first := pageKey{n: len(b.leaf.first)}
	copy(first.bytes[:], b.leaf.first)
	id := b.putLeaf()
	b.child(0, first, id)
	return b.write(builderBatch)
}

// putLeaf lays the open leaf out as a page, with those that it overflows into, and empties it.
func (b *builder) putLeaf() (id uint64) {
	l := &b.leaf
	id = b.page(pageLeaf, l.count(), l.size())
	for at := 0; at < len(l.elements); at += pageElement {
		e := l.elements[at : at+pageElement]
		// From the element on.
		pos := binary.NativeEndian.Uint32(e[4:]) + uint32(len(l.elements)-at)
		binary.NativeEndian.PutUint32(e[4:], pos)
	}
	b.out = append(append(b.out, l.elements...), l.data...)
	b.pad()
	l.elements, l.data = l.elements[:0], l.data[:0]
	return id
}

// page begins a page of so many bytes.
func (b *builder) page(flags uint16, count, size int) (id uint64) {
	id = b.next
	pages := (size + b.pageSize - 1) / b.pageSize
	b.next += uint64(pages)
	b.out = appendPageHeader(b.out, id, flags, count, pages-1)
	return id
}

func appendPageHeader(out []byte, id uint64, flags uint16, count, overflow int) []byte {
	out = binary.NativeEndian.AppendUint64(out, id)
	out = binary.NativeEndian.AppendUint16(out, flags)
	out = binary.NativeEndian.AppendUint16(out, uint16(count))
	return binary.NativeEndian.AppendUint32(out, uint32(overflow))
}

// pad fills the last page up.
func (b *builder) pad() {
	if n := len(b.out) % b.pageSize; n > 0 {
		b.out = append(b.out, make([]byte, b.pageSize-n)...)
	}
}

// fan is how many children a branch has at most.
func (b *builder) fan() int { return (b.pageSize - pageHeader) / (pageElement + fragmentKey) }

// child adds a page to the open branch of a level. One child more than it can have is kept open: no
// branch below the root may have one child alone, for bbolt stops when a page beside which there is
// none has to be merged.
func (b *builder) child(level int, first pageKey, id uint64) {
	if level == len(b.branches) {
		b.branches = append(b.branches, openBranch{})
	}
	if n := b.fan(); len(b.branches[level].keys) > n {
		b.branches[level].full = true
		b.putBranch(level, n)
	}
	at := &b.branches[level] // not before: level+1 may be new
	at.keys, at.pages = append(at.keys, first), append(at.pages, id)
}

// closeBranch writes all that a level has open, as two branches if it is too much for one.
func (b *builder) closeBranch(level int) {
	if n := b.fan(); len(b.branches[level].keys) > n {
		b.branches[level].full = true
		b.putBranch(level, n-1)
	}
	b.putBranch(level, len(b.branches[level].keys))
}

// putBranch lays the first n children of a level's open branch out as a page, and takes them off it.
func (b *builder) putBranch(level, n int) {
	at := &b.branches[level]
	size := 0
	for _, k := range at.keys[:n] {
		size += k.n
	}
	id := b.page(pageBranch, n, pageHeader+n*pageElement+size)
	pos := n * pageElement // of a key, from its element on
	for i, k := range at.keys[:n] {
		b.out = binary.NativeEndian.AppendUint32(b.out, uint32(pos))
		b.out = binary.NativeEndian.AppendUint32(b.out, uint32(k.n))
		b.out = binary.NativeEndian.AppendUint64(b.out, at.pages[i])
		pos += k.n - pageElement
	}
	for _, k := range at.keys[:n] {
		b.out = append(b.out, k.bytes[:k.n]...)
	}
	b.pad()
	first := at.keys[0]
	at.keys = append(at.keys[:0], at.keys[n:]...)
	at.pages = append(at.pages[:0], at.pages[n:]...)
	b.child(level+1, first, id)
}

// write writes what is laid out, if it is that much.
func (b *builder) write(least int) error {
	if len(b.out) < least {
		return nil
	}
	if _, err := b.file.Write(b.out); err != nil {
		return err
	}
	b.out = b.out[:0]
	return nil
}

// versions closes all that is open, and returns the root page of the bucket.
func (b *builder) versions() (root uint64, err error) {
	if b.leaf.count() > 0 || len(b.branches) == 0 {
		if len(b.branches) == 0 {
			return b.putLeaf(), nil // the only one, and it may be empty
		}
		if err := b.closeLeaf(); err != nil {
			return 0, err
		}
	}
	for level := 0; ; level++ {
		if at := &b.branches[level]; level == len(b.branches)-1 && !at.full && len(at.pages) == 1 {
			return at.pages[0], nil
		}
		b.closeBranch(level)
	}
}

// finish writes the state and makes the file durable. It returns the size of
// the file's snapshot stream. The file is closed in any case.
func (b *builder) finish(rec *proto.StateRecord) (int64, error) {
	rec.Versions = b.totals.versions
	header, err := proto.Encode(proto.KindStateRecord, rec)
	if err == nil {
		err = b.finishPages(header)
	}
	if err == nil {
		err = b.file.Sync()
	}
	if err := errors.Join(err, b.file.Close()); err != nil {
		return 0, err
	}
	return streamSize(len(header), b.totals), nil
}

func (b *builder) finishPages(state []byte) error {
	versions, err := b.versions()
	if err != nil {
		return err
	}
	b.leaf.add(0, formatKey, seal(bytes.Clone(formatTwo)))
	b.leaf.add(0, stateKey, seal(append([]byte(nil), state...)))
	b.leaf.add(0, totalsKey, b.totals.encode())
	meta := b.putLeaf()
	// What bbolt has in its root for a bucket: its page, and a sequence, which nobody uses.
	bucket := func(page uint64) []byte {
		return append(binary.NativeEndian.AppendUint64(nil, page), make([]byte, 8)...)
	}
	b.leaf.add(bucketElement, metaBucket, bucket(meta))
	b.leaf.add(bucketElement, versionsBucket, bucket(versions))
	root := b.putLeaf()
	if err := b.write(0); err != nil {
		return err
	}
	_, err = b.file.WriteAt(b.head(root), 0)
	return err
}

// head is the meta pages, one for a transaction and one for the next one, and the list of
// free pages.
func (b *builder) head(root uint64) []byte {
	out := make([]byte, 0, firstPage*b.pageSize)
	for id := range uint64(2) {
		out = appendPageHeader(out, id, pageMeta, 0, 0)
		at := len(out)
		for _, v := range []uint32{metaMagic, metaVersion, uint32(b.pageSize), 0} {
			out = binary.NativeEndian.AppendUint32(out, v)
		}
		// The root bucket's page and sequence, the list's page, the end, and the transaction.
		for _, v := range []uint64{root, 0, freePage, b.next, id} {
			out = binary.NativeEndian.AppendUint64(out, v)
		}
		sum := fnv.New64a()
		_, _ = sum.Write(out[at:])
		out = binary.NativeEndian.AppendUint64(out, sum.Sum64())
		out = append(out, make([]byte, b.pageSize-len(out)%b.pageSize)...)
	}
	out = appendPageHeader(out, freePage, pageFreelist, 0, 0)
	return out[:firstPage*b.pageSize]
}

// abort closes the file, unless finish has; the caller removes it.
func (b *builder) abort() error {
	if err := b.file.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
