package mvcc

import (
	"strings"

	"github.com/quorate/quorate/proto"
)

// Query selects a range of keys at one revision.
type Query struct {
	// Prefix that keys must have; empty for all.
	Prefix string
	// From is the first key, inclusive; empty for the first with the prefix.
	From string
	// At is the revision to read as of.
	At proto.Revision
	// Limit bounds the number of versions; zero means no bound.
	Limit int
	// Match, if set, drops versions. It must be pure and fast.
	Match func(*Version) bool
}

// Page is the answer to a Query.
type Page struct {
	Versions []*Version
	// More is set when the limit cut the range before its last live key; Next is
	// then the key to go on from. Whether a key behind the page matches is not
	// looked for, so that a full page costs no walk to the next match or the end.
	More bool
	Next string
	// Remaining counts the live keys after the page. Only with Limit and
	// without Match; else -1.
	Remaining int64
}

// Range returns live versions in key order as of q.At. Errors: ErrCompacted,
// ErrFuture. It holds no lock, and what it returns does not change.
func (t *Table) Range(q Query) (Page, error) {
	if q.At > t.state.Applied() {
		return Page{}, ErrFuture
	}
	page := Page{Remaining: -1}
	shown := t.shown.Load()
	if q.Limit > 0 {
		page.Versions = make([]*Version, 0, min(q.Limit, shown.keys.Len()))
		if q.Match == nil {
			page.Remaining = 0
		}
	}
	shown.keys.Ascend(&item{key: max(q.From, q.Prefix)}, func(it *item) bool {
		if !strings.HasPrefix(it.key, q.Prefix) {
			return false
		}
		v := it.newest.Load().at(q.At)
		full := q.Limit > 0 && len(page.Versions) == q.Limit
		switch {
		case v == nil || v.Deleted:
			return true
		case full && page.More:
			page.Remaining++ // they are counted one by one
			return true
		case full:
			page.More, page.Next = true, it.key
			if page.Remaining < 0 {
				return false
			}
			n, ok := t.countLive(shown, it.key, q)
			if page.Remaining = n; !ok {
				page.Remaining = 1 // this one
			}
			return !ok
		case q.Match != nil && !q.Match(v):
			return true
		case len(page.Versions) == manyVersions && q.Limit == 0 && q.Match == nil:
			page.Versions = grow(page.Versions, count(shown.keys, it.key, q.Prefix))
		}
		page.Versions = append(page.Versions, v)
		return true
	})
	if t.forgot(q.At) {
		return Page{}, ErrCompacted
	}
	return page, nil
}
