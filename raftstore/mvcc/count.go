package mvcc

import (
	"sort"
	"strings"
)

// countLive counts the keys of the query's range from a key on that are live at q.At,
// without looking at each: from the places of the range's ends in the trees of keys and of
// dead ones, which says how many were live as of s.at, and from what has begun or ceased
// to be live in between. For q.At after s.at that is nothing: what had would have been
// published, and s was taken behind q.At's mark.
//
// ok is false when more has changed in between than there are keys to count: then a walk
// of those is cheaper. n means nothing if the floor has passed q.At.
func (t *Table) countLive(s *shown, from string, q Query) (n int64, ok bool) {
	keys := count(s.keys, from, q.Prefix)
	n = int64(keys - count(s.dead, from, q.Prefix))
	t.hist.turns(q.At, s.at, func(v *Version) bool {
		switch keys--; {
		case v.Key < from || !strings.HasPrefix(v.Key, q.Prefix):
		case v.Deleted:
			n++
		default:
			n--
		}
		return keys >= 0
	})
	return n, keys >= 0
}

// count returns how many keys with a prefix a tree has from a key on, which has the prefix.
func count(in *tree, from, prefix string) int {
	end := in.Len()
	if prefix != "" {
		end = rank(in, func(key string) bool { return key >= prefix && !strings.HasPrefix(key, prefix) })
	}
	return end - rank(in, func(key string) bool { return key >= from })
}

// rank returns how many keys a tree has before the first one of which a condition is true. It
// must be true of all that follow.
func rank(in *tree, from func(key string) bool) int {
	return sort.Search(in.Len(), func(i int) bool {
		it, ok := in.GetAt(i)
		return !ok || from(it.key)
	})
}
