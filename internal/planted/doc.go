// Package planted holds known bugs, each a way in which servers of this kind
// have been wrong, so that the tests can prove that they would notice. A build
// without the tag "planted" contains none of them: On is false at compile time.
// A build with it has the one that QUORATE_PLANTED names, or none.
package planted

// Bug is the name of a planted bug.
type Bug string

const (
	// VerifyLeader confirms reads with Raft's VerifyLeader instead of a round of
	// terms: it counts non-voters and answers to questions that were asked earlier.
	VerifyLeader Bug = "verify-leader"
	// FastPath handles heartbeats beside Raft's main loop (hashicorp/raft#695).
	FastPath Bug = "heartbeat-fast-path"
	// NoOwnTerm lets a new leader answer before an entry of its term has committed.
	NoOwnTerm Bug = "no-own-term-barrier"
	// AckBeforeSync tells Raft that entries are stored before they are.
	AckBeforeSync Bug = "ack-before-fsync"
	// EarlyBookmark lets a bookmark pass events that were not sent.
	EarlyBookmark Bug = "bookmark-before-event"
	// ReusedRevision restores a backup without moving the clock ahead.
	ReusedRevision Bug = "revision-reused-after-restore"
	// DroppedEvent loses a version above the floor when the history is compacted.
	DroppedEvent Bug = "event-dropped-at-compaction"
	// ReadBeforeWait reads the state before it has reached the read index.
	ReadBeforeWait Bug = "read-before-wait"
	// AddressVote gives votes to addresses instead of nodes.
	AddressVote Bug = "vote-for-an-address"
	// LostLog starts a node whose log is gone or an old copy.
	LostLog Bug = "lost-log-votes"
	// DeadEntries leaves entries in the log that are not of the snapshot's history, as Raft does.
	DeadEntries Bug = "dead-entries-below-a-snapshot"
	// AppliedCut does so too, and does not notice that applied entries are cut off the log.
	AppliedCut Bug = "applied-entries-cut"
	// IgnoredCondition applies writes whose condition does not hold. On one node alone
	// it makes that node's state another than the others'.
	IgnoredCondition Bug = "condition-ignored"
	// StaleRules applies writes though the rules that they were decided by have changed.
	StaleRules Bug = "rules-not-checked"
	// StaleIdentity applies writes though what their authentication followed from is gone.
	StaleIdentity Bug = "identity-not-checked"
	// OverLimit applies writes that exceed a limit.
	OverLimit Bug = "limit-exceeded"
	// KeptUsage does not give back what a deleted object used.
	KeptUsage Bug = "usage-kept-after-delete"

	// The others are after bugs that etcd has had: docs/chaos.md.

	// MarkAhead writes a mark to state.db that covers a version which comes with the next flush.
	MarkAhead Bug = "mark-ahead-of-data"
	// MarkBehind takes the newest version for the mark at a start, and so applies entries again.
	MarkBehind Bug = "mark-behind-data"
	// ForgottenRules does not know at a start which rules changed before it, and decides otherwise
	// than the other nodes.
	ForgottenRules Bug = "rules-forgotten-at-start"
	// LocalFloor drops the history at a start: what entries come to then depends on this node.
	LocalFloor Bug = "floor-of-one-node"
	// WatchBack has watches begin again at the floor when a snapshot replaces the state.
	WatchBack Bug = "watch-back-after-snapshot"
	// RepeatedEvent sends the last of several events twice.
	RepeatedEvent Bug = "event-twice"
	// LostEvent loses an event of a watch that is several behind.
	LostEvent Bug = "event-lost-when-behind"
	// MissedDelete loses a deletion that is the first event of a watch from near the floor.
	MissedDelete Bug = "delete-missed-at-floor"
	// SecondSnapshot ends a node that receives a second snapshot.
	SecondSnapshot Bug = "second-snapshot-ends-node"
	// FutureBookmark sends bookmarks below the revision that a watch asked for.
	FutureBookmark Bug = "bookmark-before-future"
	// FutureEvents begins a watch now that asked for a later revision.
	FutureEvents Bug = "events-before-future"
)

// All are the bugs that can be planted.
var All = []Bug{
	VerifyLeader, FastPath, NoOwnTerm, AckBeforeSync, EarlyBookmark, ReusedRevision, DroppedEvent, ReadBeforeWait,
	AddressVote, LostLog, DeadEntries, AppliedCut, IgnoredCondition, StaleRules, StaleIdentity,
	OverLimit, KeptUsage,
	MarkAhead, MarkBehind, ForgottenRules, LocalFloor, WatchBack, RepeatedEvent, LostEvent, MissedDelete,
	SecondSnapshot, FutureBookmark, FutureEvents,
}
