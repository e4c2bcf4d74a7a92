package commands

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/test/harness/cluster"
)

// TestRestoreOnFullDisk restores a backup where there is no room for it, at whatever point the room ends: the error says so, nothing is
// left, and the same command makes the directory when there is room.
func TestRestoreOnFullDisk(t *testing.T) {
	const objects = 2000
	c := cluster.Start(t, 1)
	cluster.CreateMany(t, c.Nodes()[0], objects)
	file := filepath.Join(c.Dir, "backup")
	c.Admin(t, "snapshot", "save", file)

	disk := filepath.Join(c.Dir, "disk")
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	mount := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), "mount", args...).CombinedOutput()
		return string(out), err
	}
	if out, err := mount("-t", "tmpfs", "-o", "size=4k", "tmpfs", disk); err != nil {
		t.Skipf("mounting is not allowed here: %v: %s", err, out)
	}
	var r1 *cluster.Node
	defer func() {
		if r1 != nil {
			c.Kill(t, r1)
		}
		// The threads of a process that was killed end one after the other, and close its files.
		cluster.Await(t, 10*time.Second, "the disk is unmounted", func() string {
			if out, err := exec.Command("umount", disk).CombinedOutput(); err != nil {
				return fmt.Sprintf("%v: %s", err, out)
			}
			return ""
		})
	}()
	peer := fmt.Sprintf("127.0.0.1:%d", c.FreePort+1000)
	failed := 0
	for kib := 4; ; kib += max(kib/3, 12) {
		if out, err := mount("-o", fmt.Sprintf("remount,size=%dk", kib), disk); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		out, err := c.TryQuorate(t, "snapshot", "restore", file, "--data-dir", filepath.Join(disk, "r1"), "--name", "r1", "--peer-advertise-address", peer)
		if err == nil {
			break
		}
		failed++
		if !strings.Contains(out, "no space left on device") {
			t.Errorf("%d KiB: the disk is full, and restore says %s", kib, out)
		}
		left, err := os.ReadDir(disk)
		if err != nil || len(left) > 0 {
			t.Fatalf("%d KiB: a restore that has failed leaves %v, %v", kib, left, err)
		}
		if kib > 1<<20 {
			t.Fatalf("%d KiB are not enough: %s", kib, out)
		}
	}
	if failed < 5 {
		t.Errorf("%d restores found no room", failed)
	}
	if out, err := mount("-o", "remount,size=1g", disk); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Symlink(filepath.Join(disk, "r1"), filepath.Join(c.Dir, "r1")); err != nil {
		t.Fatal(err)
	}
	r1 = c.Launch(t, "r1", c.FreePort, "--token-file", filepath.Join(c.Dir, "token"))
	r1.AwaitReady(t)
	list, err := r1.Typed(t).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) < objects {
		t.Errorf("%d of %d objects are restored: %v", len(list.Items), objects, err)
	}
}
