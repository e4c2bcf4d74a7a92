package raftstore

import (
	"sync"

	"github.com/hashicorp/raft"
)

// pipeline passes a raft pipeline on and tells the nudger what was acknowledged.
type pipeline struct {
	raft.AppendPipeline
	out  chan raft.AppendFuture
	done chan struct{}
	once sync.Once
}

func newPipeline(n *nudger, id raft.ServerID, addr raft.ServerAddress, inner raft.AppendPipeline) *pipeline {
	p := &pipeline{AppendPipeline: inner, out: make(chan raft.AppendFuture), done: make(chan struct{})}
	n.ended.Add(1)
	go func() {
		defer n.ended.Done()
		for {
			var f raft.AppendFuture
			select {
			case f = <-inner.Consumer():
			case <-p.done:
				return
			}
			if f.Error() == nil && f.Response().Success {
				n.note(id, addr, f.Request())
			}
			select {
			case p.out <- f:
			case <-p.done:
				return
			}
		}
	}()
	return p
}

func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.out }

func (p *pipeline) Close() error {
	p.once.Do(func() { close(p.done) })
	return p.AppendPipeline.Close()
}
