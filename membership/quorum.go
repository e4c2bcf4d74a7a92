package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/proto"
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
func (m *Manager) unlessNoQuorum(ctx context.Context, change func(context.Context) (any, error)) (any, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var lost error
	given, done := make(chan struct{}), make(chan struct{})
	go func() { // ends with ctx, or soon after given is closed
		defer close(done)
		if lost = m.awaitNoQuorum(ctx, given); lost != nil {
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
		lost = fmt.Errorf("%w. What was asked for may have been carried out, or may be when there is a quorum", lost)
	}
	return nil, lost
}

// awaitNoQuorum returns an error when the majority has been out of reach for long enough,
// or is when given is closed. It returns nil when ctx ends, and when there is a majority
// and given is closed.
func (m *Manager) awaitNoQuorum(ctx context.Context, given <-chan struct{}) error {
	var since time.Time // of the first look that found no majority
	for {
		looked := time.Now()
		why := m.missing(ctx)
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
func (m *Manager) missing(ctx context.Context) string {
	if why := m.waiting.Load(); why != nil {
		return fmt.Sprintf("%s waits for a cluster: %s", m.id.Name(), *why)
	}
	conf, members, err := m.members()
	if err != nil || len(members) == 0 {
		return ""
	}
	return missingOf(members, m.askAll(ctx, conf.Servers))
}

func missingOf(members []*proto.Member, answers map[proto.NodeID]statusAnswer) string {
	var live, missing []string
	for _, p := range members {
		a := answers[proto.NodeID(p.NodeId)]
		switch {
		case !p.Voter:
		case a.err != nil:
			missing = append(missing, named(p)+noAnswer(a.err, p.PeerAddress))
		case a.status.GetRole() == "leader":
			return ""
		default:
			live = append(live, named(p))
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
	return fmt.Sprintf("of %d voters %s, and %d are needed; %s. Start what is missing and try again; 'quorate status' shows all members. "+
		"If a majority is lost for good: 'quorate recover --help'", voters, answer, need, strings.Join(missing, "; "))
}

// noAnswer says why a member did not answer, and where it was asked.
func noAnswer(err error, address string) string {
	text := err.Error()
	if strings.Contains(text, address) {
		return ": " + text
	}
	return " at " + address + ": " + text
}

// named is what people call a member: its name, or its id as long as it has none.
func named(p *proto.Member) string {
	if p.Name != "" {
		return p.Name
	}
	return p.NodeId
}
