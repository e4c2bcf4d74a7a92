package check

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/test/judges/history"
)

// BenchmarkSmall is a run in virtual time.
func BenchmarkSmall(b *testing.B) {
	h := generate(options{seed: 1, ops: 300, clients: 8, keys: 10, nodes: 3, watchers: 8})
	b.ReportMetric(float64(All(h).Counts.Events), "events")
	for b.Loop() {
		All(h)
	}
}

// BenchmarkLarge is a run of real processes.
func BenchmarkLarge(b *testing.B) {
	h := large(100_000, 50)
	events := 0
	for i := range h.Watches {
		events += len(h.Watches[i].Events)
	}
	for b.Loop() {
		if v := All(h); !v.OK() {
			b.Fatal(v)
		}
	}
	b.ReportMetric(float64(len(h.Ops)), "operations")
	b.ReportMetric(float64(events), "events")
}

// large makes a history of n operations in the time that takes: half of them
// writes, by 32 clients at once to 200 keys, and watches that see everything.
func large(n, watchers int) *history.History {
	r := rand.New(rand.NewPCG(7, 7))
	h := &history.History{Name: "large"}
	const clients = 32
	keys := map[string]history.Item{}
	var wrote []int // index of the operation of each entry of the log
	now, rev := time.Duration(0), uint64(10)
	for i := range n {
		now += 10 * time.Microsecond
		// Each takes as long as 32 of them, and happens in its middle.
		o := history.Op{Client: i % clients, Node: fmt.Sprintf("n%d", i%3+1), Key: fmt.Sprintf("k%d", r.IntN(200)),
			Call: now, Return: now + (clients-1)*10*time.Microsecond, Outcome: history.OK}
		cur, ok := keys[o.Key]
		switch k := r.IntN(10); {
		case k < 5:
			rev++
			o.Value, o.Revision = fmt.Sprint("v", i), rev
			o.Kind = history.Create
			if ok {
				o.Kind, o.Precondition = history.UpdateIf, cur.Revision
			}
			e := history.Item{Key: o.Key, Value: o.Value, Revision: rev}
			keys[o.Key] = e
			h.Log = append(h.Log, history.Entry{Item: e})
			wrote = append(wrote, i)
		case k == 9 && i%50 == 0:
			o.Kind, o.Mode, o.Revision, o.Key = history.List, history.MostRecent, rev, ""
			for k := range 200 {
				if it, ok := keys[fmt.Sprintf("k%d", k)]; ok {
					o.Items = append(o.Items, it)
				}
			}
			slices.SortFunc(o.Items, func(a, b history.Item) int { return strings.Compare(a.Key, b.Key) })
		default:
			o.Kind, o.Mode = history.Get, history.MostRecent
			if r.IntN(2) == 0 {
				o.Mode = history.Any
			}
			if ok {
				o.Items = []history.Item{cur}
			} else {
				o.Outcome, o.Code = history.Refused, 404
			}
		}
		h.Ops = append(h.Ops, o)
	}
	for c := range watchers {
		w := history.Watch{Client: 1000 + c, Node: fmt.Sprintf("n%d", c%3+1), End: now, From: 10, Bookmarks: true}
		for i, e := range h.Log {
			o := &h.Ops[wrote[i]]
			kind := history.Modified
			if o.Kind == history.Create {
				kind = history.Added
			}
			w.Events = append(w.Events, history.Event{Type: kind, Item: e.Item, At: o.Return})
			if i%100 == 99 {
				w.Events = append(w.Events, history.Event{Type: history.Bookmark, Item: history.Item{Revision: e.Revision}, At: o.Return})
			}
		}
		w.End += time.Second
		h.Watches = append(h.Watches, w)
	}
	return h
}
