package raftstore

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// observeDelays measures until stop is called, and tells see.
func observeDelays(t *testing.T, see func(time.Duration)) (stop func()) {
	t.Helper()
	var s Store
	s.ObserveSchedulingDelay(see)
	ctx, cancel := context.WithCancel(t.Context())
	var measuring sync.WaitGroup
	measuring.Go(func() { s.observers.measureDelay(ctx) })
	return func() {
		cancel()
		measuring.Wait()
	}
}

func TestSchedulingDelayOfAnIdleProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		stop := observeDelays(t, func(d time.Duration) {
			if n++; d != 0 {
				t.Errorf("it waited %v", d)
			}
		})
		time.Sleep(10*time.Second + delayEvery/2)
		stop()
		if want := int(10 * time.Second / delayEvery); n != want {
			t.Errorf("measured %d times, want %d", n, want)
		}
	})
}

// TestSchedulingDelayBehindOthers: who is ready to run waits until all have run that were ready before.
func TestSchedulingDelayBehindOthers(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const others, want = 20, 50 * time.Millisecond // each runs for up to 10 ms at a time
	var end atomic.Bool
	var wg sync.WaitGroup
	seen := make(chan struct{})
	var once sync.Once
	stop := observeDelays(t, func(d time.Duration) {
		if d >= want {
			once.Do(func() { close(seen) })
		}
	})
	for range others {
		wg.Go(func() {
			for !end.Load() {
			}
		})
	}
	select {
	case <-seen:
	case <-time.After(30 * time.Second):
		t.Errorf("%d others ran, and no wait of %v was seen", others, want)
	}
	end.Store(true)
	wg.Wait()
	stop()
}
