package disk

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/must"
)

// members is a configuration of some size.
func members(n int) (c raft.Configuration) {
	for i := range n {
		id := fmt.Sprintf("node-%08d", i)
		c.Servers = append(c.Servers, raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(id + ".example.com:7443")})
	}
	return c
}

// TestMetaFiles writes snapshots with different numbers of members, one after the other, over whatever is in the spare.
func TestMetaFiles(t *testing.T) {
	for _, unsure := range []bool{false, true} {
		dir := t.TempDir()
		f := metaFiles{dir: dir, unsure: unsure}
		must.OK(t, f.prepare())
		for i, n := range []int{3, 5, 1, 3, 100, 3, 4, 0} { // a hundred do not fit into the spare
			spare, err := os.ReadFile(filepath.Join(dir, spareFile))
			must.OK(t, err)
			m := newMeta(uint64(i)+1, 1, members(n), 1)
			must.OK(t, f.write(m))
			got, err := readMeta(dir)
			must.OK(t, err)
			if got.Index != m.Index || len(got.Servers) != n {
				t.Fatalf("snapshot %d has %d members, want one at %d with %d", got.Index, len(got.Servers), m.Index, n)
			}
			after, err := os.ReadFile(filepath.Join(dir, spareFile))
			must.OK(t, err)
			if same := bytes.Equal(spare, after); i > 0 && same != (unsure || n == 100) {
				t.Errorf("snapshot %d of %d members: the spare is the same: %v", i+1, n, same)
			}
			must.OK(t, os.WriteFile(filepath.Join(dir, spareFile), bytes.Repeat([]byte{byte(i)}, 100*i), fileMode))
		}
		// A start does not look at the spare.
		must.OK(t, os.Remove(filepath.Join(dir, metaFile)))
		if m, err := readMeta(dir); m != nil || err != nil {
			t.Fatalf("%+v, %v", m, err)
		}
	}
}

// TestSnapshotsOnFullDisk: a snapshot needs no room, neither bytes nor a file.
func TestSnapshotsOnFullDisk(t *testing.T) {
	dir := smallDisk(t, 2048)
	n, err := openNode(filepath.Join(dir, "n"))
	must.OK(t, err)
	t.Cleanup(func() { must.OK(t, n.db.Close()) })
	work := func() {
		t.Helper()
		n.m.next++ // entries that the state machine does not see
		must.OK(t, n.local())
		m, err := readMeta(n.db.dir)
		must.OK(t, err)
		if m.Index != n.m.next-1 || n.snaps.Written() != m.Index {
			t.Fatalf("a snapshot at %d, want %d", m.Index, n.m.next-1)
		}
	}
	work() // which makes a spare for the next one
	if out, err := exec.Command("mount", "-o", "remount,nr_inodes=6", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	fill(t, dir, 0)
	if err := os.WriteFile(filepath.Join(dir, "one more"), nil, fileMode); !enospc(err) {
		t.Fatalf("there is a file to make: %v", err)
	}
	for range 20 {
		work()
	}
	must.OK(t, n.db.Close())
	next := n.m.next
	n, err = openNode(n.db.dir)
	must.OK(t, err)
	n.m.next = next
	work()
}
