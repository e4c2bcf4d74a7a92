package regress

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// TestVirtualTimeFailovers shows that whole clusters run in virtual time: 200
// failovers, ten minutes of them, in well under a second. Chaos tests built
// this way are cheap enough for every commit.
func TestVirtualTimeFailovers(t *testing.T) {
	for name, network := range map[string]func() func(raft.ServerID) transport{
		"memory": func() func(raft.ServerID) transport { return nil },
		"ours":   func() func(raft.ServerID) transport { return newPipes().ours },
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			var passed time.Duration
			const failovers = 200
			synctest.Test(t, func(t *testing.T) {
				defer time.Sleep(time.Minute)
				ids := []raft.ServerID{"a", "b", "c"}
				c := start(t, setup{network: network()}, ids...)
				defer c.stop()
				start := time.Now()
				for i := range failovers {
					l := c.leader()
					for c.confirm(l) != nil { // the old leader may still think that it leads
						time.Sleep(50 * time.Millisecond)
						l = c.leader()
					}
					c.write(l, fmt.Sprint("write ", i))
					var others []raft.ServerID
					for _, id := range ids {
						if id != l.id {
							others = append(others, id)
						}
					}
					c.part(true, []raft.ServerID{l.id}, others)
					time.Sleep(3 * time.Second) // the others elect a leader
					c.part(false, []raft.ServerID{l.id}, others)
				}
				passed = time.Since(start)
				time.Sleep(20 * time.Second) // replication backs off for up to 10 s
				for _, id := range ids {
					if got, want := c.nodes[id].fsm.String(), c.nodes["a"].fsm.String(); got != want {
						t.Errorf("state of %s differs from a's", id)
					}
				}
			})
			t.Logf("%d failovers, %v of virtual time in %v", failovers, passed, time.Since(began).Round(time.Millisecond))
		})
	}
}
