package objects

import (
	"slices"
	"strings"
	"unicode/utf8"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// Bounds of all warnings of a response, and of one when they are exceeded, in
// runes.
const (
	maxWarnings = 4096
	cutWarning  = 256
)

// warnings are what the client of one request is told besides the answer, in the form of
// the header Warning. The zero value has none. For one goroutine.
type warnings struct {
	lines []string
	seen  map[string]struct{}
	runes int
}

// add adds warnings. Duplicates are dropped; too long ones are cut and what then does not
// fit is dropped.
func (w *warnings) add(texts []string) {
	texts = eachLine(texts)
	total := 0
	for _, t := range texts {
		total += utf8.RuneCountInString(t)
	}
	for _, t := range texts {
		if _, ok := w.seen[t]; ok {
			continue
		}
		if w.seen == nil {
			w.seen = map[string]struct{}{}
		}
		w.seen[t] = struct{}{}
		if total > maxWarnings {
			t = cutRunes(t, cutWarning)
		}
		n := utf8.RuneCountInString(t)
		if w.runes+n > maxWarnings {
			return
		}
		line, err := utilnet.NewWarningHeader(299, "-", t)
		if err != nil { // a header cannot have it: upstream leaves it out, too
			continue
		}
		w.runes += n
		w.lines = append(w.lines, line)
	}
}

// merge adds the warnings of another operation for the same client.
func (w *warnings) merge(from *warnings) {
	for _, line := range from.lines {
		n := utf8.RuneCountInString(line)
		if slices.Contains(w.lines, line) || w.runes+n > maxWarnings {
			continue
		}
		w.lines, w.runes = append(w.lines, line), w.runes+n
	}
}

// eachLine makes a warning of each line of what the YAML parser found.
func eachLine(texts []string) []string {
	var out []string
	for _, t := range texts {
		if rest, ok := strings.CutPrefix(t, "yaml: unmarshal errors:\n"); ok {
			for line := range strings.SplitSeq(rest, "\n") {
				out = append(out, strings.TrimSpace(line))
			}
			continue
		}
		out = append(out, t)
	}
	return out
}

func cutRunes(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}
