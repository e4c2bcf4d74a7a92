package sim

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/test/history"
)

// trace is what all nodes together have applied, and who was elected when: the
// log of the cluster, and the invariants of Raft.
type trace struct {
	mu      sync.Mutex
	entries map[uint64]applied
	leaders map[uint64]string // of a term
	floor   uint64            // highest that was applied anywhere
	broken  []string
}

// applied is an entry as the first node applied it.
type applied struct {
	node    string
	term    uint64
	content uint64 // hash of type and data
	state   uint64 // hash of the state after it; 0 if it carries no command
	table   string
	version *mvcc.Version // that it made
}

func newTrace() *trace {
	return &trace{entries: map[uint64]applied{}, leaders: map[uint64]string{}}
}

func (t *trace) break_(format string, args ...any) {
	if len(t.broken) < 20 {
		t.broken = append(t.broken, fmt.Sprintf(format, args...))
	}
}

// apply is a node's raftstore.Seams.Applied.
func (t *trace) apply(node string, l *raft.Log, r mvcc.Result) {
	h := fnv.New64a()
	h.Write([]byte{byte(l.Type)})
	h.Write(l.Data)
	a := applied{node: node, term: l.Term, content: h.Sum64(), state: r.Hash, version: r.Version}
	if r.Version != nil {
		a.table = r.Table.Name()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if kind, body, err := proto.Split(l.Data); err == nil && l.Type == raft.LogCommand {
		var c proto.Compact
		if kind == proto.KindCompact && proto.Decode(body, &c) == nil {
			t.floor = max(t.floor, min(c.Floor, l.Index))
		}
	}
	before, ok := t.entries[l.Index]
	if !ok {
		t.entries[l.Index] = a
		return
	}
	switch {
	case before.term != a.term || before.content != a.content:
		t.break_("state machine safety: entry %d is of term %d on %s and of term %d on %s (same content: %v)",
			l.Index, before.term, before.node, a.term, node, before.content == a.content)
	case before.state != 0 && a.state != 0 && before.state != a.state:
		t.break_("state machines differ after entry %d: hash %016x on %s, %016x on %s", l.Index, before.state, before.node, a.state, node)
	}
}

// elected notes who leads a term.
func (t *trace) elected(node string, term uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if other, ok := t.leaders[term]; ok && other != node {
		t.break_("election safety: %s and %s were both elected in term %d", other, node, term)
	}
	t.leaders[term] = node
}

func (t *trace) violations() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.broken...)
}

// compacted is the highest floor that any node has.
func (t *trace) compacted() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.floor
}

// log returns the versions of the table that the clients use, in order.
func (t *trace) log() []history.Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []history.Entry
	for _, i := range slices.Sorted(maps.Keys(t.entries)) {
		a := t.entries[i]
		if a.version == nil || a.table != resource {
			continue
		}
		v := a.version
		out = append(out, history.Entry{Deleted: v.Deleted, Item: history.Item{
			Key: v.Key, Value: valueIn(v.Value), Revision: uint64(v.Revision),
		}})
	}
	return out
}

// valueIn finds a client's value in a stored object.
func valueIn(object []byte) string {
	_, rest, ok := bytes.Cut(object, []byte(valueOpen))
	if !ok {
		return ""
	}
	value, _, _ := bytes.Cut(rest, []byte(valueClose))
	return string(value)
}

// ear listens to a node's log lines for elections, and passes them on.
type ear struct {
	slog.Handler
	node  string
	trace *trace
}

// Enabled implements slog.Handler.
func (ear) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle implements slog.Handler.
func (e ear) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "election won" {
		r.Attrs(func(a slog.Attr) bool {
			if a.Key != "term" {
				return true
			}
			if term, ok := a.Value.Any().(uint64); ok {
				e.trace.elected(e.node, term)
			}
			return false
		})
	}
	if e.Handler == nil {
		return nil
	}
	return e.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (e ear) WithAttrs([]slog.Attr) slog.Handler { return e }

// WithGroup implements slog.Handler.
func (e ear) WithGroup(string) slog.Handler { return e }
