package raftstore

import (
	"testing"

	"github.com/quorate/quorate/raftstore/storetest"
)

func TestContractOneNode(t *testing.T) {
	c := newCluster(t, 1, nil)
	storetest.Run(t, func(*testing.T) storetest.Store { return storetest.Of(c.leader().Store) })
}

func TestContractLeaderOfThree(t *testing.T) {
	c := newCluster(t, 3, nil)
	storetest.Run(t, func(*testing.T) storetest.Store { return storetest.Of(c.leader().Store) })
}

func TestContractFollowerOfThree(t *testing.T) {
	c := newCluster(t, 3, nil)
	storetest.Run(t, func(*testing.T) storetest.Store { return storetest.Of(c.other(c.leader()).Store) })
}
