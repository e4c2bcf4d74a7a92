package mvcc

import (
	"fmt"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

// TestSpareParts has one namespace take all the room behind the storage limit that it gets, with keys that are being
// deleted, with others, and with leases, and looks at what is left to it and to another namespace.
func TestSpareParts(t *testing.T) {
	const (
		limit  = 4 << 20
		part   = limit / spareOf
		mark   = proto.FlagTerminating
		own    = part / spareOfNamespace
		object = "objects"
	)
	l := &log{TB: t, s: New()}
	put := func(table, key string, size int, flags uint32) bool {
		t.Helper()
		w := &proto.Write{Table: table, Key: key, Op: proto.Op_OP_PUT, Value: []byte(strings.Repeat("x", size)), Flags: flags}
		full := l.s.NoRoom(w) != nil
		entry, err := proto.Encode(proto.KindWrite, w)
		r := l.entry(entry, err)
		if refused := r.Outcome == proto.Outcome_OUTCOME_NO_SPACE; refused != full {
			t.Fatalf("%s: the question before it says full: %v, and its entry %v", key, full, r.Outcome)
		}
		must.OK(t, l.s.CheckSome())
		return !full
	}
	l.entry(proto.Encode(proto.KindCluster, &proto.Cluster{StorageBytes: limit, Term: 1}))
	sizes := map[string]int{}
	// grow adds to keys for as long as it finds room, and says how much it found.
	grow := func(table, prefix string, keys int, flags uint32) (sum int) {
		t.Helper()
		for step := smallGrowth; step > 0; step /= 8 {
			for i := 0; i < keys; {
				key := fmt.Sprint(prefix, i)
				if !put(table, key, sizes[table+key]+step, flags) {
					i++
					continue
				}
				sizes[table+key] += step
				sum += step
			}
		}
		return sum
	}
	const dying = 100
	for _, ns := range []string{"greedy/", "other/"} {
		for i := range dying {
			put(object, fmt.Sprint(ns, "dying", i), 2000, 0)
			sizes[object+fmt.Sprint(ns, "dying", i)] = 2000
		}
		put(proto.TableLeases, ns+"lease0", 0, 0)
		put(object, ns+"late", 0, 0)
	}
	put(object, "other/marked0", 0, mark)
	for i := range 15 { // and what is left then, in smaller pieces
		key := fmt.Sprint("greedy/large", i)
		put(object, key, 1<<18, 0)
		sizes[object+key] = 1 << 18
	}
	for i, size := 0, 1<<17; size > 0; size /= 2 {
		for put(object, fmt.Sprint("greedy/piece", i), size, 0) {
			i++
		}
	}
	if used := l.s.Used(); used > limit || used < limit-2*keyBytes {
		t.Fatalf("%d bytes are used of %d", used, limit)
	}
	// The mark of a deletion fits. With it these keys take more than their namespace's part of the second spare part.
	for i := range dying {
		key := fmt.Sprint("greedy/dying", i)
		if sizes[object+key] += 100; !put(object, key, sizes[object+key], mark) {
			t.Errorf("%s: no room for the mark", key)
		}
	}
	if got := grow(object, "greedy/dying", dying, mark); got > part {
		t.Errorf("%d bytes more for what is being deleted in one namespace, %d is the most", got, part)
	}
	if got := grow(object, "greedy/large", 15, 0); got > smallGrowth {
		t.Errorf("%d bytes more for others", got)
	}
	if used := l.s.Used(); used > limit+part || used < limit+part-keyBytes {
		t.Errorf("%d bytes are used of %d and %d", used, limit, part)
	}
	if got := grow(proto.TableLeases, "greedy/lease", 1, 0); got > 0 {
		t.Errorf("%d bytes for a lease of a namespace that has more than its part", got)
	}
	if put(object, "other/late", 1, 0) {
		t.Error("the first spare part has room")
	}
	for _, x := range []struct {
		table, prefix string
		flags         uint32
	}{{proto.TableLeases, "other/lease", 0}, {object, "other/marked", mark}} {
		if !put(x.table, x.prefix+"0", 1000, x.flags) {
			t.Errorf("%s: no room", x.prefix)
		}
		sizes[x.table+x.prefix+"0"] = 1000
	}
	if got := grow(proto.TableLeases, "other/lease", 1, 0); got < own-4*keyBytes-2000 || got > own {
		t.Errorf("%d bytes for leases of another namespace, want almost %d", got, own)
	}
	for i := range dying {
		key := fmt.Sprint("other/dying", i)
		if !put(object, key, 2100, mark) {
			t.Errorf("%s: no room for the mark", key)
		}
	}
}
