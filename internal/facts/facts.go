// Package facts compares what we say with what upstream publishes: sorted lines
// on both sides, and a list of the differences that are meant, each with its reason.
// Only tests use it.
package facts

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Compare fails the test for every line that only one side has and that no
// difference explains, and for every difference that explains nothing any more.
// Lines of the files that are empty or begin with # say nothing. A difference is
//
//   - PREFIX   # reason: upstream's lines with the prefix are not ours
//   - PREFIX   # reason: ours are not upstream's
//
// where a field of the prefix that is * stands for any word, and the last field
// need not be complete.
func Compare(t testing.TB, upstreamFile, differencesFile string, ours []string) {
	t.Helper()
	for _, problem := range Problems(t, lines(t, upstreamFile), differencesFile, ours) {
		t.Error(problem)
	}
	if t.Failed() {
		t.Logf("- is only in %s, + is only ours. What is meant is a line SIGN PREFIX # REASON in %s, where one prefix may stand for several lines", upstreamFile, differencesFile)
	}
}

// Problems is what Compare reports, of upstream's lines themselves. Without a file there are no
// differences.
func Problems(t testing.TB, upstreams []string, differencesFile string, ours []string) (problems []string) {
	t.Helper()
	var diffs []*difference
	if differencesFile != "" {
		diffs = differences(t, differencesFile)
	}
	upstream := map[string]bool{}
	for _, l := range upstreams {
		upstream[l] = true
	}
	mine := map[string]bool{}
	for _, l := range ours {
		mine[l] = true
	}
	report := func(sign string, have, other map[string]bool) {
		var missing []string
		for l := range have {
			if !other[l] && !explained(diffs, sign, l) {
				missing = append(missing, l)
			}
		}
		slices.Sort(missing)
		for _, l := range missing {
			problems = append(problems, sign+" "+l)
		}
	}
	report("-", upstream, mine)
	report("+", mine, upstream)
	for _, d := range diffs {
		if !d.used {
			problems = append(problems, fmt.Sprintf("%s: nothing differs by %q any more", differencesFile, d))
		}
	}
	return problems
}

type difference struct {
	sign, prefix string
	fields       []string
	used         bool
}

func (d *difference) String() string { return d.sign + " " + d.prefix }

func differences(t testing.TB, file string) []*difference {
	t.Helper()
	var out []*difference
	for _, l := range lines(t, file) {
		what, reason, ok := strings.Cut(l, " # ")
		sign, prefix, _ := strings.Cut(strings.TrimSpace(what), " ")
		if !ok || strings.TrimSpace(reason) == "" || sign != "-" && sign != "+" {
			t.Fatalf("%s: %q: want SIGN PREFIX # REASON", file, l)
		}
		out = append(out, &difference{sign: sign, prefix: prefix, fields: strings.Fields(prefix)})
	}
	return out
}

// explained marks every difference that matches, so that two which overlap both
// count as used.
func explained(diffs []*difference, sign, line string) bool {
	found := false
	for _, d := range diffs {
		if d.sign == sign && matches(d.fields, strings.Fields(line)) {
			d.used, found = true, true
		}
	}
	return found
}

func matches(prefix, line []string) bool {
	if len(prefix) > len(line) {
		return false
	}
	for i, f := range prefix {
		if f == "*" || f == line[i] || i == len(prefix)-1 && strings.HasPrefix(line[i], f) {
			continue
		}
		return false
	}
	return true
}

func lines(t testing.TB, file string) []string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(fmt.Errorf("facts: %w", err))
	}
	var out []string
	for l := range strings.Lines(string(b)) {
		if l = strings.TrimSpace(l); l != "" && !strings.HasPrefix(l, "#") {
			out = append(out, l)
		}
	}
	return out
}

// Sources returns the directory with the sources of a module.
func Sources(t testing.TB, module string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatalf("facts: go list: %v", err)
	}
	return strings.TrimSpace(string(out))
}
