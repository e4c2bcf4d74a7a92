package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestTasks: how often the leader does what, and what it says of it, in ten seconds of a term.
func TestTasks(t *testing.T) {
	for _, x := range []struct {
		name   string
		task   task
		fails  int // so many times, before it does not
		runs   int
		warned int
	}{
		{"once, at the first try", task{again: time.Second, once: true}, 0, 1, 0},
		{"once, at the third try", task{again: time.Second, once: true}, 2, 3, 2},
		{"again and again", task{again: time.Second}, 0, 10, 0},
		{"again and again, failing", task{again: time.Second, about: []any{"controller", "c"}}, 4, 10, 4},
		{"one try", task{}, 1, 1, 1},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var lines bytes.Buffer
				n := &Node{log: slog.New(slog.NewTextHandler(&lines, nil))}
				runs := 0
				x.task.failed = "it failed"
				x.task.run = func(context.Context) error {
					if runs++; runs <= x.fails {
						return errors.New("a reason")
					}
					return nil
				}
				ctx, resign := context.WithTimeout(t.Context(), 10*time.Second-time.Millisecond)
				defer resign()
				n.perform(ctx, x.task)
				if warned := strings.Count(lines.String(), "it failed"); runs != x.runs || warned != x.warned {
					t.Errorf("%d runs, %d warnings, want %d and %d", runs, warned, x.runs, x.warned)
				}
				if x.task.about != nil && !strings.Contains(lines.String(), `msg="it failed" controller=c err="a reason"`) {
					t.Errorf("it says %s", &lines)
				}
			})
		})
	}
	// What the end of a term ends has not failed.
	var lines bytes.Buffer
	n := &Node{log: slog.New(slog.NewTextHandler(&lines, nil))}
	ctx, resign := context.WithCancel(t.Context())
	n.perform(ctx, task{again: time.Second, run: func(ctx context.Context) error {
		resign()
		return fmt.Errorf("read: %w", ctx.Err())
	}})
	if lines.Len() > 0 {
		t.Errorf("it says %s", &lines)
	}
}
