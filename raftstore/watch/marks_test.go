package watch

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// TestTimeline: a revision has the moment of its batch; an old one that of a batch that was
// coarseStep earlier at most; one of which nothing is known any more the oldest that is.
func TestTimeline(t *testing.T) {
	var l timeline
	l.init(0, 0)
	const batches, perBatch, apart = 200_000, 3, Moment(time.Millisecond)
	moment := func(batch int) Moment { return Moment(batch+1) * apart }
	for batch := range batches {
		l.note(proto.Revision((batch+1)*perBatch), moment(batch))
	}
	if got, want := l.newest(), proto.Revision(batches*perBatch); got != want {
		t.Errorf("the newest revision is %d, want %d", got, want)
	}
	l.note(5, moment(batches)) // an old one changes nothing
	var versions []*mvcc.Version
	at := make([]Moment, 3*perBatch*fineMarks)
	fill := func(from, step proto.Revision) {
		t.Helper()
		versions = versions[:0]
		for r := from; r <= l.newest(); r += step {
			versions = append(versions, &mvcc.Version{Revision: r})
		}
		l.fill(versions, at)
		for i, v := range versions {
			if want := l.when(v.Revision); at[i] != want {
				t.Fatalf("from %d: %d came at %d, want %d", from, v.Revision, at[i], want)
			}
		}
	}
	for back := range proto.Revision(20) {
		fill(l.newest()-back, 1)
	}
	fill(l.newest()-1000, 17)
	fill(l.newest()-3*fineMarks+20, 1)
	fill(l.newest()-7*fineMarks, 3) // only the newest ones are known exactly
	l.fill(nil, nil)
	oldest := batches - (coarseMarks-2)*int(coarseStep/apart)
	for batch := range batches {
		if testing.Short() && batch%8 > 0 && batch < batches-2*fineMarks {
			continue
		}
		for r := proto.Revision(batch*perBatch + 1); r <= proto.Revision((batch+1)*perBatch); r++ {
			got := l.when(r)
			least, most := moment(batch)-coarseStep, moment(batch)
			switch {
			case batch > batches-fineMarks+1:
				least = most
			case batch < oldest:
				least, most = moment(oldest)-2*coarseStep, moment(oldest)+coarseStep
			}
			if got < least || got > most {
				t.Fatalf("%d of %d came at %d, want %d to %d", r, batches*perBatch, got, least, most)
			}
		}
	}
}

// TestTimelineWhileItGrows: who looks while marks are replaced gets the moment of what it asked
// for, or an earlier one, and no later one unless nothing earlier is known.
func TestTimelineWhileItGrows(t *testing.T) {
	var l timeline
	l.init(0, 0)
	batches := 500_000
	if testing.Short() {
		batches = 200_000
	}
	var wg sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		wg.Go(func() {
			for n := proto.Revision(1); ; n++ {
				select {
				case <-done:
					return
				default:
				}
				newest := l.newest()
				if newest <= 2*fineMarks {
					continue
				}
				r := newest - n%(2*fineMarks)
				// A revision is its own moment here, in steps of which 10,000 are a coarse one.
				got := l.when(r)
				if step := Moment(coarseStep / 10_000); got > Moment(r)*step || got < Moment(r)*step-coarseStep {
					t.Errorf("%d came at %d, want %d or a little before", r, got, Moment(r)*step)
					return
				}
			}
		})
	}
	for r := proto.Revision(1); r <= proto.Revision(batches); r++ {
		l.note(r, Moment(r)*coarseStep/10_000)
	}
	close(done)
	wg.Wait()
}

// TestBehind: while the hub tells nobody, it is behind since the first change that it has not told
// of, and a watcher of it waits from when it was told until it reads.
func TestBehind(t *testing.T) {
	m := newWriter(t)
	w, err := m.Watch("t", m.applied(), mvcc.Interest{})
	must.OK(t, err)
	defer w.Close()
	buf := make([]*mvcc.Version, 8)
	if n, _, err := w.Next(buf); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	told := func() {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			if _, behind := m.Behind(); !behind {
				return
			}
			if time.Now().After(deadline) {
				t.Fatal("the hub stays behind")
			}
		}
	}
	told()
	if _, waits := w.Waiting(); waits {
		t.Error("the watcher waits for nothing")
	}
	release := m.Hold()
	from := Now()
	for i := range 3 {
		m.write(&proto.Write{Table: "t", Key: fmt.Sprint("a/", i), Op: proto.Op_OP_PUT, Value: []byte(`{}`)})
		time.Sleep(2 * time.Millisecond)
	}
	since, behind := m.Behind()
	if !behind || since < from || Now().Sub(since) < 6*time.Millisecond {
		t.Errorf("behind %t since %d, want since %d", behind, since, from)
	}
	release()
	told()
	if at, waits := w.Waiting(); !waits || at != since {
		t.Errorf("the watcher waits %t since %d, want since %d", waits, at, since)
	}
	n, _, err := w.Next(buf)
	if n != 3 || err != nil {
		t.Fatal(n, err)
	}
	at := make([]Moment, len(buf))
	w.When(buf[:n], at)
	if at[0] != since || at[1] < at[0]+Moment(2*time.Millisecond) || at[2] < at[1]+Moment(2*time.Millisecond) {
		t.Errorf("the versions came at %v, want the first at %d and 2 ms between", at[:n], since)
	}
	if _, waits := w.Waiting(); waits {
		t.Error("the watcher waits for what it has read")
	}
}

// TestReplacedMark: who has found a mark, and reads it after it was replaced, notices.
func TestReplacedMark(t *testing.T) {
	var l timeline
	l.init(0, 0)
	l.note(1, 1)
	i, ok := l.fine.find(1)
	if !ok || !l.fine.kept(i) {
		t.Fatalf("mark %d: %t, kept %t", i, ok, l.fine.kept(i))
	}
	for r := proto.Revision(2); l.fine.n.Load() < i+fineMarks; r++ {
		if !l.fine.kept(i) {
			t.Fatalf("not kept, but no other one was put in its place by %d", r)
		}
		l.note(r, Moment(r))
	}
	if l.fine.kept(i) {
		t.Error("kept though the next one may be in its place")
	}
}
