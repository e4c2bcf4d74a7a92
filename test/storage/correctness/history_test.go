//go:build correctness

package correctness

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/test/history"
	"github.com/quorate/quorate/test/history/dense"
)

// histories names the directories of the histories to judge, as PATH does.
var histories = os.Getenv("QUORATE_HISTORIES")

// patience bounds the search for a linearization of one history.
const patience = 2 * time.Minute

// blind are the texts of test/check that break a promise which upstream's judges are not told of.
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

// planted are the bugs that must be seen. The others show in what clients are not told: in states
// of nodes, in rules, in clusters that were restored.
var planted = []string{
	"ack-before-fsync", "applied-entries-cut", "bookmark-before-event", "condition-ignored", "dead-entries-below-a-snapshot",
	"event-dropped-at-compaction", "event-lost-when-behind", "event-twice", "events-before-future", "delete-missed-at-floor",
	"lost-log-votes", "mark-ahead-of-data", "no-own-term-barrier", "read-before-wait", "verify-leader", "watch-back-after-snapshot",
}

// TestTexts has upstream's judges judge the histories that people wrote for our own judges: the
// good ones must pass, and the others be refused, as far as upstream has the promise too.
func TestTexts(t *testing.T) {
	const dir = "../../check/testdata"
	files, err := filepath.Glob(dir + "/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			h, err := history.Load(file)
			if err != nil {
				t.Fatal(err)
			}
			_, err = Judge(h, patience)
			why, excused := blind[name]
			switch good := strings.HasPrefix(name, "good-"); {
			case errors.Is(err, dense.ErrNoLog):
				if !excused {
					t.Error("it has no log, and is not listed")
				}
			case good && err != nil:
				t.Errorf("it is good: %v", err)
			case !good && err == nil && !excused:
				t.Error("not refused")
			case err != nil && excused:
				t.Errorf("refused after all: %v; it was not to be seen, because %s", err, why)
			case err != nil:
				t.Log(err)
			}
		})
	}
}

// TestHistories judges recorded runs.
func TestHistories(t *testing.T) {
	if histories == "" {
		t.Skip("QUORATE_HISTORIES names no directory: README.md")
	}
	var total Counts
	for _, file := range filesIn(t, histories) {
		h, err := history.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		counts, err := Judge(h, patience)
		switch {
		case errors.Is(err, dense.ErrNoLog):
			t.Logf("%s: %v", file, err)
		case err != nil:
			t.Errorf("%s: %v", file, err)
		}
		total.Add(counts)
	}
	t.Log(total)
	if total.Runs == 0 || total.Events == 0 {
		t.Error("nothing was judged")
	}
}

// summaries are what `make chaos` leaves beside its histories.
var summaries = []string{"campaign.json", "sim.json"}

// TestPlanted judges runs with planted bugs (internal/planted): those in test/judges/planted, or
// those that `make judge-planted` has just made. Of each bug that is to be seen, one must be refused.
func TestPlanted(t *testing.T) {
	dir := "../../judges/planted"
	if made := os.Getenv("QUORATE_PLANTED_HISTORIES"); made != "" {
		dir = made
	}
	refused, runs := map[string]int{}, map[string]int{}
	for _, file := range filesIn(t, dir) {
		h, err := history.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		bug := filepath.Base(file)
		for range 2 { // the seed, and which of its clusters
			bug = bug[:strings.LastIndex(bug, "-")]
		}
		runs[bug]++
		if _, err := Judge(h, patience); err != nil && !errors.Is(err, dense.ErrNoLog) {
			refused[bug]++
			t.Logf("%s: %.300s", filepath.Base(file), err)
		}
	}
	for _, bug := range slices.Sorted(maps.Keys(runs)) {
		t.Logf("%-32s refused %d of %d", bug, refused[bug], runs[bug])
	}
	for _, bug := range planted {
		if refused[bug] == 0 {
			t.Errorf("%s: none of %d runs was refused", bug, runs[bug])
		}
	}
}

// filesIn are the histories below directories.
func filesIn(t *testing.T, dirs string) (files []string) {
	t.Helper()
	for _, dir := range filepath.SplitList(dirs) {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() && !slices.Contains(summaries, e.Name()) && (strings.HasSuffix(path, ".json") || strings.HasSuffix(path, ".json.gz")) {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(files)
	if len(files) == 0 {
		t.Fatal(os.ErrNotExist)
	}
	return files
}
