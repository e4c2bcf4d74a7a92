package disk

import (
	"sync"
	"time"
)

// watchdog calls a function when a write makes no progress for so long. The time is counted in looks: a
// process that stood still, because it was stopped or its machine was suspended, finds one of them
// late when it goes on, and not the disk hung.
type watchdog struct {
	mu    sync.Mutex
	timer *time.Timer // nil while nothing is watched
	every time.Duration
	left  int // looks until the write hangs; 0 once it does
	hung  func()
}

// looks are how many there are in the time that a write has.
const looks = 10

// watch begins to watch a write; hung is called once at most.
func (d *watchdog) watch(after time.Duration, hung func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.every, d.left, d.hung = after/looks, looks, hung
	d.timer = time.AfterFunc(d.every, d.look)
}

// look counts one look.
func (d *watchdog) look() {
	d.mu.Lock()
	if d.timer == nil || d.left == 0 {
		d.mu.Unlock()
		return
	}
	d.left--
	hangs, hung := d.left == 0, d.hung
	if !hangs {
		d.timer.Reset(d.every)
	}
	d.mu.Unlock()
	if hangs {
		hung()
	}
}

// feed says that a change has reached the disk. Also the segment that another goroutine prepares is one.
func (d *watchdog) feed() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left > 0 { // one that has barked ends the process, and is not to do so twice
		d.left = looks + 1 // the next look may come at once
	}
}

func (d *watchdog) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.timer.Stop()
	d.timer = nil
}
