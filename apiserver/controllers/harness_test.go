package controllers

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/crd"
	"github.com/quorate/quorate/apiserver/fairness"
	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/memstore"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// patience bounds every wait of a test.
const patience = 10 * time.Second

// env is the objects of a server on a memory store, and Loops over them.
type env struct {
	t       testing.TB
	store   *memstore.Store
	objects *objects.Store
	client  objects.Client
	loops   *Loops
	seen    *counts
}

func newEnv(t testing.TB, cfg Config) *env {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	store := memstore.New()
	reader := consistency.NewReader(store, consistency.Options{Grace: -1, UnconfirmedTimeout: 100 * time.Millisecond})
	registry, err := kinds.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	definitions := crd.New(store, registry, log)
	api, err := apiserver.New(apiserver.Config{Store: store, Reads: reader, Kinds: definitions.Current, GarbageCollector: true, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	e := &env{t: t, store: store, objects: api.Objects(), client: objects.NewClient(api.Objects()), seen: &counts{running: map[string]bool{}, failed: map[string]int{}}}
	cfg.Published, cfg.Definitions, cfg.FlowControl = store.Published, definitions, fairness.NewView(store, log)
	cfg.Observer, cfg.Log = e.seen, log
	e.loops = NewLoops(e.objects, cfg)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := api.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		reader.Close()
		if err := store.Close(); err != nil {
			t.Errorf("close store: %v", err)
		}
	})
	if err := e.loops.EnsureNamespaces(t.Context()); err != nil {
		t.Fatal(err)
	}
	return e
}

// run runs the controllers of the configuration until the end of the test.
func (e *env) run() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.loops.Run(ctx, newLeadership(true)) }()
	e.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			e.t.Error(err)
		}
	})
}

// await waits until wrong says nothing more.
func (e *env) await(what string, wrong func() string) {
	e.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		reason := wrong()
		if reason == "" {
			return
		}
		if time.Now().After(deadline) {
			e.t.Fatalf("%s: %s", what, reason)
		}
		time.Sleep(5 * time.Millisecond)
	}
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
	if err != nil {
		e.t.Fatal(err)
	}
	for _, v := range page.Versions {
		keys = append(keys, v.Key)
	}
	return keys
}
