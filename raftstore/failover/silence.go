package failover

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/local"
)

// A leader that is paused, cut off, or whose machine has vanished refuses nothing: it is
// silent. Raft alone notices that by its election timeout, which must be long, because its
// messages wait behind writes of the disk. So each voter asks the leader a question that
// waits for no disk, several times a second while Raft hears nothing: the one of the quorum rounds, for the term, on
// a stream of its own, answered from memory by the goroutine that reads the stream. A leader
// whose disk stalls answers. One that hears nothing, or whose answers do not arrive, does
// not, whatever else it sends.
//
// A voter that finds the leader silent asks the others, as it does when the leader has died
// (failover.go). See DESIGN.md, "Silence".

const (
	// silenceLooks is how many looks there are in the time after which a leader is silent.
	silenceLooks = 10
	// looksPerQuestion is how many of them there are from an answer to the next question
	// while Raft has no contact. With contact there is a question in the time of all looks.
	looksPerQuestion = 2
	// missedLooks in a row mean that this process stood still.
	missedLooks = 3
	// leastSilence is for timeouts that tests have: Raft's own are short enough then.
	leastSilence = 200 * time.Millisecond
)

// silence is whether the leader answers this node. It is told by the goroutines of
// Failover.Listen, and may be asked by any.
type silence struct {
	after time.Duration // without an answer, and without contact of Raft
	// contact is when Raft last had contact with the leader.
	contact func() time.Time
	// found is sent to at each look that finds the leader silent, hurry when a question is
	// wanted at once.
	found, hurry chan struct{}

	mu     sync.Mutex
	leader raft.ServerID // that is asked, or ""
	heard  time.Time     // its last answer, or when it was first asked
	put    time.Time     // since when questions on open streams have no answer, or zero
	wanted time.Time     // since when Raft has had no contact for a while, or zero
	due    time.Time     // when this process looks again

	resigned time.Time // when it has said that it does not lead, or zero
}

func newSilence(after time.Duration, contact func() time.Time) *silence {
	return &silence{after: max(after, leastSilence), contact: contact, found: make(chan struct{}, 1), hurry: make(chan struct{}, 1)}
}

func (q *silence) every() time.Duration { return q.after / silenceLooks }

// fresh is how old Raft's contact may be without a question at once: heartbeats come within a
// fifth of their timeout, which is two fifths of after.
func (q *silence) fresh() time.Duration { return q.after * 9 / 20 }

// ask begins with a leader, or ends with "".
func (q *silence) ask(leader raft.ServerID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	q.leader, q.heard, q.put, q.wanted, q.due, q.resigned = leader, now, time.Time{}, time.Time{}, now, time.Time{}
}

// asked notes that a question was put to the leader on a stream that is open.
func (q *silence) asked(leader raft.ServerID) {
	q.note(leader, func(now time.Time) {
		if q.put.IsZero() {
			q.put = now
		}
	})
}

// answered notes the leader's answer. One that follows has given up: its log took no write, say. Raft's followers would not
// notice before their timeout.
func (q *silence) answered(leader raft.ServerID, follows bool) {
	q.note(leader, func(now time.Time) {
		q.heard, q.put, q.resigned = now, time.Time{}, time.Time{}
		if follows {
			q.resigned = now
			local.Wake(q.found)
		}
	})
}

// interrupted notes that the stream with the question was ended, and not by this node.
func (q *silence) interrupted(leader raft.ServerID) {
	q.note(leader, func(time.Time) { q.put = time.Time{} })
}

func (q *silence) note(leader raft.ServerID, f func(now time.Time)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.leader == leader {
		f(time.Now())
	}
}

// look is called every so often; it returns when to call it again. After a pause of this
// process it begins to listen again: what has arrived meanwhile was not read yet.
func (q *silence) look() time.Duration {
	q.mu.Lock()
	now := time.Now()
	if q.stoodStill(now) {
		q.heard = now
		if !q.put.IsZero() {
			q.put = now
		}
	}
	next := q.every()
	switch age := now.Sub(q.contact()); {
	case q.leader == "":
		next = q.after // this node may become a voter
	case age < q.fresh():
		q.wanted = time.Time{}
		next = max(next, q.fresh()-age)
	case q.wanted.IsZero():
		q.wanted = now
		local.Wake(q.hurry)
	}
	q.due = now.Add(next)
	leader := q.leader
	q.mu.Unlock()
	if q.silent(leader) {
		local.Wake(q.found)
	}
	return next
}

// pause is how long to wait from an answer to the next question.
func (q *silence) pause() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.wanted.IsZero() {
		return q.after
	}
	return looksPerQuestion * q.every()
}

// stoodStill reports whether looks were missed. q.mu is held.
func (q *silence) stoodStill(now time.Time) bool { return now.Sub(q.due) > missedLooks*q.every() }

// silent reports whether a leader is asked and is silent, or leads no more: see unheard. Contact of Raft alone
// counts for a quarter longer: this
// node may still be writing what the leader has sent before, and the leader may go on
// sending and hear nothing. A question that could not even be put says nothing.
func (q *silence) silent(leader raft.ServerID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	return q.quiet(leader, now) || q.unanswered(leader, now) && !q.put.IsZero() && now.Sub(q.put) >= q.after*5/4
}

// unheard reports whether a leader is asked and has answered nothing for a while, or that it leads no more, and Raft
// has had no contact with it.
func (q *silence) unheard(leader raft.ServerID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	return q.quiet(leader, now)
}

// quiet is neither answers nor contact, after questions were wanted for half of the time.
// q.mu is held.
func (q *silence) quiet(leader raft.ServerID, now time.Time) bool {
	if leader != "" && q.leader == leader && !q.resigned.IsZero() {
		return q.resigned.After(q.contact())
	}
	return q.unanswered(leader, now) && now.Sub(q.contact()) >= q.after && !q.wanted.IsZero() && now.Sub(q.wanted) >= q.after/2
}

// unanswered is about questions alone. q.mu is held.
func (q *silence) unanswered(leader raft.ServerID, now time.Time) bool {
	return leader != "" && q.leader == leader && !q.stoodStill(now) && now.Sub(q.heard) >= q.after
}

// Listen keeps asking the leader while this node is a voter and another node leads.
func (f *Failover) Listen() {
	pause := time.NewTimer(0)
	defer pause.Stop()
	var id raft.ServerID
	var addr raft.ServerAddress
	stop := func() {}
	defer func() { stop() }()
	for {
		change := f.node.Changed()
		if a, i := f.leaderToAsk(); i != id || a != addr {
			stop()
			stop = func() {}
			id, addr = i, a
			f.silence.ask(id)
			if id != "" {
				stop = f.keepAsking(id, addr)
			}
		}
		pause.Reset(f.silence.look())
		select {
		case <-f.node.Context().Done():
			return
		case <-change:
		case <-pause.C:
		}
	}
}

// leaderToAsk is the leader if this node is a voter that follows it, or nobody.
func (f *Failover) leaderToAsk() (raft.ServerAddress, raft.ServerID) {
	addr, id := f.node.OtherLeader()
	if id == "" {
		return "", ""
	}
	for _, m := range f.node.Servers() {
		if m.ID == raft.ServerID(f.node.ID) && m.Suffrage == raft.Voter {
			return addr, id
		}
	}
	return "", ""
}

// keepAsking asks a leader until stop is called, which waits for the end.
func (f *Failover) keepAsking(id raft.ServerID, addr raft.ServerAddress) (stop func()) {
	ctx, cancel := context.WithCancel(f.node.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		pause := time.NewTimer(0)
		defer pause.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-pause.C:
			}
			if err := f.askOnStream(ctx, id, addr); !errors.Is(err, errUnanswered) {
				f.silence.interrupted(id)
			}
			pause.Reset(f.silence.every())
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// errUnanswered ends a stream whose question was not answered for long: the next one is on the
// connection that is the leader's by then.
var errUnanswered = errors.New("no answer")

// askOnStream asks a leader for its term, one question at a time, until the stream ends.
func (f *Failover) askOnStream(ctx context.Context, id raft.ServerID, addr raft.ServerAddress) error {
	conn, err := f.node.Peers.Conn(proto.NodeID(id), string(addr))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stream, err := proto.NewPeerClient(conn).Exchange(ctx, local.NoRetry)
	if err != nil {
		return err
	}
	limit := 2 * f.silence.after
	unanswered := time.AfterFunc(limit, func() { cancel(errUnanswered) })
	defer unanswered.Stop()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for n := uint64(1); ; n++ {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-f.silence.hurry:
		case <-pause.C:
		}
		f.silence.asked(id)
		unanswered.Reset(limit)
		if err := stream.Send(&proto.PeerRequest{Id: n, Request: &proto.PeerRequest_CurrentTerm{
			CurrentTerm: &proto.CurrentTermRequest{Round: n, Disk: f.cfg.Report()},
		}}); err != nil {
			return err
		}
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if r.Id != n {
			return fmt.Errorf("%s answers question %d, asked was %d", id, r.Id, n)
		}
		f.silence.answered(id, r.GetCurrentTerm().GetFollows())
		f.cfg.Follow(r.GetCurrentTerm().GetDisks())
		pause.Reset(f.silence.pause())
	}
}
