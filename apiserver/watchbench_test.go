package apiserver_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/internal/cputime"
	"github.com/quorate/quorate/proto"
)

// flushed is a connection that costs nothing.
type flushed struct{ discard }

func (*flushed) Flush() {}

// BenchmarkWatch writes one object under the eyes of 1,000 watches: the whole way of events from
// their publication to connections that cost nothing. An operation is one event to all of them,
// or 128 that come at once.
func BenchmarkWatch(b *testing.B) {
	for _, events := range []int{1, 128} {
		b.Run(fmt.Sprint("events-", events), func(b *testing.B) { benchmarkWatch(b, 1000, events, kib) })
	}
}

// BenchmarkWatchLarge sends one large object to 64 watches, whose connections cost nothing. An operation is one
// event to all of them.
func BenchmarkWatchLarge(b *testing.B) {
	for _, kib := range []int{16, 64, 128, 1024} {
		b.Run(fmt.Sprint("KiB-", kib), func(b *testing.B) { benchmarkWatch(b, 64, 1, strings.Repeat("x", kib<<10)) })
	}
}

// benchmarkWatch measures events of an object with some data, so many at once, to so many watches.
func benchmarkWatch(b *testing.B, watches, events int, data string) {
	o := &watchBytes{}
	e := newEnv(b, func(c *apiserver.Config) { c.Observer = o })
	serve(b, e, 201, http.MethodPost, maps, "application/json", object(0))
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for range watches {
		r := httptest.NewRequest(http.MethodGet, maps+"?watch=1&resourceVersion="+e.mem.Applied().String(), nil)
		wg.Go(func() { e.api.ServeHTTP(&flushed{discard{header: http.Header{}}}, r.WithContext(ctx)) })
	}
	value := []byte(`{"metadata":{"name":"cm-0","namespace":"default"},"data":{"k":"` + data + `"}}`)
	sent := o.events.Load()
	tell := func(n int) {
		sent += int64(n * watches)
		for range n {
			if _, err := e.mem.Propose(ctx, &proto.Write{Table: "configmaps", Key: "default/cm-0", Op: proto.Op_OP_PUT, Value: value}); err != nil {
				b.Fatal(err)
			}
		}
		for o.events.Load() < sent {
			time.Sleep(10 * time.Microsecond)
		}
	}
	tell(1) // all watches have begun
	cputime.PerOp(b)
	for b.Loop() {
		tell(events)
	}
}
