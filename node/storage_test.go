package node

import (
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/metrics"
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

func TestDiskNotice(t *testing.T) {
	for _, row := range []struct {
		disks *proto.DiskSpace
		want  string
	}{
		{nil, ""},
		{&proto.DiskSpace{}, ""},
		{&proto.DiskSpace{Nodes: []string{"n2"}}, "disk: full on n2; the cluster goes on with the others. Make room there"},
		{&proto.DiskSpace{Level: proto.DiskSpace_LOW, Nodes: []string{"n1", "n2"}}, "disk: full on n1, n2; what makes objects take more is refused. Make room there, or delete objects"},
	} {
		if got := strings.Join(diskNotice(row.disks), "|"); got != row.want {
			t.Errorf("%v: %q, want %q", row.disks, got, row.want)
		}
	}
}
