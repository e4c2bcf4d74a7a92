package modes

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/probe"
)

// writers are the steady write load: one for each probe, over all nodes in turn.
type writers struct {
	run   *run
	conns []*client.Conn

	mu      sync.Mutex // guards what follows
	latency measure.Histogram
	on      bool // whether writes are noted
	errors  int64
}

// write bumps probe k until ctx ends. Its writes are due at equal distances, and
// one is sent when it is due and the one before has been answered; their
// latency counts from when they were due.
func (w *writers) write(ctx context.Context, k int) {
	var (
		buf   bytes.Buffer
		every = time.Duration(float64(time.Second) * float64(w.run.ledger.Len()) / w.run.opt.Writes)
		// The probes' writes are spread over the time between two of one.
		due   = w.run.clock.Now() + every*time.Duration(k)/time.Duration(w.run.ledger.Len())
		timer = time.NewTimer(0)
	)
	defer timer.Stop()
	for number := int64(1); ; number++ {
		timer.Reset(max(0, due-w.run.clock.Now()))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		revision, err := w.one(ctx, k, number, &buf)
		now := w.run.clock.Now()
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			w.run.ledger.Acknowledged(k, number, revision, now)
		}
		w.note(now-due, err)
		due += every
	}
}

func (w *writers) one(ctx context.Context, k int, number int64, buf *bytes.Buffer) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if _, err := w.conns[k%len(w.conns)].Do(ctx, w.run.space.Write(k, number), buf); err != nil {
		return 0, fmt.Errorf("write probe %d: %w", k, err)
	}
	return probe.RevisionOf(buf.Bytes())
}

func (w *writers) note(took time.Duration, err error) {
	w.run.failed(err)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !w.on:
	case err != nil:
		w.errors++
	default:
		w.latency.RecordTime(took)
	}
}

// measured begins or ends the noting.
func (w *writers) measured(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.on = on
}
