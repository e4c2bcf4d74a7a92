package mvcc

import (
	"fmt"
	"testing"

	"github.com/quorate/quorate/proto"
)

func TestSmoke(t *testing.T) {
	s := New()
	idx := proto.RaftIndex(0)
	put := func(key, val string) Result {
		idx++
		b, err := proto.Encode(proto.KindWrite, &proto.Write{Table: "t", Key: key, Op: proto.Op_OP_PUT, Value: []byte(val), RevisionOffset: 1})
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Apply(idx, 1, b)
		if err != nil {
			t.Fatal(err)
		}
		s.Publish()
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		return r
	}
	for i := range 2000 {
		put(fmt.Sprintf("k%03d", i%300), "<>")
		if i%50 == 49 {
			idx++
			b, _ := proto.Encode(proto.KindCompact, &proto.Compact{Floor: uint64(idx) - 400})
			if idx > 400 {
				if _, err := s.Apply(idx, 1, b); err != nil {
					t.Fatal(err)
				}
				s.Publish()
				if err := s.Check(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	p, err := s.Table("t").Range(Query{At: s.Applied(), Limit: 10})
	if err != nil || len(p.Versions) != 10 || p.Remaining != 290 {
		t.Fatal(p, err)
	}
	c, err := s.Table("t").Watch(s.Floor())
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]*Version, 1000)
	n, err := c.Next(buf, s.Applied())
	if err != nil || n < 300 {
		t.Fatal(n, err)
	}
}
