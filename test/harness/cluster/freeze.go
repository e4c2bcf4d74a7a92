package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Freeze stops processes without their knowing, until Thaw or the end of the test.
func Freeze(t *testing.T, nodes ...*Node) {
	t.Helper()
	t.Cleanup(func() { Thaw(t, nodes...) })
	for _, n := range nodes {
		if err := syscall.Kill(n.PID, syscall.SIGSTOP); err != nil {
			t.Fatalf("stop %s: %v", n.Name, err)
		}
	}
	// Its threads run on for a moment, and may answer somebody yet.
	for _, n := range nodes {
		Await(t, 10*time.Second, n.Name+" stands still", func() string {
			tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", n.PID))
			if err != nil || len(tasks) == 0 {
				return fmt.Sprint("no threads: ", err)
			}
			for _, task := range tasks {
				if stat, err := os.ReadFile(task); err == nil && !strings.Contains(string(stat), ") T ") {
					return string(stat)
				}
			}
			return ""
		})
	}
}

// Thaw lets frozen processes go on.
func Thaw(t *testing.T, nodes ...*Node) {
	t.Helper()
	for _, n := range nodes {
		if err := syscall.Kill(n.PID, syscall.SIGCONT); err != nil {
			t.Errorf("continue %s: %v", n.Name, err)
		}
	}
}
