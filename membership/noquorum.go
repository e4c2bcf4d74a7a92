package membership

import (
	"context"
	"sync"
	"time"

	"github.com/quorate/quorate/proto"
)

const (
	// lookWithin bounds a look at all members: one that does not answer in that time is missing.
	lookWithin = time.Second
	// lookAnswered is how long a request that has failed waits for such a look. Where the members'
	// processes have ended it takes a few milliseconds; where their machines are silent the request
	// is answered without it, and the next one knows.
	lookAnswered = 100 * time.Millisecond
)

// quorumWatch is whether a majority of the voters is known to be out of reach.
type quorumWatch struct {
	*base
	suspected chan struct{} // holds one: the members are to be looked at

	mu     sync.Mutex
	lost   string        // who is missing, or ""
	leader proto.NodeID  // that this node knew of at the end of the look
	looked chan struct{} // closed at the end of the look that is under way, or comes next
}

func newQuorumWatch(b *base) *quorumWatch {
	return &quorumWatch{base: b, suspected: make(chan struct{}, 1), looked: make(chan struct{})}
}

// suspect has the members looked at.
func (q *quorumWatch) suspect() {
	select {
	case q.suspected <- struct{}{}:
	default:
	}
}

// get returns who is missing, unless this node knows of another leader since the last look.
func (q *quorumWatch) get(leader proto.NodeID) (lost string, looked <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if leader != "" && leader != q.leader {
		return "", q.looked
	}
	return q.lost, q.looked
}

func (q *quorumWatch) set(lost string, leader proto.NodeID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lost, q.leader = lost, leader
	close(q.looked)
	q.looked = make(chan struct{})
}

// NoQuorum is for requests that have waited for a leader in vain, for longer than an election takes. It
// returns which voters are missing for a majority, by their names alone, or "" if there is a majority
// that can elect a leader, or if that is not known: soon, if they wait, or by now.
func (q *quorumWatch) NoQuorum(ctx context.Context, wait bool) string {
	select {
	case <-q.formed:
	default:
		return ""
	}
	leader, _ := q.raft.Leader()
	lost, looked := q.get(leader)
	if lost != "" {
		return lost
	}
	q.suspect()
	if !wait {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, lookAnswered)
	defer cancel()
	select {
	case <-looked:
	case <-ctx.Done():
	}
	leader, _ = q.raft.Leader()
	lost, _ = q.get(leader)
	return lost
}

// QuorumIsLost reports whether requests need not wait for a leader, for no majority answers that could
// elect one, or follow one. It answers from memory, by the last look at the members. A node that leads
// finds out by itself.
func (q *quorumWatch) QuorumIsLost() bool {
	leader, _ := q.raft.Leader()
	lost, _ := q.get(leader)
	return lost != "" && leader != q.id.ID()
}

// run looks at the members when a request has found no leader in time, or the leader misses members,
// and from then on until a majority answers.
func (q *quorumWatch) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.suspected:
		}
		for {
			lost := q.look(ctx)
			if ctx.Err() != nil {
				return
			}
			leader, _ := q.raft.Leader()
			q.set(lost, leader)
			if lost == "" {
				break
			}
			if sleep(ctx, quorumPoll, nil) != nil {
				return
			}
		}
	}
}

// look asks all members and says which voters are missing for a majority, or "". That this node
// leads says nothing: it finds out later that its followers are gone.
func (q *quorumWatch) look(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	conf, members, err := q.members()
	if err != nil || len(members) == 0 {
		return ""
	}
	answers := q.askAll(ctx, conf.Servers)
	if own, ok := answers[q.id.ID()]; ok && own.status != nil {
		own.status.Role = ""
	}
	st := mergeStatus(members, answers)
	return st.missingAs(func(m *MemberStatus) string { return m.named() + " does not answer" })
}
