package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/story"
)

var testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// TestConformanceTable checks docs/conformance.md: every promise has a test, every
// test exists, every story has a promise, and what is shown is what the stories show.
func TestConformanceTable(t *testing.T) {
	stories := conformanceStories(t)
	raw, err := os.ReadFile("../../../docs/conformance.md")
	must.OK(t, err)
	told, rows := map[string]bool{}, 0
	others := false
	for _, line := range strings.Split(string(raw), "\n") {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			others = title == "Judged by others"
		}
		if others || !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| Promise ") {
			continue
		}
		rows++
		columns := strings.Split(strings.Trim(line, "| "), " | ")
		if len(columns) != 3 {
			t.Errorf("not a row of three columns: %s", line)
			continue
		}
		promise, state := columns[0], columns[2]
		missing := ""
		for _, test := range strings.Split(columns[1], ", ") {
			s, why := find(t, stories, test)
			if why != "" {
				t.Errorf("%s: %s", promise, why)
				continue
			}
			if s != nil {
				told[s.Name] = true
				missing += s.NotYet
			}
		}
		if why := stateIsNot(state, missing); why != "" {
			t.Errorf("%s: %s", promise, why)
		}
	}
	if rows < 100 {
		t.Errorf("the table has %d rows: is it read?", rows)
	}
	for name, s := range stories {
		if !told[name] {
			t.Errorf("docs/conformance.md has no row for the story %s: %s", name, s.Title)
		}
	}
}

// stateIsNot says why a state cannot be that of a row whose stories miss something.
func stateIsNot(state, missing string) string {
	what, why, _ := strings.Cut(state, ": ")
	switch {
	case what == "not yet" && why == "", what == "differs" && why == "":
		return "say what: " + state
	case what == "not yet" && why != missing:
		return "the state is " + state + "; its stories say @not-yet " + missing
	case what != "not yet" && missing != "":
		return "the state is " + state + ", but a story says @not-yet " + missing
	case state != "shown" && what != "not yet" && what != "differs":
		return "not a state: " + state
	}
	return ""
}

// find says why there is no such test, as a directory and a name; of a story it returns that.
func find(t *testing.T, stories map[string]*story.Story, test string) (told *story.Story, why string) {
	t.Helper()
	dir, name, _ := strings.Cut(test, " ")
	name, sub, _ := strings.Cut(name, "/")
	switch {
	case !declares(t, dir, name):
		return nil, "there is no test " + test
	case sub == "":
		return nil, ""
	case dir == "test/system/conformance" && name == "TestConformance":
		if stories[sub] == nil {
			return nil, "there is no story " + sub
		}
		return stories[sub], ""
	}
	if _, err := os.Stat(filepath.Join("../../..", dir, "testdata", sub+".txt")); err != nil {
		return nil, fmt.Sprintf("%s: %v", test, err)
	}
	return nil, ""
}

// declared are the test functions of the directories that were asked for.
var declared = map[string]map[string]bool{}

func declares(t *testing.T, dir, name string) bool {
	t.Helper()
	if declared[dir] == nil {
		declared[dir] = map[string]bool{}
		files, err := filepath.Glob(filepath.Join("../../..", dir, "*_test.go"))
		must.OK(t, err)
		for _, f := range files {
			source, err := os.ReadFile(f)
			must.OK(t, err)
			for _, m := range testFunction.FindAllSubmatch(source, -1) {
				declared[dir][string(m[1])] = true
			}
		}
	}
	return declared[dir][name]
}
