package raftstore

import (
	"testing"
	"time"

	"github.com/quorate/quorate/raftstore/storetest"
)

// calm is for tests in which no node fails: on a busy machine, under the race
// detector, the short timeouts of the others end leaderships.
func calm(c *Config) {
	c.Timing.Heartbeat, c.Timing.Election, c.Timing.Lease = 2*time.Second, 2*time.Second, 2*time.Second
}

func TestContractOneNode(t *testing.T) {
	c := newCluster(t, 1, calm)
	storetest.Run(t, func(*testing.T) storetest.Store { return c.leader().Store })
}

func TestContractLeaderOfThree(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, calm)
	storetest.Run(t, func(*testing.T) storetest.Store { return c.leader().Store })
}

func TestContractFollowerOfThree(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, calm)
	storetest.Run(t, func(*testing.T) storetest.Store { return c.other(c.leader()).Store })
}
