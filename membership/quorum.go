package membership

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// quorumGone is how long a majority must have been out of reach before a change is given
	// up: that the members are just being started is no reason.
	quorumGone = time.Second
	quorumPoll = 250 * time.Millisecond
)

// unlessNoQuorum runs a change. A change waits for a leader while there is none, which is
// right during an election; it is given up as soon as it is known that no majority can
// elect one. The error, which wraps ErrNoQuorum, then says who is missing.
func (q *quorumWatch) unlessNoQuorum(ctx context.Context, change func(context.Context) (any, error)) (any, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var lost error
	given, done := make(chan struct{}), make(chan struct{})
	go func() { // ends with ctx, or soon after given is closed
		defer close(done)
		if lost = q.awaitNoQuorum(ctx, given); lost != nil {
			cancel()
		}
	}()
	out, err := change(ctx)
	if errors.Is(err, ErrNoLeader) || errors.Is(err, ErrNotLeader) {
		close(given) // it has given up by itself, and the look that goes on says why
	} else {
		cancel()
	}
	<-done
	if err == nil || lost == nil {
		return out, err
	}
	if errors.Is(err, errNotReached) || errors.Is(err, ErrUnknownOutcome) {
		lost = maybeDone(lost)
	}
	return nil, lost
}

// maybeDone says of a change that was given up that it may have been carried out.
func maybeDone(lost error) error {
	return fmt.Errorf("%w. What was asked for may have been carried out, or may be when there is a quorum", lost)
}

// explain says of an answer of the Kubernetes API that may be for want of a quorum whether it is, as
// the admin API says it of changes: the same server is asked who is missing.
func (c *AdminClient) explain(ctx context.Context, server string, err error) error {
	unknown := errors.Is(err, ErrUnknownOutcome)
	if !unknown && !errors.Is(err, ErrNoLeader) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, findQuorumWithin)
	defer cancel()
	st, failed := c.only(server).Status(ctx)
	if failed != nil {
		return err
	}
	why := st.missing()
	if why == "" { // the leader changes
		return err
	}
	lost := fmt.Errorf("%w: %s", ErrNoQuorum, why)
	if unknown {
		return maybeDone(lost)
	}
	return lost
}

// only is a client of one of the servers.
func (c *AdminClient) only(server string) *AdminClient {
	return &AdminClient{servers: []string{server}, http: c.http, streams: c.streams}
}

// awaitNoQuorum returns an error when the majority has been out of reach for long enough,
// or is when given is closed. It returns nil when ctx ends, and when there is a majority
// and given is closed.
func (q *quorumWatch) awaitNoQuorum(ctx context.Context, given <-chan struct{}) error {
	var since time.Time // of the first look that found no majority
	for {
		looked := time.Now()
		why := q.missing(ctx)
		if ctx.Err() != nil {
			return nil
		}
		last := false
		select {
		case <-given:
			last = true
		default:
		}
		switch {
		case why == "" && last:
			return nil
		case why == "":
			since = time.Time{}
		case since.IsZero():
			since = looked
		}
		if why != "" && (last || time.Since(since) >= quorumGone) {
			return fmt.Errorf("%w: %s", ErrNoQuorum, why)
		}
		if sleep(ctx, quorumPoll, given) != nil {
			return nil
		}
	}
}

// missing asks all members and says who is missing for a majority of the voters, or "" if
// none is. A leader that answers knows better than this node which followers answer it.
func (q *quorumWatch) missing(ctx context.Context) string {
	if why := q.waiting.Load(); why != nil {
		return waits(q.id.Name(), *why)
	}
	conf, members, err := q.members()
	if err != nil || len(members) == 0 {
		return ""
	}
	st := mergeStatus(members, q.askAll(ctx, conf.Servers))
	return st.missing()
}

func waits(name, why string) string { return fmt.Sprintf("%s waits for a cluster: %s", name, why) }

// missing says who is missing for a majority of the voters, and why, or "" if none is.
func (st *ClusterStatus) missing() string {
	why := st.missingAs(func(m *MemberStatus) string { return m.named() + noAnswer(m.Error, m.PeerAddress) })
	if why == "" || st.Waiting != "" {
		return why
	}
	return why + ". Start what is missing and try again; 'quorate status' shows all members. " +
		"If a majority is lost for good: 'quorate recover --help'"
}

// missingAs is missing, with the words of as for each voter that does not answer.
func (st *ClusterStatus) missingAs(as func(*MemberStatus) string) string {
	var live, missing []string
	for i := range st.Members {
		m := &st.Members[i]
		switch {
		case st.Waiting != "" && m.ID == st.AnsweredBy:
			return waits(m.named(), st.Waiting)
		case !m.Voter:
		case m.Error != "":
			missing = append(missing, as(m))
		case m.Role == "leader":
			return ""
		default:
			live = append(live, m.named())
		}
	}
	voters := len(live) + len(missing)
	need := voters/2 + 1
	if voters == 0 || len(live) >= need {
		return ""
	}
	slices.Sort(live)
	slices.Sort(missing)
	answer := "none answers"
	switch len(live) {
	case 0:
	case 1:
		answer = live[0] + " answers"
	default:
		answer = strings.Join(live, ", ") + " answer"
	}
	return fmt.Sprintf("of %d voters %s, and %d are needed; %s", voters, answer, need, strings.Join(missing, "; "))
}

// noAnswer says why a member did not answer, and where it was asked.
func noAnswer(text, address string) string {
	if strings.Contains(text, address) {
		return ": " + text
	}
	return " at " + address + ": " + text
}

// named is what people call a member: its name, or its id as long as it has none.
func (m *MemberInfo) named() string {
	return cmp.Or(m.Name, string(m.ID))
}
