package mvcc

import (
	"fmt"
	"math"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

// BenchmarkPageGrowth takes pages of 500 of tables of three sizes. The exponent of growth, from the
// smallest to the largest, is to be near zero: a page costs what it has, not what remains. In
// deleted a tenth of the keys has tombstones; behind is as of 2,000 changes ago, of which half are keys
// that came or went; expiring is both.
func BenchmarkPageGrowth(b *testing.B) {
	for _, shape := range []string{"still", "deleted", "behind", "expiring"} {
		var first float64
		for _, size := range []int{10_000, 100_000, 1_000_000} {
			b.Run(fmt.Sprintf("%s/%d", shape, size), func(b *testing.B) {
				s, at := pageTable(b, shape, size)
				t := s.Table("t")
				b.ReportAllocs()
				b.ResetTimer()
				for range b.N {
					if p, err := t.Range(Query{At: at, Limit: 500}); len(p.Versions) != 500 || p.Remaining < int64(size)/2 || err != nil {
						b.Fatal(len(p.Versions), p.Remaining, err)
					}
				}
				each := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
				if size == 10_000 {
					first = each
				}
				if size == 1_000_000 && first > 0 {
					b.ReportMetric(math.Log10(each/first)/2, "exponent")
				}
			})
		}
	}
}

// pageTable is a state of so many keys, and the revision to read it at.
func pageTable(b *testing.B, shape string, size int) (*State, proto.Revision) {
	s := New()
	var index proto.RaftIndex
	write := func(i int, op proto.Op) {
		entry, err := proto.Encode(proto.KindWrite, &proto.Write{Table: "t", Key: fmt.Sprintf("default/object-%07d", i), Op: op, Value: []byte("{}")})
		must.OK(b, err)
		index++
		if r, err := s.Apply(index, 1, entry); err != nil || r.Outcome != proto.Outcome_OUTCOME_APPLIED {
			b.Fatal(r.Outcome, err)
		}
	}
	for i := range size {
		write(2*i, proto.Op_OP_PUT)
	}
	if shape == "deleted" || shape == "expiring" {
		for i := 0; i < size; i += 10 {
			write(2*i, proto.Op_OP_DELETE)
		}
	}
	at := proto.Revision(index)
	if shape == "behind" || shape == "expiring" {
		// All over the table: updates, keys that go, keys that come.
		for i := range 500 {
			k := 2 * (i*(size/500) + 1)
			write(k, proto.Op_OP_PUT)
			write(k+2, proto.Op_OP_PUT)
			write(k, proto.Op_OP_DELETE)
			write(k+1, proto.Op_OP_PUT)
		}
	}
	s.Publish()
	return s, at
}
