// Package history is what happened in a run, as its clients saw it: operations,
// watches, faults, and the log of the cluster itself. Programs that make load
// record it, package check judges it, package report draws it.
//
// Times are offsets from the start of the run on one monotonic clock: the
// machine's in a run of real processes, the bubble's in virtual time.
package history

import "time"

// Kind is what an operation does.
type Kind string

const (
	Create   Kind = "create"
	Update   Kind = "update"    // whatever is there
	UpdateIf Kind = "update-if" // only at resourceVersion Precondition
	Delete   Kind = "delete"
	DeleteIf Kind = "delete-if" // only at resourceVersion Precondition
	Get      Kind = "get"
	List     Kind = "list"
)

// Mode is how fresh a read must be.
type Mode string

const (
	MostRecent   Mode = "MostRecent"
	Any          Mode = "Any"
	NotOlderThan Mode = "NotOlderThan"
	Exact        Mode = "Exact" // also the pages behind a continue token
)

// Outcome is what a client knows of its operation.
type Outcome string

const (
	// OK: it happened, and the answer says how.
	OK Outcome = "ok"
	// Refused: it did not happen and never will: 404, 409, 410, 422, 429, and the
	// failures of reads.
	Refused Outcome = "refused"
	// Unknown: it may have happened, or may happen later: no answer, 500, 504.
	Unknown Outcome = "unknown"
)

// Forever is the Return of an operation whose outcome is unknown: it may take
// effect at any time after its Call.
const Forever = time.Duration(1<<63 - 1)

// Item is an object as an answer or an event showed it.
type Item struct {
	Key      string `json:"key"`
	Value    string `json:"value"` // unique per write in a run
	Revision uint64 `json:"rv"`
}

// Op is one operation of one client. A client does one thing at a time, and its
// operations stand in their order in History.Ops.
type Op struct {
	Client int           `json:"client"`
	Node   string        `json:"node"` // the node that was asked
	Role   string        `json:"role,omitempty"`
	Kind   Kind          `json:"kind"`
	Mode   Mode          `json:"mode,omitempty"` // of reads
	Key    string        `json:"key,omitempty"`  // of everything but lists
	Value  string        `json:"value,omitempty"`
	Call   time.Duration `json:"call"`
	Return time.Duration `json:"return"`

	// Precondition is the resourceVersion that an update-if or delete-if asks for.
	Precondition uint64 `json:"precondition,omitempty"`
	// Asked is the resourceVersion of a NotOlderThan or Exact read.
	Asked uint64 `json:"asked,omitempty"`
	// Prefix narrows a list by key. A page is a list of at most Limit items whose
	// keys are greater than After; More says that the answer had a continue token.
	// A page behind a token is an Exact read that asked for the token's revision.
	Prefix string `json:"prefix,omitempty"`
	Limit  int    `json:"limit,omitempty"`
	After  string `json:"after,omitempty"`
	More   bool   `json:"more,omitempty"`

	Outcome Outcome `json:"outcome"`
	// Code is the HTTP status of a refusal, Reason its reason, or why an outcome
	// is unknown.
	Code   int    `json:"code,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Revision is the resourceVersion of a write that is OK (of a delete: that of
	// its event; 0 if the answer did not tell), and of a list.
	Revision uint64 `json:"rv,omitempty"`
	// Items are what a read returned: none or one for a get.
	Items []Item `json:"items,omitempty"`
	// Staleness is what the answer to an Any read claimed; nil if it claimed nothing.
	Staleness *time.Duration `json:"staleness,omitempty"`
}

// EventType is the type of a watch event.
type EventType string

const (
	Added    EventType = "ADDED"
	Modified EventType = "MODIFIED"
	Deleted  EventType = "DELETED"
	Bookmark EventType = "BOOKMARK"
	Error    EventType = "ERROR"
)

// Event is one event of one watch.
type Event struct {
	Type EventType     `json:"type"`
	Item               // of a bookmark only Revision
	At   time.Duration `json:"at"`
	// InitialEnd marks the bookmark behind the initial events.
	InitialEnd bool `json:"initialEnd,omitempty"`
	// Code of an ERROR event.
	Code int `json:"code,omitempty"`
}

// Watch is one watch request, from its start to its end. A watcher that resumes
// makes several with the same Client.
type Watch struct {
	Client int           `json:"client"`
	Node   string        `json:"node"`
	Begin  time.Duration `json:"begin"`
	End    time.Duration `json:"end"`
	// From is the resourceVersion that was asked for; with Initial the watch
	// begins with a snapshot that is at least that new (0 and unset: any, and Most Recent).
	From    uint64 `json:"from"`
	Unset   bool   `json:"unset,omitempty"` // no resourceVersion was sent
	Initial bool   `json:"initial,omitempty"`
	// Bookmarks were asked for.
	Bookmarks bool `json:"bookmarks,omitempty"`
	// Prefix filters by key, Selector by value: only values that contain it.
	Prefix   string  `json:"prefix,omitempty"`
	Selector string  `json:"selector,omitempty"`
	Events   []Event `json:"events"`
	// Ended says why it ended; "" if the client ended it.
	Ended string `json:"ended,omitempty"`
}

// Fault is something that was done to the cluster.
type Fault struct {
	Kind   string        `json:"kind"` // Kill, Pause, cut, one-way, delay, …
	Nodes  []string      `json:"nodes,omitempty"`
	Begin  time.Duration `json:"begin"`
	End    time.Duration `json:"end"`
	Detail string        `json:"detail,omitempty"`
	// Restart says that the nodes' processes ended between Begin and End, for
	// kinds that do not say so by their name.
	Restart bool `json:"restart,omitempty"`
}

// Restarts reports whether the nodes' processes ended: what they serve afterwards
// comes from a new start, which may have forgotten the last second.
func (f *Fault) Restarts() bool {
	if f.Restart {
		return true
	}
	switch f.Kind {
	case "kill", "crash", "restart", "power", "wipe", "rolling":
		return true
	}
	return false
}

// Decision is a change of a rule, or a write that was decided by one. The rules and these
// writes are in tables of their own: neither is in Ops or Log.
type Decision struct {
	Client int           `json:"client"`
	Node   string        `json:"node"`
	Call   time.Duration `json:"call"`
	Return time.Duration `json:"return"`
	// Rule is the rule's name; Change says that it was changed.
	Rule   string `json:"rule"`
	Change bool   `json:"change,omitempty"`
	// By is the revision of the rule that the write was decided by when it was proposed
	// last; 0 if there was none.
	By      uint64  `json:"by,omitempty"`
	Outcome Outcome `json:"outcome"`
	// Revision of what was written, if that is OK.
	Revision uint64 `json:"rv,omitempty"`
}

// Entry is a version in the log of the cluster: what really happened.
type Entry struct {
	Item
	Deleted bool `json:"deleted,omitempty"`
}

// State is the state of a node at the end of the run.
type State struct {
	Node     string `json:"node"`
	Revision uint64 `json:"rv"`
	Hash     string `json:"hash"`
	// Floor is where the node's history begins.
	Floor uint64 `json:"floor"`
}

// History is one run.
type History struct {
	Name    string  `json:"name"` // of the scenario
	Seed    uint64  `json:"seed,omitempty"`
	Ops     []Op    `json:"ops"`
	Watches []Watch `json:"watches"`
	// Decisions are in no order.
	Decisions []Decision `json:"decisions,omitempty"`

	Faults []Fault `json:"faults"`
	// Log holds every version after LogFrom in order, as one node tells it at the end;
	// empty if the run could not keep it all. Everything in it was written by one of
	// Ops, so set-up is recorded as well. The value of a deleted entry is the last one, or "".
	Log     []Entry `json:"log,omitempty"`
	LogFrom uint64  `json:"logFrom,omitempty"`
	States  []State `json:"states,omitempty"`
	// Relists counts the 410s that made a watcher list again although the history was
	// to reach back to where it was.
	Relists int `json:"relists"`
	// Overtaken counts those of watchers that a floor passed which was moved on
	// purpose, to where the run wanted it.
	Overtaken int `json:"overtaken,omitempty"`
}
