package raftstore

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/proto"
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

// pass lets time pass, looked at as Store.listen does.
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

// A voter that is wrong, or lies, and says that it has lost the leader finds no majority, and
// neither do voters that it tells so.
func TestOneVoterDeposesNobody(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	term := l.raft.CurrentTerm()
	liar := c.other(l)
	var honest *testNode
	for _, n := range c.nodes {
		if n != l && n != liar {
			honest = n
		}
	}
	c.eventually("both know the leader", func() error {
		for _, n := range []*testNode{liar, honest} {
			if _, id := n.raft.LeaderWithID(); id != raft.ServerID(l.id) {
				return errors.New("one does not")
			}
		}
		return nil
	})
	for _, n := range []*testNode{liar, honest} {
		if n.bestCandidate(raft.ServerID(l.id), term) {
			t.Errorf("%s may campaign against a leader that all others hear", n.id)
		}
	}
	r := honest.leaderLost(c.ctx(), &proto.LeaderLostRequest{Term: term, LeaderId: string(l.id)})
	if r.Lost {
		t.Error("an honest voter says that it has lost a leader that answers")
	}
	// An answer from another term is none.
	if r := honest.leaderLost(c.ctx(), &proto.LeaderLostRequest{Term: term - 1, LeaderId: string(l.id)}); r.Lost {
		t.Error("the leader of an earlier term is lost, with which nobody can be elected any more")
	}
	if at := l.raft.CurrentTerm(); at != term || !l.IsLeader() {
		t.Errorf("term %d has become %d", term, at)
	}
}

// A campaign that waits for Raft's main loop, behind a slow disk, keeps nobody from looking at
// the leader or from answering other voters. It is taken back when the leader answers again.
func TestLooksDuringACampaign(t *testing.T) {
	var slow atomic.Pointer[testNode]
	held, release := make(chan struct{}, 1), make(chan struct{})
	c := newCluster(t, 3, func(cfg *Config) {
		silent(cfg)
		node := cfg.Node
		cfg.TestHooks.Commit = func(file string, commit func() error) error {
			if n := slow.Load(); n != nil && n.id == node && ofLog(file) {
				select {
				case held <- struct{}{}:
				default:
				}
				<-release
			}
			return commit()
		}
	})
	l := c.leader()
	n := c.other(l)
	r, err := l.Propose(c.ctx(), write("k", "v"))
	noError(t, err)
	noError(t, n.WaitApplied(c.ctx(), r.Revision))
	term := l.raft.CurrentTerm()
	slow.Store(n)
	r, err = l.Propose(c.ctx(), write("k", "w"))
	noError(t, err)
	<-held
	var lost atomic.Bool
	lost.Store(true)
	campaigned := make(chan bool)
	go func() { campaigned <- n.campaign(raft.ServerID(l.id), term, lost.Load) }()
	began := time.Now()
	c.eventually("it goes on looking, and hears the leader", func() error {
		n.silence.mu.Lock()
		defer n.silence.mu.Unlock()
		if n.silence.due.Sub(began) < 5*n.silence.every() || !n.silence.heard.After(began) {
			return errors.New("it does not")
		}
		return nil
	})
	if r := n.leaderLost(c.ctx(), &proto.LeaderLostRequest{Term: term, LeaderId: string(l.id)}); r.Lost {
		t.Error("it says that it has lost a leader that it hears")
	}
	lost.Store(false)
	if <-campaigned {
		t.Error("the campaign was not taken back")
	}
	close(release)
	noError(t, n.WaitApplied(c.ctx(), r.Revision))
	if at := l.raft.CurrentTerm(); at != term || !l.IsLeader() {
		t.Errorf("term %d has become %d", term, at)
	}
}
