package raftstore

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

// TestBootstrapIsInterrupted: a node whose process ends between any two changes that
// Bootstrap makes to the log can be bootstrapped when it is started again. What it had
// written makes it neither a member that waits for others for ever nor one that has lost
// its log.
func TestBootstrapIsInterrupted(t *testing.T) {
	var images []string // of the data directory, before the first change and after each
	var taking atomic.Bool
	var dir string
	take := func() {
		image := filepath.Join(t.TempDir(), "image")
		must.OK(t, os.CopyFS(image, os.DirFS(dir)))
		images = append(images, image)
	}
	c := &cluster{t: t, ca: newTestCA(t), nodes: map[proto.NodeID]*testNode{}, config: func(cfg *Config) {
		cfg.TestHooks.Commit = func(file string, commit func() error) error {
			err := commit()
			if ofLog(file) && taking.Load() {
				take()
			}
			return err
		}
	}}
	m := c.add("a")
	dir = m.dir
	self := []Server{{ID: m.id, Address: m.addr, Voter: true}}
	take()
	taking.Store(true)
	must.OK(t, m.Bootstrap(self, "test"))
	taking.Store(false)
	c.close(m)
	if len(images) < 3 {
		t.Fatalf("Bootstrap made %d changes", len(images)-1)
	}
	for i, image := range images {
		t.Run(fmt.Sprintf("after %d changes", i), func(t *testing.T) {
			c.t = t
			m.dir = image
			c.open(m)
			defer c.close(m)
			must.OK(t, m.Bootstrap(self, "test"))
			c.leader()
		})
	}
}
