package conformance

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

const (
	statementsFile = "statements.txt"
	// statements is how many there are: a line that is lost is missed.
	statements = 624
)

var (
	statementLine = regexp.MustCompile(`^(\d+) \| (.+) \| (.+)$`)
	differs       = regexp.MustCompile(`^differs "(.+)"$`)
	// What accounts for a line is separated by commas, but quoted words may have some.
	account = regexp.MustCompile(` *differs "[^"]*"|[^,"]+`)
)

// TestStatements checks testdata/statements.txt: every sentence of the pages is accounted for, by tests that
// there are, by words of the documents, or by a reason.
func TestStatements(t *testing.T) {
	stories := conformanceStories(t)
	documents := ""
	for _, file := range []string{"../../../docs/differences.md", "../../../docs/conformance.md"} {
		raw, err := os.ReadFile(file)
		must.OK(t, err)
		documents += string(raw)
	}
	raw, err := os.ReadFile("testdata/" + statementsFile)
	must.OK(t, err)
	seen := map[int]string{}
	tested, differing, untestable := 0, 0, 0
	for _, line := range strings.Split(string(raw), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		m := statementLine.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("not understood: %s", line)
			continue
		}
		number, _ := strconv.Atoi(m[1])
		if seen[number] != "" || number < 1 || number > statements {
			t.Errorf("%s: the number of %q, or of none", line, seen[number])
		}
		seen[number] = m[2]
		if why, ok := strings.CutPrefix(m[3], "untestable: "); ok {
			if untestable++; why == "" {
				t.Errorf("%d: say why", number)
			}
			continue
		}
		differ := false
		for _, by := range account.FindAllString(m[3], -1) {
			by = strings.TrimSpace(by)
			if words := differs.FindStringSubmatch(by); words != nil {
				if differ = true; !strings.Contains(documents, words[1]) {
					t.Errorf("%d: no document says %q", number, words[1])
				}
			} else if _, why := find(t, stories, by); why != "" {
				t.Errorf("%d: %s", number, why)
			}
		}
		if differ {
			differing++
		} else {
			tested++
		}
	}
	if len(seen) != statements {
		t.Errorf("%d statements, want %d", len(seen), statements)
	}
	t.Logf("%d are shown by tests, %d differ, %d are untestable", tested, differing, untestable)
}
