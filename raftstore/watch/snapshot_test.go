package watch

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// TestNarrowWatchersSurviveASnapshot replaces the state under watchers that have
// not read everything of the old one: they go on where they were.
func TestNarrowWatchersSurviveASnapshot(t *testing.T) {
	before, after := newWriter(t), newWriter(t)
	random := rand.New(rand.NewPCG(7, 8))
	var history []*mvcc.Version
	start := before.applied()
	var watchers []*Watcher
	for _, only := range interesting() {
		w, err := before.Watch("t", start, only)
		must.OK(t, err)
		defer w.Close()
		watchers = append(watchers, w)
	}
	for i := range 600 {
		w := randomWrite(random)
		w.RequestId = fmt.Appendf(nil, "request-%08d", i)
		if i < 300 {
			before.write(w)
		}
		r := after.write(w)
		if r.Version != nil {
			history = append(history, r.Version)
		}
	}
	read := make([][]proto.Revision, len(watchers))
	next := func(i int, size int) (n int) {
		buf := make([]*mvcc.Version, size)
		n, _, err := watchers[i].Next(buf)
		if err != nil {
			t.Fatalf("%+v: %v", watchers[i].only, err)
		}
		for _, v := range buf[:n] {
			read[i] = append(read[i], v.Revision)
		}
		return n
	}
	for i, w := range watchers {
		if <-w.Wake(); i%2 == 0 {
			next(i, 3) // and leave the rest
		}
	}
	awaitRouted(t, before)
	before.Replace(after.State())
	for i, w := range watchers {
		for end := after.applied(); ; {
			select {
			case <-w.Wake():
			case <-time.After(10 * time.Second):
				t.Fatalf("%+v: no wake after the snapshot", w.only)
			}
			for next(i, 7) == 7 {
			}
			if w.after >= end {
				break
			}
		}
		var want []proto.Revision
		for _, v := range history {
			if w.only.Concerns(v) {
				want = append(want, v.Revision)
			}
		}
		if fmt.Sprint(read[i]) != fmt.Sprint(want) {
			t.Errorf("%+v: read %v, want %v", w.only, read[i], want)
		}
	}
}

// TestQuietWatcherOutlivesASnapshot: a snapshot whose floor has passed what a
// watcher has read, but not what the hub has looked at, does not make it too old.
func TestQuietWatcherOutlivesASnapshot(t *testing.T) {
	before, after := newWriter(t), newWriter(t)
	var watchers []*Watcher
	for _, only := range []mvcc.Interest{{Key: "quiet/x"}, {Prefix: "quiet/"}, {Field: mvcc.Pair{Name: "f", Value: "rare"}}} {
		w, err := before.Watch("t", before.applied(), only)
		must.OK(t, err)
		defer w.Close()
		<-w.Wake()
		if n, _, err := w.Next(make([]*mvcc.Version, 8)); n != 0 || err != nil {
			t.Fatalf("%+v: %d, %v", only, n, err)
		}
		watchers = append(watchers, w)
	}
	for i := range 100 {
		w := &proto.Write{Table: "t", Key: "busy/x", Op: proto.Op_OP_PUT, Value: []byte(`{}`), RequestId: fmt.Appendf(nil, "request-%08d", i)}
		for _, m := range []*writer{before, after} {
			m.write(w)
		}
	}
	awaitRouted(t, before)
	after.compact(before.applied())
	r := after.write(&proto.Write{Table: "t", Key: "quiet/x", Op: proto.Op_OP_PUT, Value: []byte(`{}`),
		Fields: []*proto.Attribute{{Name: "f", Value: "rare"}}})
	before.Replace(after.State())
	for _, w := range watchers {
		select {
		case <-w.Wake():
		case <-time.After(10 * time.Second):
			t.Fatalf("%+v: no wake after the snapshot", w.only)
		}
		buf := make([]*mvcc.Version, 8)
		if n, _, err := w.Next(buf); n != 1 || err != nil || buf[0].Revision != r.Revision {
			t.Errorf("%+v: %d events, %v", w.only, n, err)
		}
	}
}
