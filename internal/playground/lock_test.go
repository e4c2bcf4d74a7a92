package playground

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
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
					if err := removeFile(filepath.Join(dir, lockFile)); err != nil {
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
	errHangup := errors.New("the terminal is gone")
	unlock, err := lockPlayground(t.Context(), dir)
	must.OK(t, err)
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
