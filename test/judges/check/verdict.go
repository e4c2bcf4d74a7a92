package check

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/test/judges/history"
)

// A Violation is a promise that was not kept.
type Violation struct {
	// Check is the name of the promise: see the constants.
	Check string `json:"check"`
	// Text names the operations and events concerned.
	Text string        `json:"text"`
	At   time.Duration `json:"at"`
	Node string        `json:"node,omitempty"`
	// Ops are indexes into History.Ops; Watch and Events into History.Watches and
	// its events. Watch is -1 if no watch is concerned.
	Ops    []int `json:"ops,omitempty"`
	Watch  int   `json:"watch"`
	Events []int `json:"events,omitempty"`
}

// The names of the checks.
const (
	Malformed = "history" // the record contradicts itself: a fault of the harness

	LogOrder        = "log/order"        // revisions rise and are unique
	LogAcknowledged = "log/acknowledged" // an acknowledged write is at its revision, with its value
	LogRefused      = "log/refused"      // what was refused did not happen
	LogPhantom      = "log/phantom"      // nothing happens that nobody asked for, or twice
	LogCondition    = "log/condition"    // creates find nothing, updates something, conditions hold

	OrderWrites = "order/writes" // revisions follow real time
	OrderFuture = "order/future" // nothing is seen before it was asked for

	ReadContent  = "read/content"       // a read shows versions that existed, together
	ReadStale    = "read/stale"         // a Most Recent read covers all that was seen before
	ReadLocal    = "read/local"         // a node does not go back within one life, and shows what it acknowledged
	ReadBound    = "read/not-older"     // Not older than N
	ReadExact    = "read/exact"         // Exactly N
	ReadClaim    = "read/staleness"     // never staler than the answer claims
	ReadExpired  = "read/expired"       // 410 only below the floor
	RefusalStale = "refusal/stale"      // a refusal tells the truth about the state
	LinearKey    = "linearizable/key"   // porcupine, one key
	LinearStore  = "linearizable/store" // porcupine, the whole store

	WatchOrdered   = "watch/ordered"   // revisions rise
	WatchUnique    = "watch/unique"    // no event twice
	WatchReliable  = "watch/reliable"  // none missing
	WatchResumable = "watch/resumable" // nothing at or below From
	WatchBookmark  = "watch/bookmark"  // all events up to a bookmark came before it
	WatchFilter    = "watch/filter"    // only what the prefix and the selector let through
	WatchType      = "watch/type"      // ADDED only if it began, …
	WatchContent   = "watch/content"   // events show what the log holds; DELETED the previous value
	WatchInitial   = "watch/initial"   // the initial events are one snapshot
	WatchFresh     = "watch/fresh"     // which is as new as was asked
	WatchExpired   = "watch/expired"   // 410 only below the floor
	WatchError     = "watch/error"     // no other errors in the stream

	RuleStale = "rules/stale" // a write that began after a rule was acknowledged is decided by it
	RuleOrder = "rules/order" // no write takes effect behind a change of the rule that it was decided by

	StateHash = "state/hash" // equal revisions, equal states
)

// Counts are what a run amounts to. All of it adds up over runs.
type Counts struct {
	Runs   int                                      `json:"runs"`
	Ops    map[history.Kind]map[history.Outcome]int `json:"ops"`
	Reads  map[history.Mode]int                     `json:"reads"` // that were answered
	Faults map[string]int                           `json:"faults"`

	Decided int `json:"decided"` // writes that took effect by a rule
	Changed int `json:"changed"` // rules

	Unknown   int `json:"unknown"`   // writes with unknown outcome …
	Happened  int `json:"happened"`  // … of which the log holds these
	Log       int `json:"log"`       // versions
	Watches   int `json:"watches"`   // watch requests
	Events    int `json:"events"`    // without bookmarks and errors
	Bookmarks int `json:"bookmarks"` // in all watches
	Relists   int `json:"relists"`   // forced by 410
	Overtaken int `json:"overtaken"` // likewise, by a floor that was moved on purpose

	LostWrites int `json:"lostWrites"` // acknowledged, and not in the log
	StaleReads int `json:"staleReads"` // Most Recent, and not
	Duplicated int `json:"duplicated"` // events
	Missing    int `json:"missing"`
	Misordered int `json:"misordered"`
}

// Verdict is what All found.
type Verdict struct {
	Name       string      `json:"name"`
	Seed       uint64      `json:"seed,omitempty"`
	Violations []Violation `json:"violations"`
	// Omitted counts violations beyond the first few of each check.
	Omitted int           `json:"omitted,omitempty"`
	Counts  Counts        `json:"counts"`
	Elapsed time.Duration `json:"elapsed"` // of the judging

	perCheck map[string]int
}

// maxPerCheck bounds the violations of one check that are kept.
const maxPerCheck = 50

// OK reports whether every promise was kept.
func (v *Verdict) OK() bool { return len(v.Violations) == 0 }

// Checks returns the names of the checks that failed, sorted.
func (v *Verdict) Checks() []string {
	names := map[string]bool{}
	for i := range v.Violations {
		names[v.Violations[i].Check] = true
	}
	return slices.Sorted(maps.Keys(names))
}

func (v *Verdict) add(x Violation) {
	if v.perCheck == nil {
		v.perCheck = map[string]int{}
	}
	if v.perCheck[x.Check]++; v.perCheck[x.Check] > maxPerCheck {
		v.Omitted++
		return
	}
	v.Violations = append(v.Violations, x)
}

// Merge adds the violations and counts of another run.
func (v *Verdict) Merge(other *Verdict) {
	for _, x := range other.Violations {
		x.Text = fmt.Sprintf("%s seed %d: %s", other.Name, other.Seed, x.Text)
		v.Violations = append(v.Violations, x)
	}
	v.Omitted += other.Omitted
	v.Elapsed += other.Elapsed
	v.Counts.Add(&other.Counts)
}

// Add adds the counts of another run.
func (c *Counts) Add(o *Counts) {
	c.Runs += o.Runs
	for kind, outcomes := range o.Ops {
		for outcome, n := range outcomes {
			c.countOp(kind, outcome, n)
		}
	}
	for mode, n := range o.Reads {
		c.countRead(mode, n)
	}
	for kind, n := range o.Faults {
		c.countFault(kind, n)
	}
	c.Decided += o.Decided
	c.Changed += o.Changed
	c.Unknown += o.Unknown
	c.Happened += o.Happened
	c.Log += o.Log
	c.Watches += o.Watches
	c.Events += o.Events
	c.Bookmarks += o.Bookmarks
	c.Relists += o.Relists
	c.Overtaken += o.Overtaken
	c.LostWrites += o.LostWrites
	c.StaleReads += o.StaleReads
	c.Duplicated += o.Duplicated
	c.Missing += o.Missing
	c.Misordered += o.Misordered
}

func (c *Counts) countOp(kind history.Kind, outcome history.Outcome, n int) {
	if c.Ops == nil {
		c.Ops = map[history.Kind]map[history.Outcome]int{}
	}
	if c.Ops[kind] == nil {
		c.Ops[kind] = map[history.Outcome]int{}
	}
	c.Ops[kind][outcome] += n
}

func (c *Counts) countRead(mode history.Mode, n int) {
	if c.Reads == nil {
		c.Reads = map[history.Mode]int{}
	}
	c.Reads[mode] += n
}

func (c *Counts) countFault(kind string, n int) {
	if c.Faults == nil {
		c.Faults = map[string]int{}
	}
	c.Faults[kind] += n
}

// Operations is the number of operations of all kinds.
func (c *Counts) Operations() int {
	sum := 0
	for _, outcomes := range c.Ops {
		for _, n := range outcomes {
			sum += n
		}
	}
	return sum
}

// Write prints the verdict for a terminal: the violations, then the counts.
func (v *Verdict) Write(w io.Writer) {
	for i := range v.Violations {
		fmt.Fprintf(w, "VIOLATION %s: %s\n", v.Violations[i].Check, v.Violations[i].Text)
	}
	if v.Omitted > 0 {
		fmt.Fprintf(w, "and %d more\n", v.Omitted)
	}
	c := &v.Counts
	fmt.Fprintf(w, "runs %d, operations %d (%s), unknown outcomes %d (%d happened)\n",
		c.Runs, c.Operations(), outcomes(c), c.Unknown, c.Happened)
	if c.Decided > 0 {
		fmt.Fprintf(w, "writes decided by rules %d, changes of rules %d\n", c.Decided, c.Changed)
	}
	fmt.Fprintf(w, "watches %d, events %d, bookmarks %d, forced relists %d, overtaken by a floor moved on purpose %d\n", c.Watches, c.Events, c.Bookmarks, c.Relists, c.Overtaken)
	fmt.Fprintf(w, "faults %s\n", tally(c.Faults))
	fmt.Fprintf(w, "lost acknowledged writes %d, stale Most Recent reads %d, events duplicated %d, missing %d, misordered %d\n",
		c.LostWrites, c.StaleReads, c.Duplicated, c.Missing, c.Misordered)
}

// String is what Write prints.
func (v *Verdict) String() string {
	var b strings.Builder
	v.Write(&b)
	return b.String()
}

func outcomes(c *Counts) string {
	by := map[history.Outcome]int{}
	for _, o := range c.Ops {
		for outcome, n := range o {
			by[outcome] += n
		}
	}
	return tally(by)
}

func tally[K ~string](m map[K]int) string {
	if len(m) == 0 {
		return "none"
	}
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%s %d", k, m[k]))
	}
	return strings.Join(parts, ", ")
}
