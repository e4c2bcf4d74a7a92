package disk

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"go.etcd.io/bbolt"
)

// builtFile writes records of some sizes to a new file, at revisions with holes.
func builtFile(t testing.TB, sizes []int) (path string, values map[proto.Revision][]byte) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "built")
	b, err := newBuilder(path)
	must.OK(t, err)
	values = map[proto.Revision][]byte{}
	rng := rand.New(rand.NewPCG(uint64(len(sizes)), 1))
	var r proto.Revision
	for _, n := range sizes {
		r += 1 + proto.Revision(rng.IntN(3))
		payload := bytes.Repeat([]byte{byte(r)}, n)
		values[r] = seal(bytes.Clone(payload))
		must.OK(t, b.add(r, payload, checksum(payload)))
	}
	size, err := b.finish(&proto.StateRecord{Applied: uint64(r) + 7, AppliedTerm: 3})
	must.OK(t, err)
	if size <= 0 {
		t.Fatal(size)
	}
	must.OK(t, b.abort()) // does nothing now
	return path, values
}

// checkFile holds a file against what is to be in it, by bbolt's own check and by ours.
func checkFile(t testing.TB, path string, values map[proto.Revision][]byte) {
	t.Helper()
	must.OK(t, checkPages(path))
	f, rec, tot, err := openFile(path)
	must.OK(t, err)
	var want totals
	for _, v := range values {
		payload, sum, err := open(v)
		must.OK(t, err)
		want.add(len(payload), sum)
	}
	if rec.Versions != uint64(len(values)) || tot != want {
		t.Fatalf("%d versions, totals %+v, want %+v", rec.Versions, tot, want)
	}
	must.OK(t, f.bolt.View(func(tx *bbolt.Tx) error {
		must.OK(t, checkTree(tx))
		for from := readRecords(tx); ; {
			r, payload, _, err := from.next()
			if payload == nil {
				return err
			}
			if want := values[r]; !bytes.Equal(payload, want[:max(0, len(want)-sumSize)]) {
				return fmt.Errorf("revision %d has %d bytes, want %d", r, len(payload), len(want)-sumSize)
			}
		}
	}))
	must.OK(t, f.release())
}

func sizes(n int, size func(i int) int) (out []int) {
	for i := range n {
		out = append(out, size(i))
	}
	return out
}

// TestBuilder: what is written page after page is a bbolt file for bbolt too: it finds nothing wrong,
// reads what was written, and goes on writing.
func TestBuilder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	fragment := fragmentBytes(os.Getpagesize())
	for name, sizes := range map[string][]int{
		"nothing":             nil,
		"one":                 {100},
		"one, and long":       {100_000},
		"two on a page":       sizes(9, func(int) int { return 1700 }),
		"longer than a page":  sizes(9, func(int) int { return 5000 }),
		"exactly a fragment":  sizes(9, func(int) int { return fragment - sumSize }),
		"a byte more":         sizes(9, func(i int) int { return fragment - sumSize + i%2 }),
		"a part of a sum":     sizes(9, func(i int) int { return 2*fragment - i%5 }),
		"exactly a page":      sizes(9, func(int) int { return 4*fragment - sumSize }),
		"a full branch":       sizes(4*156, func(int) int { return fragment - sumSize }),
		"one more":            sizes(4*156+1, func(int) int { return fragment - sumSize }),
		"a branch with one":   sizes(4*156+2, func(int) int { return fragment - sumSize }),
		"small ones":          sizes(3000, func(int) int { return 10 }),
		"as they come":        sizes(2000, func(int) int { return 10 + rng.IntN(3000) }),
		"long ones, too":      sizes(300, func(i int) int { return 1 + i%7*20_000 }),
		"more than one write": sizes(20, func(int) int { return 300_000 }),
	} {
		t.Run(name, func(t *testing.T) {
			path, values := builtFile(t, sizes)
			checkFile(t, path, values)
			// bbolt opens it without a look at all pages, and writes on.
			f, _, tot, err := openTrusted(path)
			must.OK(t, err)
			order := make([]proto.Revision, 0, len(values))
			for r := range values {
				order = append(order, r)
			}
			slices.Sort(order)
			last := proto.Revision(0)
			if len(order) > 0 {
				last = order[len(order)-1]
			}
			must.OK(t, f.bolt.Update(func(tx *bbolt.Tx) error {
				versions := tx.Bucket(versionsBucket)
				for i, r := range order {
					if i%3 > 0 {
						continue
					}
					if err := drop(versions, r, &tot); err != nil {
						return err
					}
					delete(values, r)
				}
				for i := range 50 {
					r := last + 1 + proto.Revision(i)
					values[r] = seal(bytes.Repeat([]byte{1}, 1000))
					if err := put(versions, r, values[r], &tot); err != nil {
						return err
					}
				}
				meta := tx.Bucket(metaBucket)
				must.OK(t, meta.Put(totalsKey, tot.encode()))
				return putState(meta, &proto.StateRecord{Applied: uint64(last) + 50, Versions: tot.versions})
			}))
			must.OK(t, f.release())
			checkFile(t, path, values)
		})
	}
}

// TestBuilderEdges: no branch has one child alone, and records at the right edge can be deleted one by one, as a
// flush deletes them. bbolt's check does not mind a lone child, but its merging of pages panics there.
func TestBuilderEdges(t *testing.T) {
	fan := (&builder{pageSize: os.Getpagesize()}).fan()
	for _, leaves := range []int{
		1, 2, 3, fan - 1, fan, fan + 1, fan + 2, 2 * fan, 2*fan + 1, 2*fan + 2, fan * fan, fan*fan + 1, fan*fan + 2, fan*fan + fan + 1,
	} {
		if leaves >= fan*fan && testing.Short() {
			continue
		}
		// Four records to a leaf.
		path, values := builtFile(t, sizes(4*leaves, func(int) int { return fragmentBytes(os.Getpagesize()) - sumSize }))
		f, _, tot, err := openTrusted(path)
		must.OK(t, err)
		if err := f.bolt.View(noLoneChildren); err != nil {
			t.Errorf("%d leaves: %v", leaves, err)
		}
		order := slices.Sorted(maps.Keys(values))
		for deleted := range min(14, len(order)) {
			r := order[len(order)-1-deleted]
			err := guard(func() error {
				return f.bolt.Update(func(tx *bbolt.Tx) error {
					versions := tx.Bucket(versionsBucket)
					versions.FillPercent = 1
					return drop(versions, r, &tot)
				})
			})
			if err != nil {
				t.Fatalf("%d leaves, record %d from the end: %v", leaves, deleted, err)
			}
		}
		must.OK(t, f.release())
		must.OK(t, os.Remove(path))
	}
}

// noLoneChildren refuses branches of one child in a file that was built just now.
func noLoneChildren(tx *bbolt.Tx) error {
	for id := firstPage; int64(id)*int64(tx.DB().Info().PageSize) < tx.Size(); {
		p, err := tx.Page(id)
		if err != nil {
			return err
		}
		if p.Type == "branch" && p.Count < 2 {
			return fmt.Errorf("page %d is a branch of %d", id, p.Count)
		}
		id += 1 + p.OverflowCount
	}
	return nil
}

// TestBuilderWantsOrder: a revision that does not ascend would be a tree that bbolt cannot search.
func TestBuilderWantsOrder(t *testing.T) {
	b, err := newBuilder(filepath.Join(t.TempDir(), "built"))
	must.OK(t, err)
	must.OK(t, b.add(5, []byte("x"), checksum([]byte("x"))))
	for _, r := range []proto.Revision{5, 4, 0} {
		if err := b.add(r, []byte("x"), checksum([]byte("x"))); !refused(err) {
			t.Errorf("revision %d after 5: %v", r, err)
		}
	}
	must.OK(t, b.abort())
}

// FuzzBuilder: whatever the records are, it is a file that bbolt takes.
func FuzzBuilder(f *testing.F) {
	f.Add([]byte{1, 2, 3}, uint16(1700))
	f.Add(bytes.Repeat([]byte{0xff, 3}, 100), uint16(20))
	f.Fuzz(func(t *testing.T, b []byte, scale uint16) {
		path, values := builtFile(t, sizes(min(len(b), 500), func(i int) int { return 1 + int(b[i])*int(scale)/256 }))
		checkFile(t, path, values)
	})
}
