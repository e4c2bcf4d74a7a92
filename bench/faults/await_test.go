package faults

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/measure"
)

// A role that nobody has is waited for, until the next fault, the end or roleWithin.
func TestAwait(t *testing.T) {
	for _, c := range []struct {
		name              string
		next, leads, ends time.Duration // when somebody leads and the measurement ends; zero: never
		want              time.Duration // when it was found or given up
		found             bool
	}{
		{"there is one", 20 * time.Second, -1, 0, 0, true},
		{"later", 20 * time.Second, 3 * time.Second, 0, 3 * time.Second, true},
		{"too late", 20 * time.Second, 6 * time.Second, 0, roleWithin, false},
		{"too late for the next", 2 * time.Second, 3 * time.Second, 0, 2 * time.Second, false},
		{"the end", 20 * time.Second, 3 * time.Second, time.Second, time.Second, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			l := &load{nodes: []client.Node{{Name: "n1"}, {Name: "n2"}}, roles: make([]client.Role, 2), leader: -1, clock: measure.NewStopwatch()}
			lead := func() {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.roles[1], l.leader = client.Leader, 1
			}
			switch {
			case c.leads < 0:
				lead()
			case c.leads > 0:
				defer time.AfterFunc(c.leads, lead).Stop()
			}
			if c.ends > 0 {
				defer time.AfterFunc(c.ends, cancel).Stop()
			}
			node, err := l.await(ctx, "leader", 0, c.next)
			if (err == nil) != c.found || c.found && node != 1 {
				t.Errorf("%s: node %d, %v", c.name, node, err)
			}
			if at := l.now(); at < c.want || at > c.want+roleEvery {
				t.Errorf("%s: after %v, want %v", c.name, at, c.want)
			}
		})
	}
}
