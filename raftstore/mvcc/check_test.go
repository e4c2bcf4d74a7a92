package mvcc

import (
	"fmt"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

// TestCheckFinds damages a state in each way that Check looks for: other tests rely on it.
func TestCheckFinds(t *testing.T) {
	var (
		s       *State
		table   *Table
		chunk   *chunk
		account *account
	)
	fresh := func() {
		l := &log{TB: t, s: New()}
		l.put("n/a")
		l.put("n/a") // at the floor
		l.put("n/b")
		l.write(&proto.Write{Table: "t", Key: "n/b", Op: proto.Op_OP_DELETE})
		l.put("n/a")
		w := charged("n/c", 2)
		w.Usage.Facts = []*proto.Attribute{{Name: "f", Value: "v"}}
		l.write(w)
		l.write(limiting("n/q", 5))
		l.compact(2)
		s, table = l.s, l.s.Table("t")
		chunk, account = table.hist.list()[0], s.ledger.of["n"]
	}
	at := func(rev proto.Revision) *Version { return chunk.versions[rev-1] }
	show := func(change func(*shown)) {
		next := *table.shown.Load()
		change(&next)
		table.shown.Store(&next)
	}
	facts := AttributesOf(Pair{"f", "v"})
	fresh()
	must.OK(t, s.Check())
	for _, c := range []struct {
		want   string // in what Check says
		damage func()
	}{
		{"keys are not published", func() { table.keysDirty = true }},
		{"keys are not published", func() { table.deadDirty = true }},
		{"readers see 0 keys, the writer 3", func() { show(func(s *shown) { s.keys = newTree() }) }},
		{"readers see 0 dead keys, the writer 1", func() { show(func(s *shown) { s.dead = newTree() }) }},
		{"n/b at 3: that its life turned is false", func() { chunk.turns[0].Store(0) }},
		{"n/a at 5: that its life turned is true", func() { chunk.turns[0].Store(1<<6 - 1) }},
		{"history has 3 after 4", func() { chunk.versions[2], chunk.versions[3] = chunk.versions[3], chunk.versions[2] }},
		{"history has 3 after 3", func() { chunk.versions[3] = chunk.versions[2] }},
		{"n/a at 5 has lost the version before it", func() { at(5).prev.Store(nil) }},
		{"n/a at 2, below the floor, keeps older versions", func() { at(2).prev.Store(at(1)) }},
		{"latest is 5, history ends at 6", func() { table.latest.Store(5) }},
		{"tombstone 4 outlived the floor", func() { s.floor.Store(4) }},
		{"n/b is not among the dead", func() { table.dead.Delete(&item{key: "n/b"}) }},
		{"n/b is not among the dead", func() { table.dead.Set(&item{key: "n/b"}) }},
		{"has 2 dead keys, should have 1", func() { table.dead.Set(&item{key: "n/x"}) }},
		{"n/a has a version of n/x", func() { at(5).Key = "n/x" }},
		{"n/a: 5 follows 5", func() { at(5).prev.Store(&Version{Key: "n/a", Revision: 5}) }},
		{"n/c at 6 is not in the history", func() { chunk.n.Store(5) }},
		{"4 versions above the floor in chains, 3 in the history", func() { chunk.n.Store(5) }},
		{"3 versions above the floor in chains, 4 in the history", func() {
			it, _ := table.newest("n/a")
			it.newest.Store(at(2))
		}},
		{"counts 3 live keys", func() { table.live.Add(1) }},
		{"counts 2 live keys", func() { table.liveBytes.Add(1) }},
		{"history counts 6 versions", func() { s.historyVersions.Add(1) }},
		{"history counts 5 versions", func() { s.historyBytes.Add(1) }},
		{"at 2 outlived the floor 2", func() { s.requests[[proto.RequestIDSize]byte{1}] = 2 }},

		{"usage is not published", func() { s.ledger.loading = true }},
		{"usage is not published", func() { s.ledger.touch(account) }},
		{"namespace n is not counted", func() { delete(s.ledger.of, "n") }},
		{"1 namespaces have keys, 1 limits; 2 are counted", func() { s.ledger.open("x") }},
		{"1 are counted, 2 with limits", func() { s.ledger.limited++ }},
		{"1 are counted, 1 with limits, 2 are shown", func() { s.ledger.shown.Store("x", account) }},
		{"namespace n: 4 keys in 1 classes, there are 3 in 1", func() { account.keys++ }},
		{"namespace n: 3 keys in 2 classes, there are 3 in 1", func() { account.classes[AttributesOf(Pair{"g", ""})] = &class{} }},
		{"namespace n: 3 keys in 1 classes, there are 3 in 1; without facts", func() { account.plain.keys++ }},
		{"is used, there is", func() { account.classes[facts].keys++ }},
		{"is used, there is", func() { account.classes[facts].of.facts = Attributes{} }},
		{"is used, there is", func() { account.classes[facts].tables["t"]++ }},
		{"is used, there is", func() { account.classes[facts].amounts["a"] = sum{} }},
		{"is used, there is", func() {
			account.classes[Attributes{}] = account.classes[facts]
			delete(account.classes, facts)
		}},
		{"limit 0 of q n/q counts [{0 3} {0 2}]", func() { account.limits[0].used[0] = sum{0, 3} }},
		{"limit 1 of q n/q counts", func() { account.limits[0].place = 1 }},
		{"limit 0 of q n/q counts", func() { account.limits[0].limit = &limit{} }},
		{"the bounds are not those of the limits", func() { clear(account.byAmount) }},
		{"the bounds are not those of the limits", func() { clear(account.byTable) }},
		{"the bounds are not those of the limits", func() { account.byTable["t"] = nil }},
		{"limit of q n/q shows [{a 3 5} {count 2 5}], has [2 2]", func() { account.shown.Load().limits[0].bounds[0].Used++ }},
	} {
		fresh()
		c.damage()
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("it says %v, want %q", err, c.want)
		}
	}
}

// TestCheckSome: a small state is checked at every call, a larger one before its calls are as
// many as its versions divided by checkedPerBatch.
func TestCheckSome(t *testing.T) {
	for _, keys := range []int{checkedPerBatch / 4, checkedPerBatch/2 - 1, checkedPerBatch / 2, 4 * checkedPerBatch} {
		l := &log{TB: t, s: New()}
		l.write(limiting("n/q", 1_000_000))
		for i := range keys {
			l.write(charged(fmt.Sprintf("n/k%d", i), 0))
		}
		a := l.s.ledger.of["n"].limits[0]
		a.used[0] = a.used[0].add(1)
		versions, calls := 2*(keys+1), 1
		for l.s.CheckSome() == nil {
			if calls++; calls > versions/checkedPerBatch+1 {
				t.Fatalf("%d keys: a wrong sum goes unnoticed for %d calls", keys, calls)
			}
		}
		if small := versions <= checkedPerBatch; small != (calls == 1) {
			t.Errorf("%d keys: noticed at call %d", keys, calls)
		}
	}
}
