package disk

import (
	"sync"
	"time"
)

// watchdog calls a function when a write makes no progress for so long.
type watchdog struct {
	mu    sync.Mutex
	timer *time.Timer // nil while nothing is watched
	after time.Duration
}

// watch begins to watch a write; hung is called once at most.
func (d *watchdog) watch(after time.Duration, hung func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.after, d.timer = after, time.AfterFunc(after, hung)
}

// feed says that a change has reached the disk. Also the segment that another goroutine prepares is one.
func (d *watchdog) feed() {
	d.mu.Lock()
	defer d.mu.Unlock()
	// One that has barked ends the process, and is not to do so twice.
	if d.timer != nil && d.timer.Stop() {
		d.timer.Reset(d.after)
	}
}

func (d *watchdog) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.timer.Stop()
	d.timer = nil
}
