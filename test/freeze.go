package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// freeze stops processes without their knowing, until thaw or the end of the test.
func freeze(t *testing.T, nodes ...*Node) {
	t.Helper()
	t.Cleanup(func() { thaw(t, nodes...) })
	for _, n := range nodes {
		if err := syscall.Kill(n.pid, syscall.SIGSTOP); err != nil {
			t.Fatalf("stop %s: %v", n.Name, err)
		}
	}
	// Its threads run on for a moment, and may answer somebody yet.
	for _, n := range nodes {
		Await(t, 10*time.Second, n.Name+" stands still", func() string {
			tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", n.pid))
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

func thaw(t *testing.T, nodes ...*Node) {
	t.Helper()
	for _, n := range nodes {
		if err := syscall.Kill(n.pid, syscall.SIGCONT); err != nil {
			t.Errorf("continue %s: %v", n.Name, err)
		}
	}
}
