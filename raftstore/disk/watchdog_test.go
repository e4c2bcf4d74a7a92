package disk

import (
	"testing"
	"time"
)

// TestWatchdogLooks: a write hangs when all looks have found no progress, and only once. One late look, which is
// what a process finds that stood still, is one.
func TestWatchdogLooks(t *testing.T) {
	var d watchdog
	hung := 0
	watch := func() { d.watch(looks*time.Hour, func() { hung++ }) }
	look := func(times int) {
		for range times {
			d.look()
		}
	}
	watch()
	look(looks - 1)
	d.feed()
	look(looks)
	if hung != 0 {
		t.Fatal("it hangs, with progress")
	}
	d.end()
	look(looks) // one that was late
	watch()
	look(looks - 1)
	if hung != 0 {
		t.Fatal("looks of another write count")
	}
	look(2)
	d.feed()
	look(looks)
	if hung != 1 {
		t.Fatalf("called %d times", hung)
	}
	d.end()
}
