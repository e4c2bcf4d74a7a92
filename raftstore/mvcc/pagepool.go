package mvcc

import (
	"slices"
	"sync"
)

// manyVersions is the length from which on a page asks the tree how long it will be:
// to ask costs as much as a few objects, and to grow step by step leaves twice behind
// of what is needed.
const manyVersions = 128

// pagePool has slices of pages that nobody reads any more. A list of 10,000 objects
// makes hardly any other garbage than this one, of 80 KB.
var pagePool sync.Pool

// grow returns a slice with the versions of page and room for n more.
func grow(page []*Version, n int) []*Version {
	if b, ok := pagePool.Get().(*[]*Version); ok && cap(*b) >= len(page)+n {
		return append((*b)[:0], page...)
	}
	return slices.Grow(page, max(0, n))
}

// Release gives the slice of versions back, for another page. It must not be used
// after this; the versions may. A page that nobody releases is collected as usual.
func (p *Page) Release() {
	if b := p.Versions; cap(b) > manyVersions {
		clear(b)
		pagePool.Put(&b)
	}
	p.Versions = nil
}
