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
	"github.com/quorate/quorate/test/judges/history"
)

// trace is what all nodes together have applied, and who was elected when: the
// log of the cluster, and the invariants of Raft.
type trace struct {
	mu      sync.Mutex
	entries map[uint64]applied
	leaders map[uint64]string // of a term
	floor   uint64            // highest that was applied anywhere
	first   map[string]uint64 // where the log of a node begins, as far as it has said
	newest  map[string]uint64 // what a node has applied
	votes   map[ballot]string // to whom
	boxed   map[uint64]boxEntry
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
	return &trace{entries: map[uint64]applied{}, leaders: map[uint64]string{}, first: map[string]uint64{}, newest: map[string]uint64{}, votes: map[ballot]string{}, boxed: map[uint64]boxEntry{}}
}

func (t *trace) break_(format string, args ...any) {
	if len(t.broken) < 20 {
		t.broken = append(t.broken, fmt.Sprintf(format, args...))
	}
}

// apply is a node's raftstore.TestHooks.Applied.
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
	t.newest[node] = max(t.newest[node], l.Index)
	if kind, body, err := proto.Split(l.Data); err == nil && l.Type == raft.LogCommand {
		var c proto.Compact
		if kind == proto.KindCompact && proto.Decode(body, &c) == nil {
			t.floor = max(t.floor, min(c.Floor, l.Index))
		}
	}
	before, ok := t.entries[l.Index]
	if !ok {
		t.entries[l.Index] = a
		if kind, body, err := proto.Split(l.Data); err == nil && l.Type == raft.LogCommand && kind == proto.KindWrite {
			t.noteBox(l.Index, body, r)
		}
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

// ballot is a node's vote in a term.
type ballot struct {
	voter string
	term  uint64
}

// appliedOn is the newest index that a node has applied.
func (t *trace) appliedOn(node string) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.newest[node]
}

// voted notes a vote: in a term a node has one, and a candidate that gets it has all
// that the voter knew to be committed when it was asked.
func (t *trace) voted(voter string, r *raft.RequestVoteRequest, applied uint64) {
	candidate := string(r.ID)
	t.mu.Lock()
	defer t.mu.Unlock()
	b := ballot{voter, r.Term}
	if other, ok := t.votes[b]; ok && other != candidate {
		t.break_("election safety: %s voted for %s and for %s in term %d", voter, other, candidate, r.Term)
	}
	t.votes[b] = candidate
	// With entries of that very term it is the leader's own request that came again.
	newest, ok := t.entries[applied]
	if ok && newest.term < r.Term && (r.LastLogTerm < newest.term || r.LastLogTerm == newest.term && r.LastLogIndex < applied) {
		t.break_("leader completeness: %s, which has applied %d of term %d, voted in term %d for %s, whose log ends at %d of term %d",
			voter, applied, newest.term, r.Term, candidate, r.LastLogIndex, r.LastLogTerm)
	}
}

// leads reports whether a node was elected in the newest term that had a leader.
func (t *trace) leads(node string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	var newest uint64
	for term := range t.leaders {
		newest = max(newest, term)
	}
	return newest > 0 && t.leaders[newest] == node
}

// compacting notes that a node drops the entries of its log up to one.
func (t *trace) compacting(node string, to uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.first[node] = max(t.first[node], to+1)
}

// begins is where the log of a node begins, at least.
func (t *trace) begins(node string) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.first[node]
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
			Key: v.Key, Value: valueIn(v.Value()), Revision: uint64(v.Revision),
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
	switch r.Message {
	case "election won":
		if term, ok := number(&r, "term"); ok {
			e.trace.elected(e.node, term)
		}
	case "compacting logs":
		if to, ok := number(&r, "to"); ok {
			e.trace.compacting(e.node, to)
		}
	}
	if e.Handler == nil {
		return nil
	}
	return e.Handler.Handle(ctx, r)
}

// number is an attribute of a log line.
func number(r *slog.Record, key string) (n uint64, ok bool) {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == key {
			n, ok = a.Value.Any().(uint64)
		}
		return !ok
	})
	return n, ok
}

// WithAttrs implements slog.Handler.
func (e ear) WithAttrs([]slog.Attr) slog.Handler { return e }

// WithGroup implements slog.Handler.
func (e ear) WithGroup(string) slog.Handler { return e }
