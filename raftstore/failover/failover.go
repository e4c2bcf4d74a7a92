// Package failover replaces a leader that has died or is silent.
package failover

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/local"
)

// Fast failover. Raft alone notices a dead leader by silence, after the election
// timeout, which must be long enough for the worst stall of a disk. But a leader
// whose PROCESS has died shows at once: its connections end, and its port
// refuses new ones. One that is paused or cut off does not answer: see silence.go.
// A voter that sees either asks the other voters. If a majority
// (itself included) sees the same, and none of them has a longer log, it campaigns
// immediately, as if the leader had told it to (TimeoutNow).
//
// Safety does not depend on any of this: a campaign is always allowed in Raft, the
// votes decide. The conditions only avoid elections that nobody needs.
//
// Failover.Run may wait for others and for Raft's main loop meanwhile. What this node
// knows of the leader does not wait for it, nor does the answer to other voters.

const (
	// campaignAgain is how long a node waits after a campaign, or after another voter
	// was the better candidate.
	campaignAgain = 150 * time.Millisecond
	// firstPause is the first of the pauses, which double, between looks whether all
	// voters have the first configuration.
	firstPause = 2 * time.Millisecond
	// answerWithin is how long the other voters have to say what they see.
	answerWithin = 400 * time.Millisecond
	// answerAfter is how long those have of it that answer when a majority has.
	answerAfter = 20 * time.Millisecond
	// answerLate is when one that asks this node itself is counted without its answer: what
	// a connection has to deliver after a cut comes when TCP tries again, seconds later.
	answerLate = 100 * time.Millisecond
	// electionOver is how long a voter may be in a later term, and know no leader, or be a candidate, before
	// its election has come to nothing.
	electionOver = time.Second
	// surveyAgain is how long a node waits when the others do not see yet what it sees.
	surveyAgain = 50 * time.Millisecond
)

// Config is what Failover needs.
type Config struct {
	Node *local.Node
	// Silence is after which time a leader that answers nothing is silent.
	Silence   time.Duration
	Log       raft.LogStore
	Snapshots raft.SnapshotStore
	// Own hands a request to this node's Raft; without it this node never campaigns.
	Own local.Deliverer
	// Header is that of a message which this node makes itself.
	Header func() raft.RPCHeader
	// MayLead returns an error when this node could not store its first entries as the leader.
	MayLead func() error
	// Report is what the leader is told of this node's disk, and Follow is given what it says of all.
	Report func() *proto.DiskSpace
	Follow func(*proto.DiskSpace)
}

// Failover watches the leader, and campaigns when there is none. All methods are safe for concurrent use.
type Failover struct {
	cfg     Config
	node    *local.Node
	silence *silence
	// elections is of Run.
	elections elections
	candidacy candidacy
	askers    askers
	// formed has a value when this node has written the first configuration of a cluster.
	formed    chan struct{}
	campaigns atomic.Int64
}

// New returns a Failover that does nothing before Run and Listen are called, which is when the node has its Raft.
func New(cfg Config) *Failover {
	return &Failover{
		cfg: cfg, node: cfg.Node, formed: make(chan struct{}, 1),
		silence: newSilence(cfg.Silence, func() time.Time { return cfg.Node.Raft().LastContact() }),
	}
}

// Formed is told, once, that this node has written the first configuration of a cluster.
func (f *Failover) Formed() { f.formed <- struct{}{} }

// NoteState is told of each state of Raft. It does not wait.
func (f *Failover) NoteState(state raft.RaftState) { f.candidacy.note(state) }

// Campaigns is how often this node has campaigned by itself.
func (f *Failover) Campaigns() int64 { return f.campaigns.Load() }

// Looks is when this node looks at the leader next, and when it has last had an answer. For tests.
func (f *Failover) Looks() (due, heard time.Time) {
	f.silence.mu.Lock()
	defer f.silence.mu.Unlock()
	return f.silence.due, f.silence.heard
}

// Hurry has the leader asked at once: this node has something to tell it.
func (f *Failover) Hurry() { local.Wake(f.silence.hurry) }

// Unheard reports whether a leader is asked and has answered nothing for a while, or that it leads no more, and Raft
// has had no contact with it.
func (f *Failover) Unheard(leader raft.ServerID) bool { return f.silence.unheard(leader) }

// Run campaigns when nobody is known to lead, and when the leader has died.
func (f *Failover) Run() {
	for f.node.Context().Err() == nil {
		change := f.node.Changed()
		if addr, id := f.node.Raft().LeaderWithID(); id == "" || id == raft.ServerID(f.node.ID) {
			f.awaitLeader(id, change)
		} else {
			f.watchLeader(id, addr, change)
		}
	}
}

// awaitLeader waits for a change of leader, but not for long as long as there is none:
// between elections, and when all nodes start at once, the one that would win campaigns
// soon, instead of after a timeout. id is that of this node, or empty.
func (f *Failover) awaitLeader(id raft.ServerID, change <-chan struct{}) {
	term := f.node.Raft().CurrentTerm()
	pause := time.NewTimer(campaignAgain + rand.N(campaignAgain/3))
	defer pause.Stop()
	select {
	case <-change:
	case <-f.node.Context().Done():
	case <-f.formed:
		f.campaignFirst(change)
	case <-pause.C:
		// A term that has moved meanwhile is an election under way: let it end.
		if id == "" && f.node.Raft().CurrentTerm() == term {
			f.campaignIfNobodyLeads()
		}
	}
}

// campaignFirst begins the first election of a cluster, of which this node has just
// written the first configuration: nobody can lead yet, so there is nothing to wait for
// but the other voters, who write it at about the same time. One that has not would
// vote all the same, but it would then find a cluster that it has not started, and join
// that the long way. When they take too long, a majority has to be enough.
func (f *Failover) campaignFirst(change <-chan struct{}) {
	term := f.node.Raft().CurrentTerm()
	ctx, cancel := context.WithTimeout(f.node.Context(), campaignAgain)
	defer cancel()
	for pause := firstPause; !f.allFormed(ctx, term) && ctx.Err() == nil; pause *= 2 {
		select {
		case <-change:
			return
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	if f.node.Raft().CurrentTerm() == term {
		f.campaignIfNobodyLeads()
	}
}

// allFormed reports whether all voters have the first configuration and no leader.
func (f *Failover) allFormed(ctx context.Context, term uint64) bool {
	v := f.askLeaderLost(ctx, "", term)
	for range v.asked {
		if r := <-v.answers; r.LeaderLostResponse == nil || !r.Lost || r.LastLogIndex == 0 {
			return false
		}
	}
	return v.self
}

// watchLeader watches the connection to another node as long as it leads.
func (f *Failover) watchLeader(id raft.ServerID, addr raft.ServerAddress, change <-chan struct{}) {
	ctx, cancel := context.WithCancel(f.node.Context())
	lost := make(chan struct{}, 1)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		f.node.Peers.WatchConn(ctx, proto.NodeID(id), string(addr), func() {
			select {
			case lost <- struct{}{}:
			default:
			}
		})
	}()
	defer func() {
		cancel()
		<-watched
	}()
	for {
		select {
		case <-f.node.Context().Done():
			return
		case <-change:
			change = f.node.Changed()
			if a, i := f.node.Raft().LeaderWithID(); i != id || a != addr {
				return
			}
		case <-lost:
			f.campaignIfLost(id, addr)
		case <-f.silence.found:
			if f.silence.silent(id) {
				f.campaignIfLost(id, addr)
			}
		}
	}
}

// campaignIfLost campaigns while the leader's port refuses connections, or the leader is
// silent, and nobody else has taken over.
func (f *Failover) campaignIfLost(leader raft.ServerID, addr raft.ServerAddress) {
	term, began := f.node.Raft().CurrentTerm(), time.Now()
	for try := 0; f.node.Context().Err() == nil && try < 20; try++ {
		if a, id := f.node.Raft().LeaderWithID(); id != "" && (id != leader || a != addr) {
			return
		}
		if f.node.Ready() {
			return
		}
		// A dying process may hold its port for a while after its connections: as long
		// as the leader sends nothing, it is asked again.
		lost := f.lost(f.node.Context(), leader, addr)
		refused := lost && !f.silence.silent(leader)
		if !lost && f.node.Raft().LastContact().After(began) {
			return
		}
		campaigned := false
		if lost && f.BestCandidate(leader, term) {
			campaigned = f.Campaign(leader, term, func() bool { return refused || f.silence.silent(leader) })
		}
		// Two that campaigned at once must not do so in step.
		pause := surveyAgain + rand.N(surveyAgain)
		if campaigned || refused {
			pause = campaignAgain + rand.N(campaignAgain)
		}
		select {
		case <-f.node.Context().Done():
		case <-time.After(pause):
		}
		term = f.node.Raft().CurrentTerm()
	}
}

// refuses asks an address for as long as other voters have for their answers: where a link is
// cut, a dial is answered by nobody.
func (f *Failover) refuses(ctx context.Context, addr raft.ServerAddress) bool {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	return f.node.Peers.Refused(ctx, string(addr))
}

// campaignIfNobodyLeads campaigns if a majority of the voters knows no
// leader and none of those is a better candidate.
func (f *Failover) campaignIfNobodyLeads() {
	if term := f.node.Raft().CurrentTerm(); f.BestCandidate("", term) {
		f.Campaign("", term, func() bool { return true })
	}
}

// Campaign starts an election on this node, as a leader's TimeoutNow does. Raft heeds that
// whatever it is when it comes to it, also as the leader of a later term, or the
// follower of one: on a machine that is short of processors or behind a slow disk,
// each election would be followed by the next. So it is taken back as soon as this
// node's term or leader is another one, or the leader is lost no more. It reports whether
// Raft has begun.
func (f *Failover) Campaign(leader raft.ServerID, term uint64, lost func() bool) bool {
	wanted := func() bool {
		_, id := f.node.Raft().LeaderWithID()
		// A candidate campaigns already; it would not begin again.
		return f.cfg.MayLead() == nil && f.node.Raft().State() == raft.Follower && f.node.Raft().CurrentTerm() == term && (id == "" || id == leader) && lost()
	}
	if f.cfg.Own == nil || !wanted() || f.node.Context().Err() != nil {
		return false
	}
	f.node.Logger.Info("no leader: campaigning", "term", term, "lost", leader)
	req := &raft.TimeoutNowRequest{RPCHeader: f.cfg.Header()}
	if !f.cfg.Own.Deliver(f.node.Context(), req, wanted) {
		return false
	}
	f.campaigns.Add(1)
	return true
}

// BestCandidate reports whether a majority of voters has lost the leader and
// none of those would be a better leader than this node. Voters that have not lost it
// do not count against that: with a minority a leader cannot do anything. But where no leader
// is named, one that some know may be new, and not known to the others yet.
func (f *Failover) BestCandidate(leader raft.ServerID, term uint64) bool {
	myTerm, myIndex := lastEntry(f.cfg.Log, f.cfg.Snapshots)
	ctx, cancel := context.WithTimeout(f.node.Context(), answerWithin)
	defer cancel()
	v := f.askLeaderLost(ctx, leader, term)
	if !v.self {
		return false
	}
	lost := map[raft.ServerID]bool{raft.ServerID(f.node.ID): true}
	enough, late := time.NewTimer(answerWithin), time.NewTimer(answerLate)
	defer enough.Stop()
	defer late.Stop()
	for answered := 0; answered < v.asked; {
		before := len(lost)
		select {
		case r := <-v.answers:
			answered++
			switch {
			case r.LeaderLostResponse == nil:
			case r.Term > term && !(leader == "" && r.Lost && f.elections.over(r.Term)):
				return false
			case !r.Lost && leader == "", r.Lost && f.better(r, myTerm, myIndex):
				return false
			case r.Lost:
				lost[r.from] = true
			default:
				delete(lost, r.from) // it has heard the leader since it asked
			}
		case <-late.C:
			for _, id := range f.askers.of(leader, term) {
				if v.asks(id) {
					lost[id] = true
				}
			}
		case <-enough.C:
			answered = v.asked
		}
		if before <= v.voters/2 && len(lost) > v.voters/2 {
			// One that cannot be reached is not waited for.
			enough.Reset(answerAfter)
		}
	}
	return len(lost) > v.voters/2
}

// better reports whether a voter is a better candidate than this node, whose log ends at
// term and index.
func (f *Failover) better(r voterAnswer, term, index uint64) bool {
	switch {
	case r.LostCampaign:
		return false // also with a longer log: this node's campaign makes it a follower, which may campaign then
	case r.LastLogTerm != term:
		return r.LastLogTerm > term
	case r.LastLogIndex != index:
		return r.LastLogIndex > index
	}
	return r.from > raft.ServerID(f.node.ID)
}

// elections knows the latest term that another voter was found in, and since when. A node that has campaigned
// and then ended, or was not heard, keeps its term. With a log that is shorter it waits for the others, and they would
// wait for it, until the election timeout.
type elections struct {
	term  uint64
	since time.Time
}

// over reports whether an election in a term of another voter has ended without a leader. For Run alone.
func (e *elections) over(term uint64) bool {
	if term > e.term {
		e.term, e.since = term, time.Now()
	}
	return term == e.term && time.Since(e.since) > electionOver
}

// candidacy knows since when this node is a candidate without an end.
type candidacy struct{ since atomic.Pointer[time.Time] }

// note is told of each state of Raft. It does not wait.
func (c *candidacy) note(state raft.RaftState) {
	if state != raft.Candidate {
		c.since.Store(nil)
	} else if c.since.Load() == nil {
		now := time.Now()
		c.since.Store(&now)
	}
}

// over reports whether it has been a candidate for as long as no election takes that comes to something.
func (c *candidacy) over() bool {
	since := c.since.Load()
	return since != nil && time.Since(*since) > electionOver
}

// askers are the nodes that have asked this one whether it has lost the leader: who asks has.
type askers struct {
	mu   sync.Mutex
	last map[raft.ServerID]asked
}

type asked struct {
	leader raft.ServerID
	term   uint64
	at     time.Time
}

// note is told of a question; from must be a member.
func (a *askers) note(from, leader raft.ServerID, term uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last == nil {
		a.last = map[raft.ServerID]asked{}
	}
	a.last[from] = asked{leader, term, time.Now()}
}

// of returns who has asked about a leader in a term within answerWithin.
func (a *askers) of(leader raft.ServerID, term uint64) (out []raft.ServerID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for from, q := range a.last {
		switch {
		case time.Since(q.at) > answerWithin:
			delete(a.last, from)
		case leader != "" && q.leader == leader && q.term == term:
			out = append(out, from)
		}
	}
	return out
}

// survey is what this node asks the other voters when it has lost the leader.
type survey struct {
	voters  int             // in the configuration
	self    bool            // this node is one of them
	asked   int             // all but this node and the lost leader
	ids     []raft.ServerID // of those
	answers <-chan voterAnswer
}

func (v *survey) asks(id raft.ServerID) bool { return slices.Contains(v.ids, id) }

// voterAnswer is a voter's answer, or nil if it did not come in time.
type voterAnswer struct {
	from raft.ServerID
	*proto.LeaderLostResponse
}

// askLeaderLost asks all voters at once. Each of those that are asked has an answer when
// ctx ends, at the latest; they need not be read.
func (f *Failover) askLeaderLost(ctx context.Context, leader raft.ServerID, term uint64) (v survey) {
	servers := f.node.Servers()
	answers := make(chan voterAnswer, len(servers))
	v.answers = answers
	for _, server := range servers {
		if server.Suffrage != raft.Voter {
			continue
		}
		v.voters++
		switch server.ID {
		case raft.ServerID(f.node.ID):
			v.self = true
		case leader:
		default:
			v.asked++
			v.ids = append(v.ids, server.ID)
			go func() { answers <- voterAnswer{server.ID, f.askOneLeaderLost(ctx, server, leader, term)} }()
		}
	}
	return v
}

func (f *Failover) askOneLeaderLost(ctx context.Context, server raft.Server, leader raft.ServerID, term uint64) *proto.LeaderLostResponse {
	conn, err := f.node.Peers.Conn(proto.NodeID(server.ID), string(server.Address))
	if err != nil {
		return nil
	}
	r, err := proto.NewPeerClient(conn).LeaderLost(ctx, &proto.LeaderLostRequest{Term: term, LeaderId: string(leader)})
	if err != nil {
		return nil
	}
	return r
}

// Asked is told that a member has asked whether this node has lost the leader: it has.
func (f *Failover) Asked(from proto.NodeID, req *proto.LeaderLostRequest) {
	f.askers.note(raft.ServerID(from), raft.ServerID(req.LeaderId), req.Term)
}

// LeaderLost is this node's answer to another that has lost the leader.
func (f *Failover) LeaderLost(ctx context.Context, req *proto.LeaderLostRequest) *proto.LeaderLostResponse {
	r := &proto.LeaderLostResponse{Term: f.node.Raft().CurrentTerm()}
	r.LastLogTerm, r.LastLogIndex = lastEntry(f.cfg.Log, f.cfg.Snapshots)
	addr, id := f.node.Raft().LeaderWithID()
	// Raft's candidate that was told to campaign follows the leader of its term, and stays a candidate. So does
	// one that was refused by a node which had not lost the leader yet, and has now.
	r.LostCampaign = f.node.Raft().State() == raft.Candidate && (id != "" || f.candidacy.over())
	switch {
	case f.node.Ready(), r.Term > req.Term && (id != "" || req.LeaderId != ""):
	case id == "":
		r.Lost = true
	case id == raft.ServerID(req.LeaderId):
		r.Lost = f.lost(ctx, id, addr)
	}
	return r
}

// lost reports whether the leader is silent or refuses connections. A dial may be answered by
// nobody: lost returns as soon as the leader is silent.
func (f *Failover) lost(ctx context.Context, leader raft.ServerID, addr raft.ServerAddress) bool {
	if f.silence.silent(leader) {
		return true
	}
	refused := make(chan bool, 1)
	go func() { refused <- f.refuses(ctx, addr) }() // ends after answerWithin
	tick := time.NewTicker(f.silence.every() / 2)
	defer tick.Stop()
	for {
		select {
		case r := <-refused:
			return r || f.silence.silent(leader)
		case <-tick.C:
			if f.silence.silent(leader) {
				return true
			}
		}
	}
}

// lastEntry returns the end of a log as elections compare it: of its newest entry,
// or of the newest snapshot if that is ahead, as after an install or when
// everything was cut. Zeros stand for what cannot be read.
func lastEntry(log raft.LogStore, snapshots raft.SnapshotStore) (term, index uint64) {
	if list, err := snapshots.List(); err == nil && len(list) > 0 {
		term, index = list[0].Term, list[0].Index
	}
	last, err := log.LastIndex()
	if err != nil || last <= index {
		return term, index
	}
	var l raft.Log
	if err := log.GetLog(last, &l); err != nil {
		return term, index // cut or replaced between the two calls
	}
	return l.Term, last
}
