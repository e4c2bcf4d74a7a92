package controllers

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/access/fairness"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/objects/objectstest"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/memstore"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/view"
)

// patience bounds every wait of a test.
const patience = 10 * time.Second

// env is objects on a memory store, and a Manager over them. Its base is for controllers that a test makes itself.
type env struct {
	base
	t       testing.TB
	store   *memstore.Store
	client  objects.Client
	manager *Manager
	seen    *counts
	stop    func() // ends what run has begun; the test's end does, too
}

func newEnv(t testing.TB, cfg Config) *env {
	t.Helper()
	return newEnvOn(objectstest.NewStore(t, objectstest.Options{Now: time.Now}), t, cfg)
}

// newJudgedEnv is newEnv with a plugin, which may panic.
func newJudgedEnv(t testing.TB, cfg Config, j *judge) *env {
	t.Helper()
	return newEnvOn(objectstest.NewStore(t, objectstest.Options{
		Now: time.Now, Panicked: func() { j.panics.Add(1) },
		Admission: func(view.Store, auth.Authorizer) []admission.Named {
			return []admission.Named{{Name: "judge", Plugin: j}}
		},
	}), t, cfg)
}

func newEnvOn(s *objectstest.Store, t testing.TB, cfg Config) *env {
	t.Helper()
	cfg.Log = slog.New(slog.DiscardHandler)
	cfg.Published, cfg.Definitions, cfg.FlowControl = s.Memory.Published, s.Definitions, fairness.NewView(s.Memory, cfg.Log)
	seen := &counts{running: map[string]bool{}, failed: map[string]int{}}
	cfg.Observer = seen
	api := objects.NewClient(s.Store)
	e := &env{base: base{s.Store, api, newReports(cfg.Log, "test", seen)}, t: t, store: s.Memory, client: api, manager: NewManager(s.Store, cfg), seen: seen}
	must.OK(t, EnsureNamespaces(t.Context(), s.Store))
	return e
}

// run runs the controllers of the configuration until the end of the test.
func (e *env) run() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.manager.Run(ctx, newLeadership(true)) }()
	e.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			e.t.Error(err)
		}
	})
	e.t.Cleanup(e.stop)
}

// await waits until wrong says nothing more.
func (e *env) await(what string, wrong func() string) {
	e.t.Helper()
	e.awaitFor(patience, what, wrong)
}

// awaitFor is await for what takes a while.
func (e *env) awaitFor(patience time.Duration, what string, wrong func() string) {
	e.t.Helper()
	must.Await(e.t, patience, what, wrong)
}

// write writes a row as a node's other parts do.
func (e *env) write(w *proto.Write) {
	e.t.Helper()
	w.RequestId = []byte(strings.Repeat(w.Table+w.Key+w.Op.String(), 16))[:16]
	if _, err := e.store.Propose(e.t.Context(), w); err != nil {
		e.t.Fatal(err)
	}
}

// keys are the live keys of a table.
func (e *env) keys(table string) (keys []string) {
	e.t.Helper()
	state := e.store.State()
	t := state.Table(table)
	if t == nil {
		return nil
	}
	page, err := t.Range(mvcc.Query{At: state.Applied()})
	must.OK(e.t, err)
	for _, v := range page.Versions {
		keys = append(keys, v.Key)
	}
	return keys
}
