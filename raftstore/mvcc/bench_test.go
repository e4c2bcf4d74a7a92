package mvcc

import (
	"fmt"
	"testing"

	"github.com/quorate/quorate/proto"
)

// filled is a state with n keys of 1 KiB.
func filled(b *testing.B, n int) (*log, []byte) {
	b.Helper()
	l := &log{TB: b, s: New()}
	value := make([]byte, 1<<10)
	for i := range n {
		l.entry(proto.Encode(proto.KindWrite, benchWrite(i, value)))
	}
	return l, value
}

func benchWrite(i int, value []byte) *proto.Write {
	return &proto.Write{
		Table: "t", Key: fmt.Sprintf("default/object-%06d", i), Op: proto.Op_OP_PUT, Value: value, RevisionOffset: 100,
		Uid: "b1a7d9f2-5f0c-4d38-9c1e-000000000000", Labels: []*proto.Attribute{{Name: "app", Value: "bench"}},
		RequestId: fmt.Appendf(nil, "%016d", i),
	}
}

func BenchmarkApplyPut(b *testing.B) {
	l, value := filled(b, 10_000)
	entries := make([][]byte, 10_000)
	for i := range entries {
		w := benchWrite(i, value)
		w.RequestId = nil
		entry, err := proto.Encode(proto.KindWrite, w)
		if err != nil {
			b.Fatal(err)
		}
		entries[i] = entry
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		l.entry(entries[i%len(entries)], nil)
		if i%20_000 == 19_999 {
			l.compact(proto.Revision(l.index))
		}
	}
}

func BenchmarkGet(b *testing.B) {
	l, _ := filled(b, 10_000)
	t, at := l.s.Table("t"), l.s.Applied()
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if v, err := t.Get("default/object-005000", at); v == nil || err != nil {
			b.Fatal(v, err)
		}
	}
}

func BenchmarkRange10000(b *testing.B) {
	l, _ := filled(b, 10_000)
	t, at := l.s.Table("t"), l.s.Applied()
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if p, err := t.Range(Query{At: at}); len(p.Versions) != 10_000 || err != nil {
			b.Fatal(len(p.Versions), err)
		}
	}
}

func BenchmarkPage500Of10000(b *testing.B) {
	l, _ := filled(b, 10_000)
	t, at := l.s.Table("t"), l.s.Applied()
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if p, err := t.Range(Query{At: at, Limit: 500}); p.Remaining != 9500 || err != nil {
			b.Fatal(p.Remaining, err)
		}
	}
}

func BenchmarkCursorNext(b *testing.B) {
	l, _ := filled(b, 10_000)
	t, at := l.s.Table("t"), l.s.Applied()
	buf := make([]*Version, 64)
	b.ReportAllocs()
	b.ResetTimer()
	for read := 0; read < b.N; {
		c, err := t.Watch(0)
		if err != nil {
			b.Fatal(err)
		}
		for n := len(buf); n == len(buf) && read < b.N; read += n {
			if n, err = c.Next(buf, at); err != nil {
				b.Fatal(err)
			}
		}
	}
}
