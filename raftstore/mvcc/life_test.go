package mvcc

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

// TestOneKeysLife carries out the entries of the worked example in doc.go, and compares
// what it says is there after each.
func TestOneKeysLife(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	must.OK(t, err)
	lines := regexp.MustCompile(`(?m)^//\t(put|delete|compact) (\d+) .*$`).FindAllStringSubmatch(string(doc), -1)
	if len(lines) != 5 {
		t.Fatalf("doc.go has %d lines of the example, want 5", len(lines))
	}
	s := New()
	for _, line := range lines {
		n, err := strconv.ParseUint(line[2], 10, 64)
		must.OK(t, err)
		index := proto.RaftIndex(n)
		kind, m := proto.KindWrite, proto.Message(&proto.Write{Table: "t", Key: "k", Op: proto.Op_OP_PUT, Value: []byte("{}"), RequestId: []byte(fmt.Sprintf("%016d", n))})
		switch line[1] {
		case "delete":
			m = &proto.Write{Table: "t", Key: "k", Op: proto.Op_OP_DELETE, RequestId: []byte(fmt.Sprintf("%016d", n))}
		case "compact":
			index = proto.RaftIndex(s.Applied()) + 1
			kind, m = proto.KindCompact, &proto.Compact{Floor: n}
		}
		entry, err := proto.Encode(kind, m)
		must.OK(t, err)
		if _, err := s.Apply(index, 1, entry); err != nil {
			t.Fatal(err)
		}
		s.Publish()
		got := fmt.Sprintf("%s %s   %s   %s   floor %d", line[1], line[2], named("chain", chainOf(s, "k")), named("history", historyOf(t, s)), s.Floor())
		if want := strings.TrimPrefix(line[0], "//\t"); strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(want), " ") {
			t.Errorf("doc.go says\n\t%s\nand it is\n\t%s", want, got)
		}
	}
}

// named is "name 1 2 3x", or "no name".
func named(name string, versions []*Version) string {
	if len(versions) == 0 {
		return "no " + name
	}
	for _, v := range versions {
		name += fmt.Sprint(" ", uint64(v.Revision))
		if v.Deleted {
			name += "x"
		}
	}
	return name
}

func chainOf(s *State, key string) (versions []*Version) {
	t := s.Table("t")
	if t == nil {
		return nil
	}
	if it, ok := t.shown.Load().keys.Get(&item{key: key}); ok {
		for v := it.newest.Load(); v != nil; v = v.Prev() {
			versions = append(versions, v)
		}
	}
	return versions
}

func historyOf(t *testing.T, s *State) []*Version {
	table := s.Table("t")
	if table == nil {
		return nil
	}
	c, err := table.Watch(s.Floor())
	must.OK(t, err)
	var buf [8]*Version
	n, err := c.Next(buf[:], s.Applied())
	must.OK(t, err)
	return buf[:n]
}
