package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
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
			r := request{method: http.MethodGet, path: b.path(rand.IntN(b.objects)), query: query, header: plain}
			return b.conn(w).do(ctx, r, &bufs[w])
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
			body, err := b.conn(w).open(ctx, request{method: http.MethodGet, path: b.collection(), query: query, header: plain})
			if err != nil {
				return err
			}
			defer body.Close()
			n, err := io.Copy(io.Discard, body)
			if err == nil && n < int64(expected*valueSize) {
				err = fmt.Errorf("a list of %d objects has only %d bytes", expected, n)
			}
			return err
		}), nil
	}
}
