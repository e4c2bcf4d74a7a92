package raftstore

import (
	"context"
	"runtime"
	"time"
)

// Raft shares the process with whatever requests compute, and Go knows no priorities. A goroutine of Raft that is ready
// to run waits until those that became ready before it have run, up to ten milliseconds each. When the waits add up to the
// heartbeat timeout, a leader that works is deposed. So the wait is measured.

// delayEvery is how often it is measured. Ten wake-ups a second cost an idle node little, and several fall into a
// heartbeat timeout.
const delayEvery = 100 * time.Millisecond

// measureDelay waits for a time, and then for a processor as Raft does, and tells how late it is. A timer alone would
// show too little, because the processor that finds it runs it next. A goroutine that comes back from a sync of the
// disk or from the network goes to the end of the queue of all processors, where Gosched goes too.
func (o *observers) measureDelay(ctx context.Context) {
	timer := time.NewTimer(delayEvery)
	defer timer.Stop()
	for due := time.Now().Add(delayEvery); ; due = time.Now().Add(delayEvery) {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		runtime.Gosched()
		o.schedulingDelay(max(0, time.Since(due)))
		timer.Reset(delayEvery)
	}
}
