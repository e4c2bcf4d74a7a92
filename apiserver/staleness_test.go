package apiserver_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/proto"
)

// confirmedSince is a node that finds itself current right after the state of
// each answer was taken.
type confirmedSince struct {
	apiserver.Store
	staleness atomic.Int64
}

func (c *confirmedSince) Staleness() time.Duration { return time.Duration(c.staleness.Load()) }

type confirmingReads struct {
	objects.Reads
	store *confirmedSince
}

func (r confirmingReads) Await(ctx context.Context, p consistency.Plan) (proto.Revision, error) {
	at, err := r.Reads.Await(ctx, p)
	r.store.staleness.Store(0)
	return at, err
}

// TestHeaderVouchesForItsAnswer: X-Quorate-Staleness bounds the state that the
// answer is from, not the one that the node has when the header is written. And
// it is a bound: no part of a millisecond is cut off.
func TestHeaderVouchesForItsAnswer(t *testing.T) {
	var store *confirmedSince
	e := newEnv(t, func(c *apiserver.Config) {
		store = &confirmedSince{Store: c.Store}
		c.Store, c.Reads = store, confirmingReads{c.Reads, store}
	})
	if w, answer := e.do(http.MethodPost, maps, nil, `{"metadata":{"name":"a"}}`); w.StatusCode != http.StatusCreated {
		t.Fatal(answer)
	}
	for _, path := range []string{maps + "?", maps + "/a?", maps + "?watch=true&timeoutSeconds=1&"} {
		store.staleness.Store(int64(40*time.Millisecond + time.Microsecond))
		w, answer := e.do(http.MethodGet, path+"resourceVersion=0", nil, "")
		if w.StatusCode != http.StatusOK {
			t.Fatal(answer)
		}
		if got := w.Header.Get(apiserver.HeaderStaleness); got != "41" {
			t.Errorf("%s: the header says %q of a state that was 40.001 ms old", path, got)
		}
	}
}
