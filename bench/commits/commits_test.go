package main

import (
	"context"
	"errors"
	"testing"
)

func TestBatchesIn(t *testing.T) {
	for metrics, want := range map[string]int64{
		"": 0,
		"etcd_disk_wal_fsync_duration_seconds_sum 3\netcd_disk_wal_fsync_duration_seconds_count 1.2e+06\nother 1\n": 1_200_000,
		"# TYPE etcd_disk_wal_fsync_duration_seconds_count x\n":                                                     0,
	} {
		if got := batchesIn(metrics); got != want {
			t.Errorf("%q: %d, want %d", metrics, got, want)
		}
	}
}

// TestLoadMakesEachWriteOnce: no matter who writes, each index is written once, and an error of one of
// them is the load's.
func TestLoadMakesEachWriteOnce(t *testing.T) {
	for _, workers := range []int{1, 7} {
		seen := make(chan int64, 1000)
		h, err := load(t.Context(), func(_ context.Context, i int64) error {
			seen <- i
			return nil
		}, workers, 100, 50)
		close(seen)
		if err != nil || h.TotalCount() != 100 {
			t.Fatalf("%d workers: %d writes, %v", workers, h.TotalCount(), err)
		}
		once := map[int64]bool{}
		for i := range seen {
			if once[i] || i < 50 || i >= 150 {
				t.Errorf("%d workers: write %d", workers, i)
			}
			once[i] = true
		}
	}
	broken := errors.New("broken")
	if _, err := load(t.Context(), func(_ context.Context, i int64) error {
		if i == 3 {
			return broken
		}
		return nil
	}, 4, 10, 0); !errors.Is(err, broken) {
		t.Error(err)
	}
}
