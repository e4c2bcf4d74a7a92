package storetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/quorate/quorate/proto"
)

const (
	applied          = proto.Outcome_OUTCOME_APPLIED
	exists           = proto.Outcome_OUTCOME_EXISTS
	notFound         = proto.Outcome_OUTCOME_NOT_FOUND
	revisionMismatch = proto.Outcome_OUTCOME_REVISION_MISMATCH
	uidMismatch      = proto.Outcome_OUTCOME_UID_MISMATCH
	guardAbsent      = proto.Outcome_OUTCOME_GUARD_ABSENT
	guardTerminating = proto.Outcome_OUTCOME_GUARD_TERMINATING
	rulesChanged     = proto.Outcome_OUTCOME_RULES_CHANGED
	limitExceeded    = proto.Outcome_OUTCOME_LIMIT_EXCEEDED
	duplicate        = proto.Outcome_OUTCOME_DUPLICATE
)

// The revision that a writer is told is the one that is stored, and revisions
// rise over all keys and tables.
func acknowledgedIsStored(t *testing.T, e *env) {
	var last proto.Revision
	for i := range 50 {
		key, name := fmt.Sprint("k", i%7), fmt.Sprint("v", i)
		w := e.put(key, name)
		if i%2 == 1 {
			w.Table += "/other"
		}
		r := e.apply(w)
		if r.Revision <= last || proto.RaftIndex(r.Revision) != r.Index {
			t.Fatalf("write %d: revision %d at index %d, after %d", i, r.Revision, r.Index, last)
		}
		last = r.Revision
		if r.Version == nil || r.Version.Revision != r.Revision || !bytes.Equal(r.Version.Value(), stored(name, r.Revision)) {
			t.Fatalf("write %d: version %+v", i, r.Version)
		}
		v, err := e.s.State().Table(w.Table).Get(key, r.Revision)
		if err != nil || v == nil || v.Revision != r.Revision || !bytes.Equal(v.Value(), r.Version.Value()) {
			t.Fatalf("write %d: stored %+v, %v", i, v, err)
		}
	}
}

// The node that answers a write shows it to its own plain reads, at once.
func readYourWrites(t *testing.T, e *env) {
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 25 {
				key, name := fmt.Sprint("k", g), fmt.Sprint("v", i)
				r, err := e.s.Propose(e.ctx, e.put(key, name))
				if err != nil {
					t.Errorf("propose: %v", err)
					return
				}
				state := e.s.State()
				v, err := state.Table(e.table).Get(key, state.Applied())
				if err != nil || v == nil || v.Revision != r.Revision {
					t.Errorf("%s: wrote %d, reads %+v, %v", key, r.Revision, v, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func outcomes(t *testing.T, e *env) {
	with := func(w *proto.Write, c proto.Condition, rev proto.Revision) *proto.Write {
		w.Condition, w.ExpectRevision = c, uint64(rev)
		return w
	}
	uid := func(w *proto.Write, uid string) *proto.Write { w.ExpectUid = uid; return w }
	const (
		absent = proto.Condition_CONDITION_ABSENT
		at     = proto.Condition_CONDITION_REVISION
		there  = proto.Condition_CONDITION_EXISTS
	)
	e.do(with(e.put("a", "1"), at, 1), notFound)
	e.do(with(e.put("a", "1"), there, 0), notFound)
	e.do(e.del("a"), notFound)
	e.do(uid(e.put("a", "1"), "uid-a"), notFound)
	if v := e.get("a", e.s.State().Applied()); v != nil {
		t.Fatalf("refused writes left %+v", v)
	}

	first := e.apply(with(e.put("a", "1"), absent, 0))
	e.mustBe("a", "1", first.Revision)
	if !first.Version.Created() {
		t.Errorf("a new key is not Created: %+v", first.Version)
	}
	for _, w := range []struct {
		w    *proto.Write
		want proto.Outcome
	}{
		{with(e.put("a", "2"), absent, 0), exists},
		{with(e.put("a", "2"), at, first.Revision+1), revisionMismatch},
		{with(e.put("a", "2"), at, first.Revision-1), revisionMismatch},
		{with(e.del("a"), at, first.Revision-1), revisionMismatch},
		{uid(e.put("a", "2"), "uid-b"), uidMismatch},
		{uid(e.del("a"), "uid-b"), uidMismatch},
		{uid(with(e.put("a", "2"), at, first.Revision), "uid-b"), uidMismatch},
	} {
		if r := e.do(w.w, w.want); r.Revision != first.Revision || r.Version != nil {
			t.Errorf("%v: result %+v, want the live revision %d", w.want, r, first.Revision)
		}
		e.mustBe("a", "1", first.Revision)
	}

	second := e.apply(uid(with(e.put("a", "2"), at, first.Revision), "uid-a"))
	if second.Version.Created() || second.Version.CreateRevision != first.Revision || second.Version.Prev() != first.Version {
		t.Errorf("an update looks like %+v", second.Version)
	}
	third := e.apply(with(e.put("a", "3"), there, 0))
	e.mustBe("a", "3", third.Revision)
	gone := e.apply(with(uid(e.del("a"), "uid-a"), at, third.Revision))
	if v := gone.Version; !v.Deleted || !bytes.Equal(v.Value(), stored("3", gone.Revision)) {
		t.Errorf("the tombstone is %+v with %s: it must carry the last content and the revision of the delete", v, v.Value())
	}
	if v := e.get("a", e.s.State().Applied()); v != nil {
		t.Errorf("deleted, but reads %+v", v)
	}
	if v := e.get("a", third.Revision); v == nil || v.Revision != third.Revision {
		t.Errorf("the past has changed: %+v", v)
	}
	e.do(e.del("a"), notFound)
	if again := e.apply(with(e.put("a", "4"), absent, 0)); !again.Version.Created() {
		t.Errorf("a key that was deleted and made again is not Created: %+v", again.Version)
	}
}

func guard(t *testing.T, e *env) {
	guarded := func(key string) *proto.Write {
		w := e.put("ns/"+key, key)
		w.Guard = &proto.Guard{Table: e.table + "/namespaces", Key: "ns"}
		return w
	}
	namespace := func(flags uint32) *proto.Write {
		w := e.put("ns", "ns")
		w.Table, w.Flags = e.table+"/namespaces", flags
		return w
	}
	e.do(guarded("a"), guardAbsent)
	e.apply(namespace(0))
	e.apply(guarded("a"))
	e.apply(namespace(proto.FlagTerminating))
	e.do(guarded("b"), guardTerminating)
	gone := e.del("ns")
	gone.Table += "/namespaces"
	e.apply(gone)
	e.do(guarded("b"), guardAbsent)
	// A second guard counts as much as the first, and alone.
	for _, both := range []bool{true, false} {
		also := guarded("c")
		also.SecondGuard = &proto.Guard{Table: e.table + "/definitions", Key: "d"}
		definition := func(flags uint32) *proto.Write {
			w := e.put("d", "d")
			w.Table, w.Flags = e.table+"/definitions", flags
			return w
		}
		if both {
			e.apply(namespace(0))
		} else {
			also.Guard = nil
		}
		e.apply(definition(proto.FlagTerminating))
		e.do(also, guardTerminating)
		gone := e.del("d")
		gone.Table += "/definitions"
		e.apply(gone)
		e.do(also, guardAbsent)
	}
	gone = e.del("ns")
	gone.Table += "/namespaces"
	e.apply(gone)
	if v := e.get("ns/b", e.s.State().Applied()); v != nil {
		t.Errorf("a refused write left %+v", v)
	}
	if v := e.get("ns/a", e.s.State().Applied()); v == nil {
		t.Error("the guard's end took the guarded key with it")
	}
}

// A write is decided as of a revision, and refused when a rule has changed since; the
// store that refuses it has the change, so that the next decision is by the new rule.
func rules(t *testing.T, e *env) {
	rule := func() proto.Revision {
		w := e.put("rule", "r")
		w.Table += "/rules"
		return e.apply(w).Revision
	}
	decided := func(key string, at proto.Revision, ranges ...*proto.RuleRange) *proto.Write {
		w := e.put("ns/"+key, key)
		w.DecidedAt, w.Rules, w.RuleRanges = uint64(at), proto.RuleLimitRanges|proto.RuleNamespaces, ranges
		return w
	}
	of := &proto.RuleRange{Table: e.table + "/rules", Prefix: "rule"}
	first := rule()
	e.apply(decided("a", first, of))
	second := rule()
	if r := e.do(decided("a", first, of), rulesChanged); r.Revision != 0 || r.Version != nil || r.Index <= proto.RaftIndex(second) {
		t.Errorf("a refusal is %+v", r)
	}
	e.apply(decided("a", first))
	e.do(decided("b", first, &proto.RuleRange{Table: of.Table}), rulesChanged)
	e.apply(decided("b", second, of))
	e.do(decided("c", e.s.State().Applied()+1000, of), rulesChanged)
	if v := e.get("ns/c", e.s.State().Applied()); v != nil {
		t.Errorf("a refused write left %+v", v)
	}
	c, ok := e.s.(Compactor)
	if !ok {
		return
	}
	if err := c.Compact(e.ctx, second+1); err != nil {
		t.Fatal(err)
	}
	e.do(decided("c", second, of), rulesChanged)
	e.apply(decided("c", e.s.State().Applied(), of))
}

// A request id takes effect once, whatever comes between.
func duplicates(t *testing.T, e *env) {
	once := func(key, name string, id []byte) *proto.Write {
		w := e.put(key, name)
		w.RequestId = id
		return w
	}
	id := make([]byte, proto.RequestIDSize)
	rand.Read(id)
	first := e.apply(once("a", "1", id))
	if r := e.do(once("a", "1", id), duplicate); r.Revision != first.Revision {
		t.Errorf("a duplicate answers %d, took effect at %d", r.Revision, first.Revision)
	}
	second := e.apply(e.put("a", "2"))
	if r := e.do(once("a", "1", id), duplicate); r.Revision != first.Revision {
		t.Errorf("a late duplicate answers %d, took effect at %d", r.Revision, first.Revision)
	}
	e.mustBe("a", "2", second.Revision)

	// A refused write has not taken effect: its id is free.
	rand.Read(id)
	w := once("a", "3", id)
	w.Condition = proto.Condition_CONDITION_ABSENT
	e.do(w, exists)
	third := e.apply(once("a", "3", id))
	e.mustBe("a", "3", third.Revision)
}

// Many senders of one request id: one of them wins, all learn its revision.
func concurrentDuplicates(t *testing.T, e *env) {
	id := make([]byte, proto.RequestIDSize)
	rand.Read(id)
	var wg sync.WaitGroup
	var won atomic.Int64
	revisions := make([]proto.Revision, 8)
	for g := range revisions {
		wg.Go(func() {
			w := e.put("a", "1")
			w.RequestId = id
			r, err := e.s.Propose(e.ctx, w)
			if err != nil {
				t.Errorf("propose: %v", err)
				return
			}
			revisions[g] = r.Revision
			if r.Outcome == applied {
				won.Add(1)
			}
		})
	}
	wg.Wait()
	for _, r := range revisions {
		if r != revisions[0] || r == 0 {
			t.Errorf("one request took effect at %v", revisions)
			break
		}
	}
	if won.Load() != 1 {
		t.Errorf("%d senders were told that their entry was the one", won.Load())
	}
}

// Compare-and-swap loops of many writers lose no increment.
func compareAndSwap(t *testing.T, e *env) {
	start := e.apply(e.put("n", "0"))
	const writers = 8
	each := 15
	if testing.Short() {
		each = 5
	}
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for done := 0; done < each; {
				state := e.s.State()
				v, err := state.Table(e.table).Get("n", state.Applied())
				if err != nil || v == nil {
					t.Errorf("read: %+v, %v", v, err)
					return
				}
				var n int
				if _, err := fmt.Sscanf(string(v.Value()), `{"name":"%d"`, &n); err != nil {
					t.Errorf("value %s: %v", v.Value(), err)
					return
				}
				w := e.put("n", fmt.Sprint(n+1))
				w.Condition, w.ExpectRevision = proto.Condition_CONDITION_REVISION, uint64(v.Revision)
				r, err := e.s.Propose(e.ctx, w)
				switch {
				case err != nil:
					t.Errorf("propose: %v", err)
					return
				case r.Outcome == applied:
					done++
				case r.Outcome != revisionMismatch || r.Revision <= v.Revision:
					t.Errorf("lost a race with %+v", r)
					return
				}
			}
		})
	}
	wg.Wait()
	v := e.get("n", e.s.State().Applied())
	if want := stored(fmt.Sprint(writers*each), v.Revision); !bytes.Equal(v.Value(), want) {
		t.Errorf("after %d increments: %s", writers*each, v.Value())
	}
	// Every increment is an event, and nothing else is.
	n := 0
	for v := v; v.Revision > start.Revision; v = v.Prev() {
		n++
	}
	if n != writers*each {
		t.Errorf("%d versions for %d increments", n, writers*each)
	}
}

// A write above the limit is refused, and nothing has changed.
func tooLarge(t *testing.T, e *env) {
	before := e.apply(e.put("a", "1"))
	w := e.put("a", "2")
	w.Value = make([]byte, proto.MaxEntryBytes+1)
	w.RevisionOffset = 0
	if r, err := e.s.Propose(e.ctx, w); err == nil {
		t.Fatalf("an entry above the limit: %+v", r)
	}
	e.mustBe("a", "1", before.Revision)
	w.Value = make([]byte, proto.MaxEntryBytes-1024)
	e.apply(w)
	// An ended context writes nothing, if it had ended before.
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	for range 10 {
		if r, err := e.s.Propose(ctx, e.put("never", "1")); err == nil {
			t.Errorf("with an ended context: %+v", r)
		}
	}
	e.promptly("propose", func(ctx context.Context) error {
		<-ctx.Done()
		_, err := e.s.Propose(ctx, e.put("never", "1"))
		return err
	})
	if v := e.get("never", e.apply(e.put("a", "3")).Revision); v != nil {
		t.Errorf("with an ended context it was written at %d", v.Revision)
	}
}
