package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"slices"
)

// checkPages walks the page tree of a bbolt file before bbolt does. bbolt
// trusts its pages: opening a file without a stored freelist walks them in a
// goroutine that panics, which would end the process without a clear error.
// What the pages hold is not looked at; that is what records' checksums are for.
//
// A file without a valid meta page is left to bbolt, which refuses it.
func checkPages(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		c := pageChecker{r: f, size: info.Size()}
		err = c.check()
	}
	return errors.Join(err, f.Close())
}

const (
	pageHeader    = 16
	pageElement   = 16
	pageBranch    = 1
	pageLeaf      = 2
	bucketElement = 1
	metaSize      = 64
	metaMagic     = 0xED0CDAED
	maxPageSize   = 64 << 10
)

type pageChecker struct {
	r    io.ReaderAt
	size int64

	pageSize int64
	pages    uint64 // behind the last page
	seen     []bool
	free     [][]byte // page buffers
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), ErrDamaged)
}

func (c *pageChecker) check() error {
	root, ok, err := c.meta()
	if err != nil || !ok {
		return err
	}
	if c.pages < 2 || int64(c.pages) > c.size/c.pageSize {
		return damaged("%d pages in a file of %d bytes", c.pages, c.size)
	}
	c.seen = make([]bool, c.pages)
	c.seen[0], c.seen[1] = true, true
	return c.tree(root)
}

// meta returns the root page of the newer valid meta page.
func (c *pageChecker) meta() (root uint64, ok bool, err error) {
	var newest uint64
	offsets := []int64{0}
	// The second meta page is one page further, and the page size may only be
	// known from there.
	for size := int64(1 << 10); size <= maxPageSize; size *= 2 {
		offsets = append(offsets, size)
	}
	for _, at := range offsets {
		m, holds, err := readMetaPage(c.r, at)
		if err != nil {
			return 0, false, err
		}
		if !holds || at != 0 && at != m.pageSize {
			continue
		}
		if !ok || m.txid > newest {
			newest, ok = m.txid, true
			c.pageSize, c.pages, root = m.pageSize, m.pages, m.root
		}
	}
	return root, ok, nil
}

// metaPage is what a meta page says.
type metaPage struct {
	pageSize          int64
	root, pages, txid uint64
}

// readMetaPage reads a meta page. holds is false if there is none that is as it was written.
func readMetaPage(r io.ReaderAt, at int64) (m metaPage, holds bool, err error) {
	var b [pageHeader + metaSize]byte
	switch _, err := r.ReadAt(b[:], at); {
	case errors.Is(err, io.EOF):
		return m, false, nil
	case err != nil:
		return m, false, err
	}
	f := b[pageHeader:]
	sum := fnv.New64a()
	_, _ = sum.Write(f[:56])
	m = metaPage{
		pageSize: int64(binary.NativeEndian.Uint32(f[8:])), root: binary.NativeEndian.Uint64(f[16:]),
		pages: binary.NativeEndian.Uint64(f[40:]), txid: binary.NativeEndian.Uint64(f[48:]),
	}
	return m, binary.NativeEndian.Uint32(f) == metaMagic && binary.NativeEndian.Uint64(f[56:]) == sum.Sum64() &&
		m.pageSize >= 1<<9 && m.pageSize <= maxPageSize, nil
}

// checkMetaPages returns ErrDamaged unless both meta pages of a bbolt file hold. bbolt opens a file by the
// other one, without the last transaction.
//
// A crash leaves both: bbolt makes a file with both, and writes one of them in place for a transaction, in
// 80 bytes at the beginning of a page, which lie in one sector. So one that does not hold was not torn. Of an
// empty file bbolt makes a new one.
func checkMetaPages(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	at := int64(0)
	for page := 0; page < 2 && err == nil && info.Size() > 0; page++ {
		var m metaPage
		var holds bool
		if m, holds, err = readMetaPage(f, at); err == nil && !holds {
			err = damaged("meta page %d does not hold, and may have had the newest vote", page)
		}
		at = m.pageSize
	}
	return errors.Join(err, f.Close())
}

// span is the range of keys that a page may have: from min, below max if any.
type span struct{ min, max []byte }

func (c *pageChecker) tree(root uint64) error { return c.page(root, span{}) }

// page checks a page and everything below it.
func (c *pageChecker) page(id uint64, keys span) error {
	if id >= c.pages || c.seen[id] {
		return damaged("page %d is referred to twice or does not exist", id)
	}
	b, err := c.load(id)
	if err != nil {
		return err
	}
	defer func() { c.free = append(c.free, b[:0]) }()
	if got := binary.NativeEndian.Uint64(b); got != id {
		return damaged("page %d calls itself %d", id, got)
	}
	overflow := uint64(binary.NativeEndian.Uint32(b[12:]))
	if overflow >= c.pages-id {
		return damaged("page %d overflows the file", id)
	}
	for i := id; i <= id+overflow; i++ {
		if c.seen[i] {
			return damaged("page %d is referred to twice", i)
		}
		c.seen[i] = true
	}
	if overflow > 0 {
		if b, err = c.extend(b, id, overflow); err != nil {
			return err
		}
	}
	return c.elements(id, b, keys)
}

func (c *pageChecker) load(id uint64) ([]byte, error) {
	var b []byte
	if n := len(c.free); n > 0 {
		b, c.free = c.free[n-1], c.free[:n-1]
	}
	if int64(cap(b)) < c.pageSize {
		b = make([]byte, c.pageSize)
	}
	b = b[:c.pageSize]
	if _, err := c.r.ReadAt(b, int64(id)*c.pageSize); err != nil {
		return nil, fmt.Errorf("page %d: %w", id, err)
	}
	return b, nil
}

// extend reads the pages that follow a first one, behind it if b has the room: the next page is read into the same memory.
func (c *pageChecker) extend(b []byte, id, overflow uint64) ([]byte, error) {
	n := len(b)
	more := int(int64(overflow) * c.pageSize)
	whole := slices.Grow(b, more)[:n+more]
	if _, err := c.r.ReadAt(whole[n:], int64(id+1)*c.pageSize); err != nil {
		return nil, fmt.Errorf("page %d: %w", id, err)
	}
	return whole, nil
}

func (c *pageChecker) elements(id uint64, b []byte, keys span) error {
	flags, count := binary.NativeEndian.Uint16(b[8:]), int(binary.NativeEndian.Uint16(b[10:]))
	if flags != pageBranch && flags != pageLeaf || pageHeader+count*pageElement > len(b) {
		return damaged("page %d has flags %x and %d elements", id, flags, count)
	}
	if flags == pageBranch && count == 0 {
		return damaged("branch page %d is empty", id)
	}
	var last []byte
	for i := range count {
		e, err := parseElement(b, i, flags == pageLeaf)
		if err != nil {
			return fmt.Errorf("page %d: %w", id, err)
		}
		if i > 0 && bytes.Compare(last, e.key) >= 0 || bytes.Compare(e.key, keys.min) < 0 ||
			keys.max != nil && bytes.Compare(e.key, keys.max) >= 0 {
			return damaged("page %d: key %x is out of order", id, e.key)
		}
		last = e.key
		switch {
		case flags == pageBranch:
			below := span{min: e.key, max: keys.max}
			if i+1 < count {
				next, err := parseElement(b, i+1, false)
				if err != nil {
					return fmt.Errorf("page %d: %w", id, err)
				}
				below.max = next.key
			}
			if err := c.page(e.page, below); err != nil {
				return err
			}
		case e.bucket:
			if err := c.bucket(id, e.value); err != nil {
				return err
			}
		}
	}
	return nil
}

// bucket checks the bucket in a leaf's value: a page of its own, or inline.
func (c *pageChecker) bucket(id uint64, value []byte) error {
	if len(value) < 16 {
		return damaged("page %d: bucket of %d bytes", id, len(value))
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		return c.tree(root)
	}
	inline := value[16:]
	if len(inline) < pageHeader || binary.NativeEndian.Uint16(inline[8:]) != pageLeaf {
		return damaged("page %d: inline bucket", id)
	}
	return c.elements(id, inline, span{})
}

type element struct {
	key, value []byte
	bucket     bool
	page       uint64
}

func parseElement(b []byte, i int, leaf bool) (element, error) {
	at := pageHeader + i*pageElement
	e := b[at : at+pageElement]
	var pos, keys, values uint64
	var out element
	if leaf {
		out.bucket = binary.NativeEndian.Uint32(e)&bucketElement != 0
		pos, keys = uint64(binary.NativeEndian.Uint32(e[4:])), uint64(binary.NativeEndian.Uint32(e[8:]))
		values = uint64(binary.NativeEndian.Uint32(e[12:]))
	} else {
		pos, keys = uint64(binary.NativeEndian.Uint32(e)), uint64(binary.NativeEndian.Uint32(e[4:]))
		out.page = binary.NativeEndian.Uint64(e[8:])
	}
	from := uint64(at) + pos
	if from+keys+values > uint64(len(b)) {
		return element{}, damaged("element %d is outside", i)
	}
	out.key, out.value = b[from:from+keys], b[from+keys:from+keys+values]
	return out, nil
}
