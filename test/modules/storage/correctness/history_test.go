//go:build correctness

package correctness

import (
	"testing"

	"github.com/quorate/quorate/test/judges"
)

// blind are the texts of test/judges/check that break a promise which upstream's judges are not told of.
var blind = map[string]string{
	"good-nolog":          noLog,
	"nolog-missing-event": noLog,
	"nolog-stale":         noLog,
	"history-malformed":   "two requests had one value, and neither took effect",
	"order-event-future":  noWatchTime,
	"order-reused":        "a revision that nobody was given is told as the newest one below it",

	"read-back-client":       ofNode,
	"read-claim":             ofNode,
	"read-claim-absent":      ofNode,
	"read-local-back":        ofNode,
	"read-local-watch":       ofNode,
	"read-own-write":         ofNode,
	"read-of-nothing":        "resourceVersion 0 is told as its first one, when there was nothing",
	"read-other-page":        paged,
	"read-page-without-end":  paged,
	"read-wrong-page":        paged,
	"read-expired":           expired,
	"read-expired-fresh":     expired,
	"watch-expired":          expired,
	"watch-error":            expired,
	"rules-order":            ofRaft,
	"rules-stale":            ofRaft,
	"state-floor":            ofRaft,
	"state-hash":             ofRaft,
	"watch-bookmark-below":   "bookmarks are held against each other and against events, not against the beginning",
	"watch-bookmark-unasked": "its validator does not look at whether bookmarks were asked for",
	"watch-missing-bookmark": "a bookmark vouches for what is below its revision, here the one of the event that is missing",
	"watch-restarted-marker": "its validator does not look at whether initial events were asked for",
	"watch-now-old":          noWatchTime,
	"watch-initial-cut":      unmarked,
	"watch-initial-unmarked": unmarked,
	"watch-unmarked-cut":     unmarked,
}

// Why upstream's judges do not see it.
const (
	noLog       = "its replay needs every write"
	noWatchTime = "its validator does not hold the times of watches and of events against writes"
	ofNode      = "its reads have no promise of one node, and no claim of staleness"
	paged       = "its model has no pages"
	expired     = "its model keeps everything, and its validator does not look at codes of errors"
	ofRaft      = "it is about rules and states of nodes, which it is not told"
	unmarked    = "its validator has no initial events without a bookmark that ends them"
)

var trial = judges.Trial{
	Judge: Judge,
	Root:  "../../..",
	Blind: blind,
}

func TestTexts(t *testing.T)     { trial.Texts(t) }
func TestHistories(t *testing.T) { trial.Histories(t) }
func TestPlanted(t *testing.T)   { trial.PlantedRuns(t) }
