package failover

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/internal/must"
)

// ear is a silence that is looked at in virtual time.
type ear struct {
	*silence
	contact time.Time
}

func newEar() *ear {
	e := &ear{contact: time.Now()}
	e.silence = newSilence(time.Second, func() time.Time { return e.contact })
	e.look()
	e.ask("l")
	return e
}

// pass lets time pass, looked at as Listen does.
func (e *ear) pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(e.every())
		e.look()
	}
}

// TestSilence is when a leader counts as silent: a second without an answer to a question and
// without contact of Raft, and a quarter more if there was contact.
func TestSilence(t *testing.T) {
	const tick = 100 * time.Millisecond
	for _, row := range []struct {
		name            string
		happens         func(e *ear)
		silent, unheard bool
	}{
		{"it was just asked", func(e *ear) { e.asked("l"); e.pass(9 * tick) }, false, false},
		{"it does not answer", func(e *ear) { e.asked("l"); e.pass(10 * tick) }, true, true},
		{"it answered", func(e *ear) { e.asked("l"); e.pass(5 * tick); e.answered("l", false); e.asked("l"); e.pass(9 * tick) }, false, false},
		{"it answered, and no more", func(e *ear) { e.asked("l"); e.pass(5 * tick); e.answered("l", false); e.asked("l"); e.pass(10 * tick) }, true, true},
		{"Raft had contact", func(e *ear) { e.asked("l"); e.pass(9 * tick); e.contact = time.Now(); e.pass(2 * tick) }, false, false},
		{"only Raft has contact", func(e *ear) { e.asked("l"); e.pass(12 * tick); e.contact = time.Now(); e.pass(tick) }, true, false},
		{"the question could not be put, and Raft has contact", func(e *ear) { e.pass(30 * tick); e.contact = time.Now() }, false, false},
		{"the question could not be put, nor had Raft contact", func(e *ear) { e.pass(10 * tick) }, true, true},
		{"its stream ended, and Raft has contact", func(e *ear) {
			e.asked("l")
			e.pass(12 * tick)
			e.interrupted("l")
			e.contact = time.Now()
			e.pass(tick)
		}, false, false},
		{"this process stood still", func(e *ear) { e.asked("l"); e.pass(9 * tick); time.Sleep(time.Minute) }, false, false},
		{"this process stood still, and has looked again", func(e *ear) { e.asked("l"); time.Sleep(time.Minute); e.look() }, false, false},
		{"this process stood still, and has listened again", func(e *ear) { e.asked("l"); time.Sleep(time.Minute); e.pass(11 * tick) }, true, true},
		{"this process stood still, and Raft has contact", func(e *ear) {
			e.asked("l")
			time.Sleep(time.Minute)
			e.look()
			e.pass(12 * tick)
			e.contact = time.Now()
		}, false, false},
		{"another leader was asked", func(e *ear) { e.asked("l"); e.pass(9 * tick); e.ask("m"); e.ask("l"); e.pass(9 * tick) }, false, false},
		{"nobody is asked", func(e *ear) { e.asked("l"); e.ask(""); e.pass(20 * tick) }, false, false},
		{"it leads no more", func(e *ear) { time.Sleep(tick); e.answered("l", true) }, true, true},
		{"it leads no more, and Raft has contact", func(e *ear) { e.answered("l", true); time.Sleep(tick); e.contact = time.Now() }, false, false},
		{"it leads again", func(e *ear) { time.Sleep(tick); e.answered("l", true); e.answered("l", false) }, false, false},
		{"it leads no more, and another one is asked", func(e *ear) { time.Sleep(tick); e.answered("l", true); e.ask("m"); e.ask("l") }, false, false},
		{"the answer is of the leader before", func(e *ear) { e.ask("m"); e.ask("l"); e.pass(9 * tick); e.answered("m", false); e.pass(tick) }, true, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newEar()
				row.happens(e)
				if silent, unheard := e.silent("l"), e.unheard("l"); silent != row.silent || unheard != row.unheard {
					t.Errorf("silent %v, unheard %v; want %v, %v", silent, unheard, row.silent, row.unheard)
				}
				if e.silent("") || e.silent("other") {
					t.Error("one that is not asked is silent")
				}
			})
		})
	}
}

// What voters compare before they campaign is what raft compares in an election: the
// end of the log, or of the snapshot if that is ahead.
func TestLastEntry(t *testing.T) {
	const none = 0
	for _, row := range []struct {
		name               string
		from, to, logTerm  uint64
		snapshot, snapTerm uint64
		term, index        uint64
	}{
		{"nothing", none, none, none, none, none, 0, 0},
		{"only a log", 1, 7, 2, none, none, 2, 7},
		{"only a snapshot: the log was cut or dropped behind it", none, none, none, 9, 3, 3, 9},
		{"a log that goes on behind the snapshot", 5, 12, 4, 9, 3, 4, 12},
		{"a log up to the snapshot", 5, 9, 3, 9, 3, 3, 9},
		{"a log that ends before a received snapshot", 1, 7, 2, 9, 3, 3, 9},
	} {
		t.Run(row.name, func(t *testing.T) {
			log, snapshots := raft.NewInmemStore(), raft.NewInmemSnapshotStore()
			for i := row.from; i <= row.to && i > 0; i++ {
				must.OK(t, log.StoreLog(&raft.Log{Index: i, Term: row.logTerm}))
			}
			if row.snapshot > 0 {
				sink, err := snapshots.Create(1, row.snapshot, row.snapTerm, raft.Configuration{}, 1, nil)
				must.OK(t, err)
				must.OK(t, sink.Close())
			}
			if term, index := lastEntry(log, snapshots); term != row.term || index != row.index {
				t.Errorf("term %d, index %d, want %d, %d", term, index, row.term, row.index)
			}
		})
	}
}
