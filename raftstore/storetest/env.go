package storetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/watch"
)

// env is one test's view of a store: a table of its own and a bounded context.
type env struct {
	t     *testing.T
	s     Store
	ctx   context.Context
	table string
}

func unique() string { return rand.Text()[:8] }

// object is a value with a slot for its revision.
func object(name string) (value []byte, offset uint32) {
	value = fmt.Appendf(nil, `{"name":%q,"rv":""}`, name)
	return value, uint32(len(value) - 2)
}

func stored(name string, rev proto.Revision) []byte {
	return fmt.Appendf(nil, `{"name":%q,"rv":"%d"}`, name, rev)
}

// put returns a write of key with the value name.
func (e *env) put(key, name string) *proto.Write {
	w := &proto.Write{Table: e.table, Key: key, Op: proto.Op_OP_PUT, Uid: "uid-" + key}
	w.Value, w.RevisionOffset = object(name)
	return w
}

func (e *env) del(key string) *proto.Write {
	return &proto.Write{Table: e.table, Key: key, Op: proto.Op_OP_DELETE}
}

// do proposes and demands an outcome.
func (e *env) do(w *proto.Write, want proto.Outcome) mvcc.Result {
	e.t.Helper()
	r, err := e.s.Propose(e.ctx, w)
	if err != nil {
		e.t.Fatalf("propose %v %s: %v", w.Op, w.Key, err)
	}
	if r.Outcome != want {
		e.t.Fatalf("propose %v %s: %v, want %v", w.Op, w.Key, r.Outcome, want)
	}
	return r
}

func (e *env) apply(w *proto.Write) mvcc.Result {
	e.t.Helper()
	return e.do(w, proto.Outcome_OUTCOME_APPLIED)
}

// get reads key as of revision at from this node's state.
func (e *env) get(key string, at proto.Revision) *mvcc.Version {
	e.t.Helper()
	t := e.s.State().Table(e.table)
	if t == nil {
		return nil
	}
	v, err := t.Get(key, at)
	if err != nil {
		e.t.Fatalf("get %s at %d: %v", key, at, err)
	}
	return v
}

func (e *env) mustBe(key, name string, rev proto.Revision) {
	e.t.Helper()
	v := e.get(key, e.s.State().Applied())
	switch {
	case v == nil:
		e.t.Fatalf("%s is absent, want revision %d", key, rev)
	case v.Revision != rev || !bytes.Equal(v.Value(), stored(name, rev)):
		e.t.Fatalf("%s is %s at %d, want %s", key, v.Value(), v.Revision, stored(name, rev))
	}
}

func (e *env) watch(after proto.Revision, interest mvcc.Interest) *watch.Watcher {
	e.t.Helper()
	w, err := e.s.Watch(e.table, after, interest)
	if err != nil {
		e.t.Fatalf("watch after %d: %v", after, err)
	}
	e.t.Cleanup(w.Close)
	return w
}

// event is what a watcher saw.
type event struct {
	key     string
	rev     proto.Revision
	deleted bool
}

// follow reads events, waiting for Wake alone, until done says so. It demands
// that revisions rise and that progress never passes an event that comes later.
func (e *env) follow(w *watch.Watcher, done func([]event) bool) ([]event, error) {
	var all []event
	var last, read proto.Revision
	buf := make([]*mvcc.Version, 7)
	for {
		n, progress, err := w.Next(buf)
		if err != nil {
			return all, err
		}
		for _, v := range buf[:n] {
			if v.Revision <= last || v.Revision <= read {
				return all, fmt.Errorf("event %d of %s after %d, with progress %d", v.Revision, v.Key, last, read)
			}
			last = v.Revision
			all = append(all, event{v.Key, v.Revision, v.Deleted})
		}
		if progress < last || progress < read {
			return all, fmt.Errorf("progress %d after %d and event %d", progress, read, last)
		}
		read = progress
		if done(all) {
			return all, nil
		}
		if n == len(buf) {
			continue
		}
		select {
		case <-w.Wake():
		case <-e.ctx.Done():
			return all, fmt.Errorf("nothing wakes after %d events, the last at %d: %w", len(all), last, e.ctx.Err())
		}
	}
}

// promptly fails if f does not return within a second after its context ended.
func (e *env) promptly(what string, f func(context.Context) error) {
	e.t.Helper()
	ctx, cancel := context.WithCancel(e.ctx)
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	cancel()
	select {
	case err := <-done:
		if err == nil {
			e.t.Errorf("%s: no error after its context ended", what)
		}
	case <-time.After(time.Second):
		e.t.Errorf("%s: still waits a second after its context ended", what)
	}
}
