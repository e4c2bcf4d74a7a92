package controllers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/must"
)

// leadership is a node that leads when a test says so.
type leadership struct {
	mu      sync.Mutex
	leads   bool
	changed chan struct{}
}

func newLeadership(leads bool) *leadership {
	return &leadership{leads: leads, changed: make(chan struct{})}
}

func (l *leadership) IsLeader() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leads
}

func (l *leadership) LeaderChanged() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

func (l *leadership) set(leads bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leads = leads
	close(l.changed)
	l.changed = make(chan struct{})
}

// counts is an Observer.
type counts struct {
	mu      sync.Mutex
	running map[string]bool
	failed  map[string]int
}

func (c *counts) ControllerRuns(name string, runs bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running[name] = runs
}

func (c *counts) ControllerFailed(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed[name]++
}

func (c *counts) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprint(c.running, c.failed)
}

// managerOf returns a Manager of one table, all of whose rows are enabled.
func managerOf(lines *bytes.Buffer, seen *counts, rows ...controller) *Manager {
	cfg := Config{Log: slog.New(slog.NewTextHandler(lines, nil)), Observer: seen}
	for _, c := range rows {
		cfg.Controllers = append(cfg.Controllers, c.name)
	}
	m := NewManager(nil, cfg)
	m.table = rows
	return m
}

// always is a controller that needs nothing.
func always(run loop) func(base, *Config) loop {
	return func(base, *Config) loop { return run }
}

// TestRestarts: how often a controller is started in ten seconds of a term, and what is said of it.
func TestRestarts(t *testing.T) {
	failing := func(fails int, then error) (made func(base, *Config) loop, runs *int) {
		runs = new(int)
		return always(func(context.Context) error {
			if *runs++; *runs <= fails {
				return errors.New("a reason")
			}
			return then
		}), runs
	}
	for _, x := range []struct {
		name  string
		row   controller
		fails int // so many times, before it is done
		runs  int
		lines int
		line  string // for failures
	}{
		{"done at the first try", controller{}, 0, 1, 0, ""},
		{"done at the third try", controller{}, 2, 3, 2, `msg="controller failed, restarting" controller=c err="a reason"`},
		{"always failing", controller{}, 100, 10, 4, `msg="controller failed, restarting" controller=c err="a reason"`},
		{"failing fast", controller{pause: 100 * time.Millisecond, failed: "cannot, retrying"}, 30, 31, 2, `msg="cannot, retrying" controller=c err="a reason"`},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var lines bytes.Buffer
				seen := &counts{running: map[string]bool{}, failed: map[string]int{}}
				var runs *int
				x.row.name = "c"
				x.row.loop, runs = failing(x.fails, nil)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second-time.Millisecond)
				defer cancel()
				must.OK(t, managerOf(&lines, seen, x.row).Run(ctx, newLeadership(true)))
				failures := min(x.fails, x.runs)
				said := 0
				if x.line != "" {
					said = strings.Count(lines.String(), x.line)
				}
				if *runs != x.runs || said != x.lines || seen.failed["c"] != failures {
					t.Errorf("%d runs, %d failures counted, %d lines, want %d, %d, %d:\n%s", *runs, seen.failed["c"], said, x.runs, failures, x.lines, &lines)
				}
			})
		})
	}
}

// TestTried: a failure is said at once, once a minute while it lasts, and when it is over; each one is counted.
func TestTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		seen := &counts{running: map[string]bool{}, failed: map[string]int{}}
		r := newReports(slog.New(slog.NewTextHandler(&lines, nil)), "c", seen)
		r.tried("cannot do it, retrying", nil)
		for range 130 {
			r.tried("cannot do it, retrying", errors.New("a reason"), "retry", time.Second)
			time.Sleep(time.Second)
		}
		r.tried("cannot do it, retrying", nil)
		r.tried("cannot do it, retrying", nil)
		var got []string
		for line := range strings.Lines(lines.String()) {
			_, text, _ := strings.Cut(strings.TrimSpace(line), "level=")
			got = append(got, text)
		}
		failed := `WARN msg="cannot do it, retrying" err="a reason" retry=1s alike_since_last=`
		want := []string{failed + "0", failed + "59", failed + "59", `INFO msg="what failed before has succeeded" before="cannot do it, retrying" alike_since_last=9`}
		if !slices.Equal(got, want) || seen.failed["c"] != 130 {
			t.Errorf("%d failures counted:\n%s", seen.failed["c"], &lines)
		}
	})
}

// TestTerms: controllers run while the node leads and at no other time, and those of one term
// have ended before those of the next begin. What the end of a term ends has not failed.
func TestTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		seen := &counts{running: map[string]bool{}, failed: map[string]int{}}
		var mu sync.Mutex
		now, most, starts := 0, 0, 0
		lasting := controller{name: "lasting", loop: always(func(ctx context.Context) error {
			mu.Lock()
			now++
			starts++
			most = max(most, now)
			mu.Unlock()
			<-ctx.Done()
			time.Sleep(time.Second) // it takes its time to end
			mu.Lock()
			now--
			mu.Unlock()
			return fmt.Errorf("read: %w", ctx.Err())
		})}
		once := controller{name: "once", loop: always(func(context.Context) error { return nil })}
		off := controller{name: "off", loop: always(nil)}
		m := managerOf(&lines, seen, lasting, once, off)
		node := newLeadership(false)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- m.Run(ctx, node) }()
		for _, x := range []struct {
			leads bool
			want  string
		}{
			{false, "map[lasting:false once:false] map[]"}, // another one leads
			{true, "map[lasting:true once:true] map[]"},    // one that is done stays until the term ends
			{true, "map[lasting:true once:true] map[]"},
			{false, "map[lasting:false once:false] map[]"},
			{true, "map[lasting:true once:true] map[]"},
		} {
			node.set(x.leads)
			time.Sleep(2 * time.Second)
			if got := seen.String(); got != x.want {
				t.Errorf("leads %t: %s, want %s", x.leads, got, x.want)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if starts != 2 || most != 1 || now != 0 {
			t.Errorf("started %d times, %d at once, %d still run; want 2, 1, 0", starts, most, now)
		}
		if got, want := seen.String(), "map[lasting:false once:false] map[]"; got != want {
			t.Errorf("at the end: %s, want %s", got, want)
		}
		if lines.Len() > 0 {
			t.Errorf("it says %s", &lines)
		}
	})
}
