package main

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

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/quorate/quorate/bench/client"
)

const (
	watchers     = 200
	watchPatches = 1000
	// watchPatience bounds the wait for the last event.
	watchPatience = 2 * time.Minute
)

// watch patches objects under the eyes of many watchers. An operation is one
// event delivered to one watcher; its latency is the time since the patch was
// sent. The CPU time is that of patches and deliveries together.
func watch(ctx context.Context, b *bench) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, watchPatience)
	defer cancel()
	streams, err := b.openWatches(ctx)
	defer func() {
		for _, s := range streams {
			s.Close()
		}
	}()
	if err != nil {
		return outcome{}, err
	}

	var (
		out   = outcome{latency: newLatency()}
		wg    sync.WaitGroup
		mu    sync.Mutex // guards out
		begin = time.Now()
	)
	for _, s := range streams {
		wg.Go(func() {
			latency := newLatency()
			err := follow(s, watchPatches, latency)
			mu.Lock()
			defer mu.Unlock()
			out.latency.Merge(latency)
			if err != nil {
				out.errors++
				out.first = err
			}
		})
	}
	bufs := make([]bytes.Buffer, b.workers)
	one := b.patcher(bufs)
	patches := closedLoop(ctx, b.workers, 0, func(ctx context.Context, w, n int) error {
		if n*b.workers+w >= watchPatches {
			return errDone
		}
		return one(ctx, w, n)
	})
	if patches.errors > 0 {
		cancel() // the watchers would wait in vain
	}
	wg.Wait()
	out.elapsed = time.Since(begin)
	if patches.errors > 0 {
		return out, fmt.Errorf("patch under watch: %w", patches.first)
	}
	return out, nil
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
	v, err := versionOf(buf.Bytes())
	if err != nil {
		return nil, err
	}
	query := "watch=true&resourceVersion=" + string(v)
	for i := range watchers {
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
func follow(stream io.Reader, n int, latency *hdrhistogram.Histogram) error {
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
		age := time.Duration(time.Now().UnixNano() - sent)
		if err := latency.RecordValue(min(age.Microseconds(), 60_000_000)); err != nil {
			return err
		}
	}
	return nil
}
