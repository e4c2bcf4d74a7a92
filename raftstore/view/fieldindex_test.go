package view_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"weak"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/view"
)

// onNode selects the Pods of one node.
func onNode(value string) func(*mvcc.Version) bool {
	return func(v *mvcc.Version) bool {
		is, _ := v.Fields.Get("spec.nodeName")
		return is == value
	}
}

// pods is a log that binds, changes and deletes Pods at random.
type pods struct {
	*log
	rng *rand.Rand
}

func (p *pods) step() {
	key := []string{"a/", "b/"}[p.rng.IntN(2)] + fmt.Sprint(p.rng.IntN(60))
	switch n := p.rng.IntN(100); {
	case n < 2:
		now := p.State().Applied()
		p.apply(proto.KindCompact, &proto.Compact{Floor: uint64(now - min(now, proto.Revision(p.rng.IntN(200))))})
	case n < 25:
		p.apply(proto.KindWrite, &proto.Write{Table: "pods", Key: key, Op: proto.Op_OP_DELETE})
	default:
		w := &proto.Write{Table: "pods", Key: key, Op: proto.Op_OP_PUT, Value: []byte("{}")}
		if n := p.rng.IntN(6); n < 5 { // now and then without the field
			w.Fields = []*proto.Attribute{{Name: "spec.nodeName", Value: []string{"", "n1", "n2", "n3", "n"}[n]}}
		}
		p.apply(proto.KindWrite, w)
	}
}

// reload replaces the state, as a snapshot does.
func (p *pods) reload() {
	next := mvcc.New()
	for i, entry := range p.entries {
		if _, err := next.Apply(proto.RaftIndex(i+1), 1, entry); err != nil {
			p.t.Fatal(err)
		}
	}
	next.Publish()
	p.state.Store(next)
}

// TestFieldIndexAsScan asks an index at random times of random histories, and compares it with what
// a scan has at the revision that it names.
func TestFieldIndexAsScan(t *testing.T) {
	seeds := uint64(10)
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		p := &pods{newLog(t), rand.New(rand.NewPCG(seed, 9))}
		x := view.NewFieldIndex(p, "pods", "spec.nodeName")
		if page, at := x.Range("n1", mvcc.Query{}); len(page.Versions) != 0 || page.More || at != 0 {
			t.Fatalf("without a table: %+v at %d", page, at)
		}
		often := 1 + p.rng.IntN(300) // is asked
		for range 4000 {
			p.step()
			if p.rng.IntN(1000) == 0 {
				p.reload()
			}
			if p.rng.IntN(often) > 0 {
				continue
			}
			value := []string{"", "n", "n1", "n2", "n3", "n4"}[p.rng.IntN(6)]
			on := onNode(value)
			q := mvcc.Query{Prefix: []string{"", "a/", "b/", "c/"}[p.rng.IntN(4)], Limit: p.rng.IntN(2) * (1 + p.rng.IntN(10))}
			got, at := x.Range(value, q)
			if now := p.State().Applied(); at != now {
				t.Fatalf("page as of %d, applied is %d", at, now)
			}
			want, err := p.State().Table("pods").Range(mvcc.Query{Prefix: q.Prefix, At: at, Match: on})
			must.OK(t, err)
			all, next := want.Versions, ""
			if q.Limit > 0 && len(all) > q.Limit {
				all, next = all[:q.Limit], all[q.Limit].Key
			}
			if !slices.Equal(got.Versions, all) || got.More != (next != "") || got.Next != next || got.Remaining != -1 {
				t.Fatalf("%q with %+v at %d: %d, more %v, next %q; want %d, next %q", value, q, at, len(got.Versions), got.More, got.Next, len(all), next)
			}
		}
	}
}

// TestFieldIndexWhileWriting asks from several goroutines while the writer writes, compacts and states
// are replaced: what is answered is exact at the revision that is named, which is no older than what was
// visible before.
func TestFieldIndexWhileWriting(t *testing.T) {
	p := &pods{newLog(t), rand.New(rand.NewPCG(1, 10))}
	x := view.NewFieldIndex(p, "pods", "spec.nodeName")
	var wg sync.WaitGroup
	var done atomic.Bool
	var compared atomic.Int64
	for g := range uint64(4) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(g, 11))
			for !done.Load() {
				value := fmt.Sprint("n", 1+rng.IntN(3))
				state := p.State()
				before := state.Applied()
				got, at := x.Range(value, mvcc.Query{})
				if at < before {
					t.Errorf("page as of %d, %d was applied before", at, before)
					return
				}
				table := p.State().Table("pods")
				if table == nil {
					continue
				}
				want, err := table.Range(mvcc.Query{At: at, Match: onNode(value)})
				if errors.Is(err, mvcc.ErrCompacted) || errors.Is(err, mvcc.ErrFuture) {
					continue
				}
				if err != nil || !slices.EqualFunc(got.Versions, want.Versions, func(a, b *mvcc.Version) bool { return a.Revision == b.Revision }) {
					t.Errorf("%s at %d: %d Pods, want %d, %v", value, at, len(got.Versions), len(want.Versions), err)
					return
				}
				compared.Add(1)
			}
		})
	}
	steps := 10_000
	if testing.Short() {
		steps = 2000
	}
	for i := 0; i < steps || compared.Load() < 200 && !t.Failed(); i++ {
		p.step()
		if i < steps && i%(steps/4) == steps/4-1 {
			p.reload()
		}
	}
	done.Store(true)
	wg.Wait()
}

// TestIndexOfSome: what a function leaves out is not found, and comes back.
func TestIndexOfSome(t *testing.T) {
	p := &pods{newLog(t), rand.New(rand.NewPCG(3, 9))}
	some := func(v *mvcc.Version) (string, bool) {
		value, _ := v.Fields.Get("spec.nodeName")
		return "of " + value, value != "" && value != "n2"
	}
	x := view.NewIndex(p, "pods", some)
	found, steps := 0, 4000
	if testing.Short() {
		steps = 2000
	}
	for range steps {
		if p.step(); p.State().Table("pods") == nil {
			continue
		}
		value := []string{"n1", "n2", "n3", ""}[p.rng.IntN(4)]
		got, at := x.Range("of "+value, mvcc.Query{})
		want, err := p.State().Table("pods").Range(mvcc.Query{At: at, Match: func(v *mvcc.Version) bool { is, has := some(v); return has && is == "of "+value }})
		if err != nil || !slices.Equal(got.Versions, want.Versions) {
			t.Fatalf("%q: %d, want %d, %v", value, len(got.Versions), len(want.Versions), err)
		}
		found += len(got.Versions)
	}
	if found == 0 {
		t.Error("nothing was found")
	}
}

// TestFieldIndexKeepsNoState: an index that nobody asks keeps no state alive that a snapshot has replaced.
func TestFieldIndexKeepsNoState(t *testing.T) {
	p := &pods{newLog(t), rand.New(rand.NewPCG(1, 12))}
	for range 100 {
		p.step()
	}
	x := view.NewFieldIndex(p, "pods", "spec.nodeName")
	x.Range("n1", mvcc.Query{})
	old := weak.Make(p.State())
	p.reload()
	for range 5 {
		if runtime.GC(); old.Value() == nil {
			break
		}
	}
	if old.Value() != nil {
		t.Error("the replaced state is alive")
	}
	runtime.KeepAlive(x)
}

// BenchmarkPodsOfNode lists the 30 Pods of a node, of 150,000 on 5,000: by a scan, by the index where nothing
// has changed, where 100 and 10,000 Pods had their status written between two lists (that time is
// not counted), and as the first to ask.
func BenchmarkPodsOfNode(b *testing.B) {
	const size, nodes = 150_000, 5_000
	l := &benchLog{b: b, s: mvcc.New()}
	for i := range size {
		l.write(i, nodes)
	}
	l.s.Publish()
	value := func(i int) string { return fmt.Sprintf("node-%04d", i%nodes) }
	check := func(b *testing.B, n int) {
		if n != size/nodes {
			b.Fatal(n)
		}
	}
	b.Run("scan", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			page, err := l.s.Table("pods").Range(mvcc.Query{At: l.s.Applied(), Match: onNode(value(i))})
			if err != nil {
				b.Fatal(err)
			}
			check(b, len(page.Versions))
		}
	})
	x := view.NewFieldIndex(l, "pods", "spec.nodeName")
	for _, changed := range []int{0, 100, 10_000} {
		b.Run(fmt.Sprintf("index/changed=%d", changed), func(b *testing.B) {
			b.ReportAllocs()
			x.Range(value(0), mvcc.Query{})
			b.ResetTimer()
			for i := range b.N {
				if changed > 0 {
					b.StopTimer()
					l.apply(proto.Encode(proto.KindCompact, &proto.Compact{Floor: uint64(l.s.Applied())}))
					for j := range changed {
						l.write((i+j*7)%size, nodes)
					}
					l.s.Publish()
					b.StartTimer()
				}
				page, _ := x.Range(value(i), mvcc.Query{})
				check(b, len(page.Versions))
			}
		})
	}
	b.Run("index/first", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			page, _ := view.NewFieldIndex(l, "pods", "spec.nodeName").Range(value(i), mvcc.Query{})
			check(b, len(page.Versions))
		}
	})
	b.Run("memory", func(b *testing.B) {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		kept := view.NewFieldIndex(l, "pods", "spec.nodeName")
		kept.Range(value(0), mvcc.Query{})
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/size, "bytes/pod")
		b.ReportMetric(0, "ns/op")
		runtime.KeepAlive(kept)
	})
}

type benchLog struct {
	b     *testing.B
	s     *mvcc.State
	index proto.RaftIndex
}

func (l *benchLog) State() *mvcc.State { return l.s }

// write writes a Pod.
func (l *benchLog) write(i, nodes int) {
	l.apply(proto.Encode(proto.KindWrite, &proto.Write{
		Table: "pods", Key: fmt.Sprintf("namespace-%02d/pod-%06d", i%50, i), Op: proto.Op_OP_PUT, Uid: "b1a7d9f2-5f0c-4d38-9c1e-000000000000",
		Value: []byte(strings.Repeat("x", 200)), Fields: []*proto.Attribute{{Name: "spec.nodeName", Value: fmt.Sprintf("node-%04d", i%nodes)}},
	}))
}

func (l *benchLog) apply(entry []byte, err error) {
	if err != nil {
		l.b.Fatal(err)
	}
	l.index++
	if r, err := l.s.Apply(l.index, 1, entry); err != nil || r.Outcome != proto.Outcome_OUTCOME_APPLIED {
		l.b.Fatal(r.Outcome, err)
	}
}
