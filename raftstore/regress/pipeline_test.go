package regress

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/internal/must"
)

// TestFailedPipelineIsContact: in a pipeline, raft.NetworkTransport hands on
// every request when its time is over, answered or not, and raft notes "contact"
// for whatever it is handed (pipelineDecode never asks for the error). So a
// follower that does not answer prolongs the leader's lease.
func TestFailedPipelineIsContact(t *testing.T) {
	virtual(t, func(t *testing.T) {
		pitfall(t, handedOn(t, pipeNetwork.library), "a request without an answer was not handed on")
	})
	virtual(t, func(t *testing.T) {
		if handedOn(t, pipeNetwork.ours) {
			t.Error("cure: peer.Transport handed on a request without an answer")
		}
	})
}

// handedOn reports whether a pipeline's consumer gets a request that the peer
// has taken and never answers.
func handedOn(t *testing.T, join func(pipeNetwork, raft.ServerID) transport) bool {
	t.Helper()
	p := newPipes()
	a, b := join(p, "a"), join(p, "b")
	defer a.Close()
	defer func() {
		b.Close()
		if tr, ok := b.(interface{ CloseStreams() }); ok {
			tr.CloseStreams()
		}
	}()
	line, err := a.AppendEntriesPipeline("b", "b")
	must.OK(t, err)
	defer line.Close()
	if _, err := line.AppendEntries(&raft.AppendEntriesRequest{Term: 1}, &raft.AppendEntriesResponse{}); err != nil {
		t.Fatal(err)
	}
	<-b.Consumer()
	select {
	case <-line.Consumer():
		return true
	case <-time.After(time.Minute):
		return false
	}
}
