package membership

import (
	"fmt"
	"time"

	"github.com/quorate/quorate/proto"
)

// facts are what a leader knows when it decides on a change.
type facts struct {
	self   proto.NodeID // the leader
	conf   Configuration
	health map[proto.NodeID]probe
	limits Limits
	now    time.Time
	names  map[proto.NodeID]string
}

// name is what people call a member: its name, or its id if it has none.
func (f facts) name(id proto.NodeID) string {
	if name := f.names[id]; name != "" {
		return name
	}
	return string(id)
}

// probe is what the leader last learned about a member.
type probe struct {
	alive   bool   // answered
	err     string // why not
	term    uint64
	last    uint64 // its last log index
	behind  uint64 // entries behind the leader's log as it was before the question
	contact time.Duration
	hears   bool // it follows this leader, in this term
	// since is when the member began to be caught up without a gap; zero if it
	// is not.
	since time.Time
}

// caughtUp returns why a member is not caught up, or "".
func (p probe) caughtUp(l Limits) string {
	switch {
	case !p.alive:
		return "it does not answer: " + p.err
	case !p.hears:
		return "it does not follow this leader in its term yet"
	case p.behind > l.Lag:
		return fmt.Sprintf("it is %d entries behind; at most %d are allowed", p.behind, l.Lag)
	case p.contact < 0 || p.contact > l.Contact:
		return fmt.Sprintf("it last heard the leader %v ago; at most %v are allowed", p.contact, l.Contact)
	}
	return ""
}

// live says whether a member would take part in the next vote.
func (f facts) live(id proto.NodeID) bool { return id == f.self || f.health[id].alive }

// liveMajority returns why voters would not have a live majority, or "".
func (f facts) liveMajority(voters []proto.NodeID) string {
	live := 0
	for _, id := range voters {
		if f.live(id) {
			live++
		}
	}
	if need := len(voters)/2 + 1; live < need {
		return fmt.Sprintf("it would leave %d voters of which %d answer; %d are needed", len(voters), live, need)
	}
	return ""
}

func (f facts) voters(except proto.NodeID) []proto.NodeID {
	var out []proto.NodeID
	for _, s := range f.conf.Servers {
		if s.Voter && s.ID != except {
			out = append(out, s.ID)
		}
	}
	return out
}

// guard refuses a change that would endanger the cluster. force lets through
// what an operator may know better; it never lets the last voter go, nor a
// transfer to a node that cannot win.
func guard(kind proto.ChangeKind, target Server, f facts, force bool) error {
	refuse := func(why string) error {
		if why == "" {
			return nil
		}
		return fmt.Errorf("%w: %s %s: %s", ErrRefused, verb(kind), f.name(target.ID), why)
	}
	others := f.voters(target.ID)
	switch kind {
	case proto.ChangeKind_CHANGE_PROMOTE:
		if force {
			return nil
		}
		if why := f.health[target.ID].caughtUp(f.limits); why != "" {
			return refuse(why)
		}
		return refuse(f.liveMajority(append(others, target.ID)))
	case proto.ChangeKind_CHANGE_DEMOTE, proto.ChangeKind_CHANGE_REMOVE:
		if !target.Voter {
			return nil
		}
		if len(others) == 0 {
			return refuse("it is the only voter")
		}
		if force {
			return nil
		}
		return refuse(f.liveMajority(others))
	case proto.ChangeKind_CHANGE_TRANSFER:
		if !target.Voter {
			return refuse("it is not a voter; first: quorate member promote " + f.name(target.ID))
		}
		return refuse(f.health[target.ID].caughtUp(f.limits))
	}
	return nil
}

// stable says whether a member has been caught up for long enough.
func (f facts) stable(id proto.NodeID) bool {
	p := f.health[id]
	return !p.since.IsZero() && f.now.Sub(p.since) >= f.limits.Stable
}

// duplicateAddress returns the other member that has an address. Raft refuses
// two of them, and the new one is most often the old one with a wiped disk.
func duplicateAddress(conf Configuration, id proto.NodeID, address string) (proto.NodeID, bool) {
	for _, s := range conf.Servers {
		if s.Address == address && s.ID != id {
			return s.ID, true
		}
	}
	return "", false
}

func verb(kind proto.ChangeKind) string {
	switch kind {
	case proto.ChangeKind_CHANGE_ADD:
		return "add"
	case proto.ChangeKind_CHANGE_PROMOTE:
		return "promote"
	case proto.ChangeKind_CHANGE_DEMOTE:
		return "demote"
	case proto.ChangeKind_CHANGE_REMOVE:
		return "remove"
	case proto.ChangeKind_CHANGE_TRANSFER:
		return "transfer leadership to"
	}
	return kind.String()
}
