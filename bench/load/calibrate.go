package load

import (
	"context"
	"errors"
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
	bare := &bench{Options: b.Options, namespace: b.namespace, target: &Target{}, conns: s.conns}
	pid := []int{s.child.Process.Pid}
	before, err := host.CPUTimes(pid)
	if err != nil {
		return 0, err
	}
	t := newTally(1)
	closedLoop(ctx, b.Workers, calibrationTime, t, bare.closed(&row{verb: get}, b.Workers))
	if err := errors.Join(t.first, ctx.Err()); err != nil {
		return 0, fmt.Errorf("calibrate: %w", err)
	}
	after, err := host.CPUTimes(pid)
	if err != nil {
		return 0, err
	}
	return float64((after[0] - before[0]).Microseconds()) / float64(t.all().TotalCount()), nil
}
