package main

import (
	"context"
	"fmt"
	"time"

	"github.com/quorate/quorate/bench/host"
)

// calibrationTime is how long the bare server is measured, before and after the rows.
const calibrationTime = 3 * time.Second

// bareCost measures the bare server with the load of a get, and returns its CPU
// time per operation in microseconds.
func (b *bench) bareCost(ctx context.Context) (float64, error) {
	s, err := startBare(ctx)
	if err != nil {
		return 0, err
	}
	defer s.stop()
	bare := *b
	bare.conns, bare.duration = s.conns, calibrationTime
	pid := []int{s.child.Process.Pid}
	before, err := host.CPUTimes(pid)
	if err != nil {
		return 0, err
	}
	out, err := getter("")(ctx, &bare)
	if err == nil && out.errors > 0 {
		err = out.first
	}
	if err != nil {
		return 0, fmt.Errorf("calibrate: %w", err)
	}
	after, err := host.CPUTimes(pid)
	if err != nil {
		return 0, err
	}
	return float64((after[0] - before[0]).Microseconds()) / float64(out.latency.TotalCount()), nil
}
