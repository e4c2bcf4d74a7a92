package mvcc

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	pb "google.golang.org/protobuf/proto"
)

// TestChanges compares the chain of one key with a note of what was written, for
// every position and buffers of several sizes, before and after a compaction.
func TestChanges(t *testing.T) {
	s := New()
	index := proto.RaftIndex(0)
	apply := func(kind proto.Kind, msg pb.Message) Result {
		t.Helper()
		index++
		entry, err := proto.Encode(kind, msg)
		must.OK(t, err)
		r, err := s.Apply(index, 1, entry)
		must.OK(t, err)
		s.Publish()
		return r
	}
	random := rand.New(rand.NewPCG(1, 2))
	var wrote []proto.Revision
	for range 300 {
		w := &proto.Write{Table: "t", Key: fmt.Sprint("k", random.IntN(3)), Op: proto.Op_OP_PUT, Value: []byte("{}")}
		if random.IntN(5) == 0 {
			w.Op, w.Value = proto.Op_OP_DELETE, nil
		}
		if r := apply(proto.KindWrite, w); r.Version != nil && w.Key == "k0" {
			wrote = append(wrote, r.Revision)
		}
	}
	if len(wrote) < 60 {
		t.Fatalf("only %d writes took effect", len(wrote))
	}
	table := s.Table("t")
	check := func(after, upTo proto.Revision, size int) {
		t.Helper()
		var got, want []proto.Revision
		for _, rev := range wrote {
			if rev > after && rev <= upTo {
				want = append(want, rev)
			}
		}
		at := after
		for buf := make([]*Version, size); ; {
			n, read, err := table.Changes("k0", buf, at, upTo)
			if err != nil {
				t.Fatalf("after %d: %v", at, err)
			}
			for _, v := range buf[:n] {
				if v.Key != "k0" {
					t.Fatalf("a version of %s", v.Key)
				}
				got = append(got, v.Revision)
			}
			if n < size && read != max(upTo, at) || n == size && read != buf[n-1].Revision {
				t.Fatalf("after %d, %d of %d: read up to %d of %d", at, n, size, read, upTo)
			}
			if at = read; n < size {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("(%d, %d] by %d: %v, want %v", after, upTo, size, got, want)
		}
	}
	last := s.Applied()
	for after := range last + 2 {
		for _, size := range []int{1, 2, 3, 7, 128} {
			check(after, last, size)
			check(after, last/2, size)
		}
	}
	floor := last / 3
	apply(proto.KindCompact, &proto.Compact{Floor: uint64(floor)})
	for after := range last {
		if after >= floor {
			check(after, last, 4)
		} else if _, _, err := table.Changes("k0", make([]*Version, 4), after, last); !errors.Is(err, ErrCompacted) {
			t.Fatalf("after %d, below the floor %d: %v", after, floor, err)
		}
	}
	if n, read, err := table.Changes("k0", make([]*Version, 4), floor-1, floor-1); n != 0 || read != floor-1 || err != nil {
		t.Errorf("between a revision and itself: %d, %d, %v", n, read, err)
	}
	if n, read, err := table.Changes("never", make([]*Version, 4), floor, last); n != 0 || read != last || err != nil {
		t.Errorf("a key that never was: %d, %d, %v", n, read, err)
	}
	last = s.Applied()
	put := func() {
		apply(proto.KindWrite, &proto.Write{Table: "t", Key: "k0", Op: proto.Op_OP_PUT, Value: []byte("{}")})
	}
	for range maxChain {
		put()
	}
	if n, read, err := table.Changes("k0", make([]*Version, 4), last, s.Applied()); n != 4 || read != last+4 || err != nil {
		t.Errorf("%d versions: %d up to %d, %v", maxChain, n, read, err)
	}
	put()
	if _, _, err := table.Changes("k0", make([]*Version, 4), last, s.Applied()); !errors.Is(err, ErrLongChain) {
		t.Errorf("%d versions: %v", maxChain+1, err)
	}
}

func TestConcerns(t *testing.T) {
	on := func(key, node string, prev *Version) *Version {
		v := &Version{Key: key, Revision: 2, CreateRevision: 2, Fields: AttributesOf(Pair{"spec.nodeName", node})}
		if prev != nil {
			v.CreateRevision = 1
			v.prev.Store(prev)
		}
		return v
	}
	field := func(value string) Interest { return Interest{Field: Pair{"spec.nodeName", value}} }
	cut := on("a/x", "n1", nil)
	cut.CreateRevision = 1
	for _, row := range []struct {
		name string
		i    Interest
		v    *Version
		want bool
	}{
		{"everything", Interest{}, on("a/x", "", nil), true},
		{"the key", Interest{Key: "a/x", Prefix: "b/"}, on("a/x", "", nil), true},
		{"another key", Interest{Key: "a/y"}, on("a/x", "", nil), false},
		{"the prefix", Interest{Prefix: "a/"}, on("a/x", "", nil), true},
		{"another prefix", Interest{Prefix: "b/"}, on("a/x", "", nil), false},
		{"the value", field("n1"), on("a/x", "n1", nil), true},
		{"another value", field("n2"), on("a/x", "n1", nil), false},
		{"the value before", field("n1"), on("a/x", "n2", on("a/x", "n1", nil)), true},
		{"neither value", field("n3"), on("a/x", "n2", on("a/x", "n1", nil)), false},
		{"no such field", Interest{Field: Pair{"x", ""}}, on("a/x", "n1", nil), true},
		{"the value before is cut off", field("n3"), cut, true},
	} {
		if got := row.i.Concerns(row.v); got != row.want {
			t.Errorf("%s: %v", row.name, got)
		}
		if got := row.i.All(); got != (row.name == "everything") {
			t.Errorf("%s: that it is everything is %v", row.name, got)
		}
		if got := row.i.Canonical().Concerns(row.v); got != row.want {
			t.Errorf("%s, canonical: %v", row.name, got)
		}
	}
}

// A watcher's prefix ends with the first slash of the keys that it wants.
func TestPrefixOf(t *testing.T) {
	for key, want := range map[string]string{"": "", "a": "", "/": "/", "a/": "a/", "ns/a": "ns/", "ns/a/b": "ns/"} {
		if got := PrefixOf(key); got != want {
			t.Errorf("the prefix of %q is %q, want %q", key, got, want)
		}
	}
}
