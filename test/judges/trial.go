package judges

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

	"github.com/quorate/quorate/test/judges/history"
	"github.com/quorate/quorate/test/judges/history/dense"
)

// patience bounds the search for a linearization of one history.
const patience = 2 * time.Minute

// planted are the bugs (test/harness/planted) that every judge of histories must see. The others show in
// what clients are not told: in states of nodes, in rules, in clusters that were restored.
var planted = []string{
	"ack-before-fsync", "applied-entries-cut", "bookmark-before-event", "condition-ignored", "dead-entries-below-a-snapshot",
	"event-dropped-at-compaction", "event-lost-when-behind", "event-twice", "events-before-future", "delete-missed-at-floor",
	"lost-log-votes", "mark-ahead-of-data", "no-own-term-barrier", "read-before-wait", "verify-leader", "watch-back-after-snapshot",
}

// Trial is how a judge of histories is tried: what is good it must pass, and of what is bad it
// must refuse what it is able to see.
type Trial struct {
	// Judge judges one history. Its error says what it refuses, or is a dense.ErrNoLog: then it
	// was told nothing.
	Judge func(h *history.History, patience time.Duration) (Counts, error)
	// Root is the way to the directory test from that of the judge's tests.
	Root string
	// Blind are the texts of test/judges/check that break a promise which the judge is not told of,
	// each with the reason.
	Blind map[string]string
}

// Texts has it judge the histories that people wrote for our own judge: the good ones must pass,
// and the others be refused, but for those it is blind for.
func (j Trial) Texts(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(j.Root, "judges/check/testdata/*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	unused := maps.Clone(j.Blind)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		delete(unused, name)
		t.Run(name, func(t *testing.T) {
			h, err := history.Load(file)
			if err != nil {
				t.Fatal(err)
			}
			_, err = j.Judge(h, patience)
			why, excused := j.Blind[name]
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
	for name := range unused {
		t.Errorf("%s: there is no such text", name)
	}
}

// Histories has it judge recorded runs: those in the directories that QUORATE_HISTORIES names,
// as PATH does. Without it the test is skipped.
func (j Trial) Histories(t *testing.T) {
	dirs := os.Getenv("QUORATE_HISTORIES")
	if dirs == "" {
		t.Skip("QUORATE_HISTORIES names no directory: make judge-storage, make judge-etcd")
	}
	var total Counts
	for _, file := range filesIn(t, dirs) {
		h, err := history.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		counts, err := j.Judge(h, patience)
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

// PlantedRuns has it judge runs with planted bugs: those in test/judges/planted, or those that
// `make judge-planted` has just made. Of each bug that is to be seen, one must be refused.
func (j Trial) PlantedRuns(t *testing.T) {
	dir := filepath.Join(j.Root, "judges/planted")
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
		if _, err := j.Judge(h, patience); err != nil && !errors.Is(err, dense.ErrNoLog) {
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

// summaries are what `make chaos` leaves beside its histories.
var summaries = []string{"campaign.json", "sim.json"}

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
