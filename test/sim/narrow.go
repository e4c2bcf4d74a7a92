package sim

import (
	"context"

	"github.com/hashicorp/raft"
)

// setNarrow makes the links of a machine let only small messages through, or all
// again.
func (n *network) setNarrow(name string, others []*seat, narrow bool) {
	n.change(func(at func(string, string) *link) {
		for _, s := range others {
			at(name, s.name).narrow, at(s.name, name).narrow = narrow, narrow
		}
	})
}

// wide waits until large messages get through to a machine.
func (h *host) wide(ctx context.Context, to string) error {
	for {
		h.net.mu.Lock()
		narrow, changed := h.net.linkLocked(h.name, to).narrow, h.net.changed
		h.net.mu.Unlock()
		if !narrow {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// narrowing is a Transport whose entries need a wide path, and with them the
// messages that follow them on their stream. Heartbeats have a stream of their own.
type narrowing struct {
	*doubling
	host *host
}

func (t *narrowing) pass(to raft.ServerID, req *raft.AppendEntriesRequest) error {
	if len(req.Entries) == 0 && req.PrevLogEntry == 0 && req.LeaderCommitIndex == 0 {
		return nil // a heartbeat
	}
	ctx, cancel := context.WithTimeout(context.Background(), rpcTimeout)
	defer cancel()
	return t.host.wide(ctx, string(to))
}

func (t *narrowing) AppendEntries(id raft.ServerID, to raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if err := t.pass(id, req); err != nil {
		return err
	}
	return t.doubling.AppendEntries(id, to, req, resp)
}

func (t *narrowing) AppendEntriesPipeline(id raft.ServerID, to raft.ServerAddress) (raft.AppendPipeline, error) {
	p, err := t.doubling.AppendEntriesPipeline(id, to)
	if err != nil {
		return nil, err
	}
	return &narrowPipeline{p, t, id}, nil
}

type narrowPipeline struct {
	raft.AppendPipeline
	t  *narrowing
	to raft.ServerID
}

func (p *narrowPipeline) AppendEntries(req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	if err := p.t.pass(p.to, req); err != nil {
		return nil, err
	}
	return p.AppendPipeline.AppendEntries(req, resp)
}
