package faults

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/bench/client"
)

// Kind is what happens to a node.
type Kind string

// The kinds of faults.
const (
	Kill      Kind = "kill"      // SIGKILL; started again at the end
	Restart   Kind = "restart"   // SIGTERM, and started again as soon as it is gone
	Pause     Kind = "pause"     // SIGSTOP; SIGCONT at the end
	Partition Kind = "partition" // cut off from the other nodes, not from clients; healed at the end
	SlowDisk  Kind = "slow-disk" // each sync takes longer, until the end
)

// kinds are all of them.
var kinds = []string{string(Kill), string(Restart), string(Pause), string(Partition), string(SlowDisk)}

// What a Partition cuts, if it is not both.
const (
	In  = "in"  // what the others send to the node: it hears nothing
	Out = "out" // what it sends to them: it is not heard
)

// Bounds of the delay of a slow disk's syncs. A sync that takes a minute is one that hangs.
const (
	defaultDelay = 20 * time.Millisecond
	leastDelay   = 100 * time.Microsecond
	mostDelay    = time.Minute
)

// lasts reports whether a fault of the kind lasts as long as it is told to.
func (k Kind) lasts() bool { return k != Restart }

// Fault is one thing that happens to one node.
type Fault struct {
	Kind Kind
	// Cut is In or Out, or empty for both ways of a Partition; Delay is how much longer a sync of a
	// SlowDisk takes.
	Cut   string
	Delay time.Duration
	// Target is the name of a node, or a role: a node that has it when the fault begins.
	Target string
	At     time.Duration // since the measurement began; zero: Schedule decides
	For    time.Duration // until the end of the fault; zero for a restart
}

// String is the fault as ParseFault reads it.
func (f Fault) String() string {
	s := f.Kind.with(f.how()) + ":" + f.Target
	if f.At > 0 {
		s += "@" + f.At.String()
	}
	if f.For > 0 {
		s += "+" + f.For.String()
	}
	return s
}

// how is what stands behind the kind, or empty.
func (f Fault) how() string {
	if f.Delay > 0 {
		return f.Delay.String()
	}
	return f.Cut
}

// with is the kind with what stands behind it.
func (k Kind) with(how string) string {
	if how == "" {
		return string(k)
	}
	return string(k) + "=" + how
}

// Needs says what the machines must be able to do besides what signals do.
func Needs(faults []Fault) (partitions, slowDisks bool) {
	for _, f := range faults {
		partitions = partitions || f.Kind == Partition
		slowDisks = slowDisks || f.Kind == SlowDisk
	}
	return partitions, slowDisks
}

// end is when the fault is over, as planned.
func (f Fault) end() time.Duration { return f.At + f.For }

// Times of faults that are not told.
const (
	defaultFor  = 5 * time.Second
	firstAt     = 5 * time.Second  // what there is to compare with
	defaultRest = 10 * time.Second // from the end of one to the next
	leastRest   = 2 * time.Second
)

// DefaultFaults are what happens unless something else is asked for.
func DefaultFaults() []Fault {
	leader, follower := string(client.Leader), string(client.Follower)
	return []Fault{{Kind: Kill, Target: leader}, {Kind: Pause, Target: leader}, {Kind: Restart, Target: leader}, {Kind: Restart, Target: follower}}
}

// ParseFault reads KIND=HOW:TARGET@AT+FOR, as in pause:leader@5s+8s and slow-disk=50ms:n2. All but KIND
// and TARGET may be left out.
func ParseFault(text string) (Fault, error) {
	bad := func(why string) (Fault, error) {
		return Fault{}, fmt.Errorf("fault %q: %s; it is KIND:TARGET@AT+FOR, for example pause:leader@5s+8s", text, why)
	}
	kind, rest, ok := strings.Cut(text, ":")
	kind, how, hasHow := strings.Cut(kind, "=")
	f := Fault{Kind: Kind(kind)}
	if !slices.Contains(kinds, kind) {
		return bad("the kind must be " + strings.Join(kinds, ", "))
	}
	if why := f.setHow(how, hasHow); why != "" {
		return bad(why)
	}
	rest, length, hasFor := strings.Cut(rest, "+")
	target, at, hasAt := strings.Cut(rest, "@")
	if f.Target = target; !ok || target == "" {
		return bad("which node? A role (leader, follower, nonvoter) or a name is missing")
	}
	var err error
	if hasAt {
		if f.At, err = time.ParseDuration(at); err != nil || f.At <= 0 {
			return bad("the time behind @ must be one with its unit, above zero")
		}
	}
	if hasFor {
		if f.For, err = time.ParseDuration(length); err != nil || f.For <= 0 {
			return bad("the time behind + must be one with its unit, above zero")
		}
		if !f.Kind.lasts() {
			return bad("a " + kind + " lasts as long as it takes: no + behind it")
		}
	}
	return f, nil
}

// setHow takes what stands behind the kind, and says what is wrong with it.
func (f *Fault) setHow(how string, given bool) (wrong string) {
	switch {
	case f.Kind == SlowDisk:
		if f.Delay = defaultDelay; !given {
			return ""
		}
		var err error
		if f.Delay, err = time.ParseDuration(how); err != nil || f.Delay < leastDelay || f.Delay > mostDelay {
			return fmt.Sprintf("what a sync takes longer, behind =, must be %s to %s", leastDelay, mostDelay)
		}
	case !given:
	case f.Kind != Partition:
		return "a " + string(f.Kind) + " has no = behind it"
	case how != In && how != Out:
		return "what is cut, behind =, must be in (the node hears nothing) or out (it is not heard); without it, both"
	default:
		f.Cut = how
	}
	return ""
}

// Schedule gives faults the times that they were not told, so that each begins when the
// one before is long over.
func Schedule(faults []Fault) []Fault {
	out := slices.Clone(faults)
	free := firstAt
	for i := range out {
		f := &out[i]
		if f.At == 0 {
			f.At = free
		}
		if f.For == 0 && f.Kind.lasts() {
			f.For = defaultFor
		}
		free = f.end() + defaultRest
	}
	return out
}

// check refuses faults that would disturb each other's figures.
func check(faults []Fault) error {
	var errs []error
	free := leastRest
	for _, f := range faults {
		if f.At < free {
			errs = append(errs, fmt.Errorf("fault %s begins too early: %s are left between the beginning or the end of a fault and the next", f, leastRest))
		}
		if f.For > maxFor {
			errs = append(errs, fmt.Errorf("fault %s: at most %s long", f, maxFor))
		}
		free = f.end() + leastRest
	}
	return errors.Join(errs...)
}
