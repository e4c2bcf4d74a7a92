package mvcc

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/quorate/quorate/proto"
)

// ErrLongChain is returned by Changes when a key has changed too often to be read
// from its newest version.
var ErrLongChain = errors.New("too many versions")

// Interest says which changes of a table a watcher wants to know. Of its fields
// the most selective one counts: Key, then Field, then Prefix. The zero value is
// every change.
type Interest struct {
	// Key is the only key.
	Key string
	// Field, if it has a name, is a selectable field and its value. Versions without
	// the field have the value "".
	Field Pair
	// Prefix is what keys begin with, up to and including their first slash.
	Prefix string
}

// Canonical returns the interest with the field that counts alone.
func (i Interest) Canonical() Interest {
	switch {
	case i.Key != "":
		return Interest{Key: i.Key}
	case i.Field.Name != "":
		return Interest{Field: i.Field}
	}
	return Interest{Prefix: i.Prefix}
}

// All reports whether every change is wanted.
func (i Interest) All() bool { return i == Interest{} }

// Concerns reports whether a change is wanted: the version's key is, or the field
// has the value now or had it in the version before. It is true when the floor has
// cut the version before off.
func (i Interest) Concerns(v *Version) bool {
	switch {
	case i.Key != "":
		return v.Key == i.Key
	case i.Field.Name == "":
		return strings.HasPrefix(v.Key, i.Prefix)
	}
	if now, _ := v.Fields.Get(i.Field.Name); now == i.Field.Value {
		return true
	}
	if v.Created() {
		return false
	}
	before := v.Prev()
	if before == nil {
		return true
	}
	was, _ := before.Fields.Get(i.Field.Name)
	return was == i.Field.Value
}

// PrefixOf is the prefix that a key's interest may have: what comes before the
// first slash, with it. Empty for a key without one.
func PrefixOf(key string) string {
	return key[:strings.IndexByte(key, '/')+1]
}

// maxChain bounds how many versions of a key are looked at to find the oldest.
const maxChain = 4096

// Changes fills buf with the versions of one key above after, oldest first, all <=
// upTo, and returns how many there were and how far it has read: upTo, if fewer
// than len(buf). It costs what the key has changed since, not what the table has.
// Errors: ErrCompacted; ErrLongChain when there are too many to go through them
// again for each buffer.
//
// upTo must be an applied mark that was read before the call.
func (t *Table) Changes(key string, buf []*Version, after, upTo proto.Revision) (n int, read proto.Revision, err error) {
	if upTo <= after || len(buf) == 0 {
		return 0, after, nil
	}
	var v *Version
	if it, ok := t.shown.Load().keys.Get(&item{key: key}); ok {
		v = it.newest.Load().at(upTo)
	}
	// The chain begins with the newest: a ring keeps the oldest of them.
	total := 0
	for ; v != nil && v.Revision > after; v = v.Prev() {
		if total == maxChain {
			return 0, after, fmt.Errorf("%s has changed more than %d times: %w", key, maxChain, ErrLongChain)
		}
		buf[total%len(buf)] = v
		total++
	}
	if t.forgot(after) {
		return 0, after, ErrCompacted
	}
	n = min(total, len(buf))
	// The ring goes from new to old, and begins where the next one would have come.
	head := total % len(buf)
	slices.Reverse(buf[:min(head, n)])
	slices.Reverse(buf[min(head, n):n])
	if total < len(buf) {
		return n, upTo, nil
	}
	return n, buf[n-1].Revision, nil
}
