package node

import (
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/observe/metrics"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/proto"
)

func TestStorageNotice(t *testing.T) {
	for used, want := range map[int64]int{0: 0, 79 << 20: 0, 81 << 20: 1, 100 << 20: 1, 200 << 20: 1} {
		if got := storageNotice(used, 100<<20); len(got) != want {
			t.Errorf("%d of 100 MiB: %q", used>>20, got)
		}
	}
	if got := storageNotice(1<<40, 0); len(got) > 0 {
		t.Errorf("without a limit: %q", got)
	}
}

func TestStorageBytes(t *testing.T) {
	if got := (&Config{StorageBytes: 5 << 20}).storageBytes(); got != 5<<20 {
		t.Errorf("told 5 MiB, and it is %d", got)
	}
	if got := (&Config{}).storageBytes(); got < leastStorage {
		t.Errorf("told nothing, and it is %d", got)
	}
}

func TestLargest(t *testing.T) {
	all := map[string]int64{"": 9, "a": 1, "b": 3, "c": 3, "d": 2}
	want := []metrics.NamespaceStats{{Name: "b", Bytes: 3}, {Name: "c", Bytes: 3}, {Name: "d", Bytes: 2}}
	if got := largest(all, 3); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := largest(all, 9); len(got) != 4 {
		t.Errorf("%v", got)
	}
}

// TestDiskNotice: each node whose disk lacks something is named, also one that only the leader has heard of.
func TestDiskNotice(t *testing.T) {
	for _, row := range []struct {
		level   proto.DiskSpace_Level
		heard   string // what the leader knows
		members string // what they say; "-" does not answer
		want    string
	}{
		{0, "", "n1= n2= n3=", ""},
		{0, "n2", "n1= n2=full n3=", "disk: full on n2; the cluster goes on with the others. Make room there"},
		{0, "", "n1= n2=low n3=reserve", "disk: full on n2; the cluster goes on with the others. Make room there|" +
			"disk: no room beside what the node has reserved for itself on n3. Make room there, before that is used up"},
		{0, "", "n1= n2= n3=snapshot", "disk: no room for a snapshot of the leader on n3, which needs one to follow. Make room there: the log of the node says how much it takes"},
		{1, "n1 n2", "n1=low n2=- n3=", "disk: full on n1, n2; what makes objects take more is refused. Make room there, or delete objects"},
		{0, "", "n1=- n2=read-only n3=", "disk: read-only on n2: nothing can be written there. Mend the file system, and start the node again"},
		{2, "n1 n2", "n1=read-only n2=read-only n3=", "disk: read-only on n1, n2: nothing can be written there, and writes are refused. Mend the file system, and start the node again"},
		{0, "n2", "n1= n2= n3=", ""}, // it has made room since
	} {
		disks := &proto.DiskSpace{Level: row.level, Nodes: strings.Fields(row.heard)}
		var members []membership.MemberStatus
		for _, m := range strings.Fields(row.members) {
			name, says, _ := strings.Cut(m, "=")
			status := membership.MemberStatus{MemberInfo: membership.MemberInfo{Name: name}, DiskSpace: membership.DiskSpace(says)}
			if says == "-" {
				status.DiskSpace, status.Error = "", "no answer"
			}
			members = append(members, status)
		}
		if got := strings.Join(diskNotice(disks, members), "|"); got != row.want {
			t.Errorf("%+v: %q", row, got)
		}
	}
}
