package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/quorate/quorate/bench/client"
)

// create makes all objects; it ends with them and not with the time.
func create(ctx context.Context, b *bench) (outcome, error) {
	bodies := make([][]byte, b.objects)
	for i := range bodies {
		bodies[i] = object(b.namespace, i, b.round, "")
	}
	bufs := make([]bytes.Buffer, b.workers)
	return closedLoop(ctx, b.workers, 0, func(ctx context.Context, w, n int) error {
		i := n*b.workers + w
		if i >= b.objects {
			return errDone
		}
		return b.write(ctx, w, i, client.Request{Method: http.MethodPost, Path: b.collection(), Header: client.JSONBody, Body: bodies[i]}, &bufs[w])
	}), nil
}

// write sends a write of object i and remembers its new version.
func (b *bench) write(ctx context.Context, w, i int, r client.Request, buf *bytes.Buffer) error {
	if _, err := b.conn(w).Do(ctx, r, buf); err != nil {
		return err
	}
	v, err := versionOf(buf.Bytes())
	if err == nil {
		b.versions[i] = append(b.versions[i][:0], v...)
	}
	return err
}

// learnVersions reads the versions of objects that an earlier run has made.
func learnVersions(ctx context.Context, b *bench) error {
	if b.versions[0] != nil {
		return nil
	}
	out := closedLoop(ctx, b.workers, 0, func() operation {
		bufs := make([]bytes.Buffer, b.workers)
		return func(ctx context.Context, w, n int) error {
			i := n*b.workers + w
			if i >= b.objects {
				return errDone
			}
			return b.write(ctx, w, i, client.Request{Method: http.MethodGet, Path: b.path(i), Header: client.Plain}, &bufs[w])
		}
	}())
	if out.errors > 0 {
		return fmt.Errorf("read the objects' versions: %w", out.first)
	}
	return nil
}

// mine is the object that worker w writes in its nth operation.
func (b *bench) mine(w, n int) int {
	share := (b.objects - w + b.workers - 1) / b.workers
	return n%share*b.workers + w
}

// update replaces objects on the condition of their version.
func update(ctx context.Context, b *bench) (outcome, error) {
	// Two encodings of each object, used in turns, so that each update changes something.
	turns := [2][]replacement{make([]replacement, b.objects), make([]replacement, b.objects)}
	for t := range turns {
		b.round++
		for i := range turns[t] {
			turns[t][i] = newReplacement(b.namespace, i, b.round)
		}
	}
	bufs, times := make([]bytes.Buffer, b.workers), make([]int, b.objects)
	return closedLoop(ctx, b.workers, b.duration, func(ctx context.Context, w, n int) error {
		i := b.mine(w, n)
		times[i]++
		body := turns[times[i]%2][i].at(b.versions[i])
		return b.write(ctx, w, i, client.Request{Method: http.MethodPut, Path: b.path(i), Header: client.JSONBody, Body: body}, &bufs[w])
	}), nil
}

// patch changes one label of objects.
func patch(ctx context.Context, b *bench) (outcome, error) {
	bufs := make([]bytes.Buffer, b.workers)
	return closedLoop(ctx, b.workers, b.duration, b.patcher(bufs)), nil
}

// patcher patches objects. The round that it writes is the time of its start.
func (b *bench) patcher(bufs []bytes.Buffer) operation {
	return func(ctx context.Context, w, n int) error {
		i := b.mine(w, n)
		body := mergePatch(time.Now().UnixNano())
		return b.write(ctx, w, i, client.Request{Method: http.MethodPatch, Path: b.path(i), Header: client.MergeBody, Body: body}, &bufs[w])
	}
}

// apply applies the whole of objects, as kubectl apply --server-side does, with one
// label that is new each time.
func apply(ctx context.Context, b *bench) (outcome, error) {
	bufs, bodies := make([]bytes.Buffer, b.workers), make([]replacement, b.objects)
	for i := range bodies {
		bodies[i] = newConfiguration(b.namespace, i)
	}
	return closedLoop(ctx, b.workers, b.duration, func(ctx context.Context, w, n int) error {
		i := b.mine(w, n)
		body := bodies[i].at(strconv.AppendInt(nil, time.Now().UnixNano(), 10))
		return b.write(ctx, w, i, client.Request{Method: http.MethodPatch, Path: b.path(i), Query: "fieldManager=bench&force=true", Header: client.ApplyBody, Body: body}, &bufs[w])
	}), nil
}
