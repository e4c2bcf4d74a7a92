package burst

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/measure"
)

// What others send meanwhile, to each node.
const (
	getters    = 6 // a get each 300 ms
	getEvery   = 300 * time.Millisecond
	leases     = 8 // a renewal each second
	renewEvery = time.Second
	readyEvery = 200 * time.Millisecond
	// watchWithin is how long a watch may take for the last events.
	watchWithin = 10 * time.Second
)

// series is what one sort of request of others has seen.
type series struct {
	name string
	*measure.Tally
}

// awaitBegun waits until all watches have had the state that they begin with: each patch from then on is an event.
func (b *Burst) awaitBegun(ctx context.Context) error {
	late := time.NewTimer(watchWithin)
	defer late.Stop()
	for i, w := range b.watches {
		select {
		case <-w.whole:
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			return fmt.Errorf("the watch at %s does not begin", b.target.Nodes[i].Name)
		}
	}
	return nil
}

// unanswered is how long a request of another client may be under way when the burst ends, before it counts as failed.
const unanswered = 10 * time.Second

// repeat does something again and again until ctx ends. Its latency counts from when it was due: who waits for an answer
// is late with the next request, as a node is with its lease.
func (b *Burst) repeat(ctx context.Context, s *series, every, first time.Duration, do func(ctx context.Context) error) {
	b.watching.Go(func() {
		due := time.Now().Add(first)
		for {
			measure.Pause(ctx, time.Until(due))
			if ctx.Err() != nil {
				return
			}
			err := do(ctx)
			if ctx.Err() != nil {
				if took := time.Since(due); took > unanswered {
					s.Note(took, 0, fmt.Errorf("no answer within %s", took.Round(time.Second)))
				}
				return
			}
			s.Note(time.Since(due), 0, err)
			if due = due.Add(every); err != nil {
				due = time.Now().Add(every)
			}
		}
	})
}

func (b *Burst) nodeName(i int) string { return fmt.Sprintf("%s-%d", b.namespace, i) }

func (b *Burst) prepareOthers(ctx context.Context) error {
	make := func(path, body string, args ...any) error {
		if _, err := b.admin.Do(ctx, 0, http.MethodPost, path, fmt.Appendf(nil, body, args...)); err != nil {
			return fmt.Errorf("make what others use: %w", err)
		}
		return nil
	}
	if err := make("/api/v1/namespaces/"+b.namespace+"/configmaps", `{"metadata":{"name":"other"},"data":{"a":"b"}}`); err != nil {
		return err
	}
	for i := range b.admin.Links {
		if err := make("/api/v1/nodes", `{"metadata":{"name":%q}}`, b.nodeName(i)); err != nil {
			return err
		}
		for j := range leases {
			if err := make("/apis/coordination.k8s.io/v1/namespaces/"+b.namespace+"/leases", `{"metadata":{"name":"lease-%d-%d"},"spec":{"holderIdentity":"other","leaseDurationSeconds":15}}`, i, j); err != nil {
				return err
			}
		}
	}
	return nil
}

// startOthers starts what is not part of the burst, until ctx ends.
func (b *Burst) startOthers(ctx context.Context) {
	add := func(name string) *series {
		s := &series{name, measure.NewTally()}
		b.others = append(b.others, s)
		return s
	}
	gets, renewals, statuses, ready := add("get of another client"), add("lease renewal"), add("node status"), add("readyz")
	spread := func(every time.Duration, i, of int) time.Duration {
		return every * time.Duration(i) / time.Duration(of)
	}
	for n := range b.admin.Links {
		for i := range getters {
			b.repeat(ctx, gets, getEvery, spread(getEvery, i, getters), func(ctx context.Context) error {
				_, err := b.admin.Do(ctx, n, http.MethodGet, "/api/v1/namespaces/"+b.namespace+"/configmaps/other", nil)
				return err
			})
		}
		for i := range leases {
			b.repeat(ctx, renewals, renewEvery, spread(renewEvery, i, leases), b.renew(n, i))
		}
		at := 0
		b.repeat(ctx, statuses, renewEvery, 0, func(ctx context.Context) error {
			at++
			_, err := b.admin.Do(ctx, n, http.MethodPatch, "/api/v1/nodes/"+b.nodeName(n)+"/status", fmt.Appendf(nil, `{"status":{"nodeInfo":{"bootID":"%d"}}}`, at))
			return err
		})
		b.repeat(ctx, ready, readyEvery, 0, func(ctx context.Context) error {
			_, err := b.admin.Do(ctx, n, http.MethodGet, "/readyz", nil)
			return err
		})
		w := &watch{seen: map[uint64]struct{}{}, whole: make(chan struct{})}
		b.watches = append(b.watches, w)
		b.watching.Go(func() { w.run(ctx, b, n) })
	}
}

// renew renews a lease as nodes do: with an update of what was answered last.
func (b *Burst) renew(node, i int) func(ctx context.Context) error {
	path := fmt.Sprintf("/apis/coordination.k8s.io/v1/namespaces/%s/leases/lease-%d-%d", b.namespace, node, i)
	var last map[string]any
	return func(ctx context.Context) error {
		if last == nil {
			raw, err := b.admin.Do(ctx, node, http.MethodGet, path, nil)
			if err == nil {
				err = json.Unmarshal(raw, &last)
			}
			if err != nil {
				return err
			}
		}
		last["spec"].(map[string]any)["renewTime"] = time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")
		body, err := json.Marshal(last)
		if err != nil {
			return err
		}
		last = nil
		raw, err := b.admin.Do(ctx, node, http.MethodPut, path, body)
		if err != nil {
			return err
		}
		return json.Unmarshal(raw, &last)
	}
}

// watch is one of the Deployments, at a node.
type watch struct {
	begun  sync.Once
	events atomic.Int64
	cut    atomic.Int64
	// Read when it has ended: why it was cut, and the revisions of its events.
	first string
	seen  map[uint64]struct{}
	last  atomic.Uint64 // the highest of them
	whole chan struct{} // closed when the watch has had the state that it begins with
}

// event notes an event.
func (w *watch) event(line []byte) {
	if bytes.HasPrefix(line, []byte(`{"type":"BOOKMARK"`)) {
		// It has a revision, and is the event of none.
		w.begun.Do(func() { close(w.whole) })
		return
	}
	w.events.Add(1)
	digits, _ := client.VersionOf(line)
	if revision, err := strconv.ParseUint(string(digits), 10, 64); err == nil {
		w.seen[revision] = struct{}{}
		w.last.Store(max(revision, w.last.Load()))
	}
}

// awaitWatches waits, for a while, until all watches have the newest patch that was acknowledged.
func (b *Burst) awaitWatches(ctx context.Context) {
	var newest uint64
	b.mu.Lock()
	for _, w := range b.newest {
		newest = max(newest, w.revision)
	}
	b.mu.Unlock()
	late := time.Now().Add(watchWithin)
	for _, w := range b.watches {
		for w.last.Load() < newest && w.cut.Load() == 0 && time.Now().Before(late) && ctx.Err() == nil {
			measure.Pause(ctx, readyEvery)
		}
	}
}

// run watches until ctx ends. A watch that is cut is opened again at the present.
func (w *watch) run(ctx context.Context, b *Burst, node int) {
	for ctx.Err() == nil {
		err := w.follow(ctx, b, node)
		if ctx.Err() != nil {
			return
		}
		if w.cut.Add(1) == 1 {
			w.first = err.Error()
		}
		measure.Pause(ctx, readyEvery)
	}
}

func (w *watch) follow(ctx context.Context, b *Burst, node int) error {
	resp, err := b.admin.Links[node].Open(ctx, client.Request{
		Method: http.MethodGet, Path: b.deployments(), Query: "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", Header: client.Plain,
	})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	in := bufio.NewReaderSize(resp.Body, 64<<10)
	for {
		if line, err := in.ReadSlice('\n'); err == nil {
			w.event(line)
		} else if !errors.Is(err, bufio.ErrBufferFull) {
			return fmt.Errorf("the watch has ended: %w", err)
		}
	}
}
