package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestLockPlayground: one at a time, also while others delete the directory's lock and
// make it again.
func TestLockPlayground(t *testing.T) {
	dir := t.TempDir()
	var inside atomic.Int32
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 20 {
				unlock, err := lockPlayground(t.Context(), dir)
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d have the lock", n)
				}
				if i == 0 {
					if err := removeFile(filepath.Join(dir, devLockFile)); err != nil {
						t.Error(err)
					}
				}
				inside.Add(-1)
				unlock()
			}
		})
	}
	wg.Wait()
}

func TestLockPlaygroundGivesUp(t *testing.T) {
	dir := t.TempDir()
	unlock, err := lockPlayground(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errHangup)
	defer cancel()
	if _, err := lockPlayground(ctx, dir); err == nil {
		t.Error("two have the lock")
	}
	ctx, stop := context.WithCancelCause(t.Context())
	stop(errHangup)
	if _, err := lockPlayground(ctx, dir); !errors.Is(err, errHangup) {
		t.Errorf("got %v", err)
	}
}

// TestLockIsNotLeftInOthersDirectories: commands on what is no playground leave it as it
// was.
func TestLockIsNotLeftInOthersDirectories(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{{"start", "n1"}, {"stop"}, {"status"}, {"logs"}, {"delete"}} {
		if _, err := tryCommand(t, append(append([]string{"dev"}, args...), "--data-dir", dir)...); !errors.Is(err, errNoCluster) {
			t.Errorf("dev %v: %v", args, err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("it has %v (%v)", entries, err)
	}
}
