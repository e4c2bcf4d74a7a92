package health

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// failingAgain is how often a check that goes on failing has a line in the log.
	failingAgain = time.Minute
	// changeAgain is how long a check whose outcome changes has no other line.
	changeAgain = 10 * time.Second
)

// outcomes write what becomes of checks to the log: the changes, and now and then that a check still fails. Anybody may
// ask for checks, as often as packets can be sent, and they fail on each node that starts. Safe for concurrent use.
type outcomes struct {
	mu sync.Mutex
	of map[[2]string]*outcome // by probe and check, which are known
}

type outcome struct {
	passed  bool // it has, since the start
	failing bool // so the log says
	said    time.Time
	asked   int // how often it has failed since
}

// note takes the outcome of a check. One that has never passed since the start is no warning.
func (o *outcomes) note(log *slog.Logger, probe, check string, err error) {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.of[[2]string{probe, check}]
	if c == nil {
		c = &outcome{}
		o.of[[2]string{probe, check}] = c
	}
	wait := changeAgain
	if err != nil {
		c.asked++
		if c.failing {
			wait = failingAgain
		}
	}
	level, text := slog.LevelWarn, "health check failed"
	switch {
	case err == nil && !c.failing:
		c.passed = true
		return
	case !c.said.IsZero() && now.Sub(c.said) < wait:
		return
	case err == nil:
		level, text = slog.LevelInfo, "health check passes again"
		if !c.passed {
			text = "health check passes"
		}
		c.passed = true
	case !c.passed:
		level, text = slog.LevelInfo, "health check has not passed yet"
	}
	args := []any{"probe", probe, "check", check}
	if err != nil {
		args = append(args, "err", err)
	}
	if c.asked > 1 {
		args = append(args, "failures", c.asked)
	}
	c.failing, c.said, c.asked = err != nil, now, 0
	log.Log(context.Background(), level, text, args...)
}
