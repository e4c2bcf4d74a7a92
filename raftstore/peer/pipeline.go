package peer

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// pipeline sends AppendEntries on one stream without waiting for the answer to
// the one before. Two are under way at most: more add to the latency of commits
// and hardly to the throughput (hashicorp/raft#541).
//
// Raft calls AppendEntries from one goroutine and reads Consumer from another.
type pipeline struct {
	t        *Transport
	s        *stream
	inflight chan *appendFuture // unbuffered: one is being answered, one is sent
	answered chan raft.AppendFuture
	ended    chan struct{}
	once     sync.Once
}

// untaken is how many answers may wait for Raft. Its decoder ends at the first
// answer that refuses or has a newer term, and its sender notices only between two
// sends, by chance among other things to do: were a send to wait for the answers to
// be taken, it would wait for ever, and with it the replication to this peer and
// Raft's shutdown.
const untaken = 128

// AppendEntriesPipeline opens a pipeline to a peer.
func (t *Transport) AppendEntriesPipeline(id raft.ServerID, to raft.ServerAddress) (raft.AppendPipeline, error) {
	s, err := t.take(t.address(id, to))
	if err != nil {
		return nil, err
	}
	if err := s.SetDeadline(time.Time{}); err != nil {
		t.drop(s)
		return nil, err
	}
	p := &pipeline{
		t:        t,
		s:        s,
		inflight: make(chan *appendFuture),
		answered: make(chan raft.AppendFuture, untaken),
		ended:    make(chan struct{}),
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		s.Close()
		return nil, raft.ErrTransportShutdown
	}
	t.wg.Go(p.receive)
	return p, nil
}

// AppendEntries sends a request, and waits while two are under way. Like the
// Transport's, it may cut the batch.
func (p *pipeline) AppendEntries(req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	if err := checkTerms(req); err != nil {
		return nil, err
	}
	trim(req)
	boundCommit(req)
	f := &appendFuture{start: time.Now(), req: req, resp: resp, ready: make(chan struct{})}
	if err := p.s.SetWriteDeadline(f.start.Add(p.t.timeout)); err != nil {
		return nil, err
	}
	if err := p.s.send(kindAppendEntries, req); err != nil {
		p.Close()
		return nil, err
	}
	select {
	case p.inflight <- f:
		return f, nil
	case <-p.ended:
		return nil, raft.ErrPipelineShutdown
	}
}

// receive reads the answers. An answer that is missing or an error ends the
// pipeline and is not handed on: Raft takes whatever comes out of Consumer as a
// sign of life.
func (p *pipeline) receive() {
	defer p.Close()
	for {
		var f *appendFuture
		select {
		case f = <-p.inflight:
		case <-p.ended:
			return
		case <-p.t.done:
			return
		}
		err := p.s.SetReadDeadline(time.Now().Add(p.t.timeout))
		if err == nil {
			err = p.s.answer(f.resp)
		}
		f.finish(err)
		if err != nil {
			if err != io.EOF && !errors.Is(err, net.ErrClosed) {
				p.t.logs.Warn(p.t.logger, "Raft pipeline ended", "to", p.s.target, "err", err)
			}
			return
		}
		select {
		case p.answered <- f:
		case <-p.ended:
			return
		case <-p.t.done:
			return
		}
	}
}

// Consumer returns the futures of requests that were answered.
func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.answered }

// Close ends the pipeline and closes its stream.
func (p *pipeline) Close() error {
	p.once.Do(func() {
		close(p.ended)
		p.t.drop(p.s)
	})
	return nil
}

// appendFuture is one request of a pipeline.
type appendFuture struct {
	start time.Time
	req   *raft.AppendEntriesRequest
	resp  *raft.AppendEntriesResponse
	ready chan struct{}
	err   error // valid once ready is closed
}

func (f *appendFuture) finish(err error) {
	if err != nil {
		*f.resp = raft.AppendEntriesResponse{}
	}
	f.err = err
	close(f.ready)
}

// Error waits for the answer.
func (f *appendFuture) Error() error {
	<-f.ready
	return f.err
}

func (f *appendFuture) Start() time.Time                      { return f.start }
func (f *appendFuture) Request() *raft.AppendEntriesRequest   { return f.req }
func (f *appendFuture) Response() *raft.AppendEntriesResponse { return f.resp }
