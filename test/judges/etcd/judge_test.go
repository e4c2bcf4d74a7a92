package etcd

import (
	"testing"

	"github.com/quorate/quorate/test/judges"
)

// blind are the texts of test/judges/check that break a promise which etcd's judges are not told of.
var blind = map[string]string{
	"good-nolog":          noLog,
	"nolog-missing-event": noLog,
	"nolog-stale":         noLog,
	"history-malformed":   "two requests had one value, and neither took effect",
	"order-event-future":  noWatchTime,

	"read-back-client":       ofNode,
	"read-claim":             ofNode,
	"read-claim-absent":      ofNode,
	"read-local-back":        ofNode,
	"read-local-watch":       ofNode,
	"read-own-write":         ofNode,
	"read-of-nothing":        "resourceVersion 0 is told as etcd's first revision, when there was nothing",
	"read-expired":           expired,
	"read-expired-fresh":     expired,
	"watch-expired":          expired,
	"watch-error":            expired,
	"watch-error-goes-on":    expired,
	"rules-order":            ofRaft,
	"rules-stale":            ofRaft,
	"state-floor":            ofRaft,
	"state-hash":             ofRaft,
	"watch-bookmark-below":   "etcd's bookmarks are held against each other and against events, not against the beginning",
	"watch-bookmark-unasked": "etcd's validators do not look at whether progress was to be notified",
	"watch-restarted-marker": "etcd has no end of initial events",
	"watch-now-old":          noWatchTime,
	"watch-initial-older":    "etcd has no watch that begins with a state not older than a revision",
	"watch-initial-cut":      unmarked,
	"watch-initial-unmarked": unmarked,
	"watch-unmarked-cut":     unmarked,

	"watch-selector-begins":      selector,
	"watch-selector-ceases":      selector,
	"watch-selector-content":     selector,
	"watch-selector-matches-not": selector,
}

// Why etcd's judges do not see it.
const (
	noLog       = "its replay needs every write that was persisted"
	noWatchTime = "its validators do not hold the times of watches and of events against writes"
	ofNode      = "its reads have no promise of one node, and no claim of staleness"
	expired     = "its validators leave out what was compacted, and errors"
	ofRaft      = "it is about rules and states of nodes, which it is not told"
	unmarked    = "a watch of etcd has no initial events, and nothing marks the end of these"
	selector    = "a watch of etcd has no selector"
)

var trial = judges.Trial{
	Judge: Judge,
	Root:  "../..",
	Blind: blind,
}

func TestTexts(t *testing.T)     { trial.Texts(t) }
func TestHistories(t *testing.T) { trial.Histories(t) }
func TestPlanted(t *testing.T)   { trial.PlantedRuns(t) }
