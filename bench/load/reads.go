package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"

	"github.com/quorate/quorate/bench/client"
)

// listWorkers is how many lists run at once.
const listWorkers = 4

// whole asks for all objects.
const whole = 0

// getter reads single objects at random.
func getter(query string) func(context.Context, *bench) (outcome, error) {
	return func(ctx context.Context, b *bench) (outcome, error) {
		bufs := make([]bytes.Buffer, b.workers)
		return closedLoop(ctx, b.workers, b.duration, func(ctx context.Context, w, _ int) error {
			r := client.Request{Method: http.MethodGet, Path: b.path(rand.IntN(b.objects)), Query: query, Header: client.Plain}
			_, err := b.conn(w).Do(ctx, r, &bufs[w])
			return err
		}), nil
	}
}

// lister reads the collection, or its first page. An answer that is too short
// to hold the objects' values is an error.
func lister(query string, limit int) func(context.Context, *bench) (outcome, error) {
	return func(ctx context.Context, b *bench) (outcome, error) {
		expected := b.objects
		if limit != whole {
			expected = min(limit, expected)
		}
		return closedLoop(ctx, listWorkers, b.duration, func(ctx context.Context, w, _ int) error {
			resp, err := b.conn(w).Open(ctx, client.Request{Method: http.MethodGet, Path: b.collection(), Query: query, Header: client.Plain})
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			n, err := io.Copy(io.Discard, resp.Body)
			if err == nil && n < int64(expected*valueSize) {
				err = fmt.Errorf("a list of %d objects has only %d bytes", expected, n)
			}
			return err
		}), nil
	}
}
