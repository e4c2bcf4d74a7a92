package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/measure"
)

const (
	watcherCount = 200
	watchPatches = 1000
)

// watchers patches objects under the eyes of many watchers. An operation is one
// event delivered to one watcher; its latency is the time since the patch was
// sent. The CPU time is that of patches and deliveries together.
func watchers(ctx context.Context, b *bench, t *tally) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	streams, err := b.openWatches(ctx)
	defer func() {
		for _, s := range streams {
			s.Close()
		}
	}()
	if err != nil {
		return err
	}

	var wg sync.WaitGroup
	begin := time.Now()
	for _, s := range streams {
		wg.Go(func() {
			latency := measure.NewHistogram()
			err := follow(s, watchPatches, latency)
			t.mu.Lock()
			defer t.mu.Unlock()
			t.parts[0].latency.Merge(latency.Histogram)
			if err != nil {
				t.errors++
				t.parts[0].errors++
				t.first = err
			}
		})
	}
	bufs := make([]bytes.Buffer, b.Workers)
	patches := newTally(1)
	each(ctx, b.Workers, watchPatches, patches, func(ctx context.Context, w, i int) error {
		return b.operate(ctx, patch, w, b.mine(w, i/b.Workers, b.Workers), &bufs[w])
	})
	if patches.errors > 0 {
		cancel() // the watchers would wait in vain
	}
	wg.Wait()
	t.elapsed, t.cut = time.Since(begin), errors.Is(ctx.Err(), context.Canceled)
	if patches.errors > 0 {
		return fmt.Errorf("patch under watch: %w", patches.first)
	}
	return nil
}

// openWatches starts all watches from now on, spread over the connections.
func (b *bench) openWatches(ctx context.Context) ([]io.ReadCloser, error) {
	var (
		streams []io.ReadCloser
		buf     bytes.Buffer
	)
	if _, err := b.conn(0).Do(ctx, client.Request{Method: http.MethodGet, Path: b.collection(), Query: "limit=1", Header: client.Plain}, &buf); err != nil {
		return nil, err
	}
	v, err := client.VersionOf(buf.Bytes())
	if err != nil {
		return nil, err
	}
	query := "watch=true&resourceVersion=" + string(v)
	for i := range watcherCount {
		s, err := b.conn(i).Open(ctx, client.Request{Method: http.MethodGet, Path: b.collection(), Query: query, Header: client.Plain})
		if err != nil {
			return streams, fmt.Errorf("start watch %d: %w", i, err)
		}
		streams = append(streams, s.Body)
	}
	return streams, nil
}

var errNoRound = errors.New("an event has no round label")

// follow reads n events from a watch and records how old each one is.
func follow(stream io.Reader, n int, latency measure.Histogram) error {
	r := bufio.NewReaderSize(stream, 64<<10)
	for range n {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return fmt.Errorf("read an event: %w", err)
		}
		sent, ok := roundOf(line)
		if !ok {
			return fmt.Errorf("%w: %.200s", errNoRound, line)
		}
		latency.RecordTime(time.Duration(time.Now().UnixNano() - sent))
	}
	return nil
}
