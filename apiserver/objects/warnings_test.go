package objects

import (
	"fmt"
	"strings"
	"testing"
)

// TestWarningsOfOneAnswer: each warning once, as many as 4,096 characters hold; where there are more, long ones are cut.
func TestWarningsOfOneAnswer(t *testing.T) {
	texts := func(n int, format string) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprintf(format, i))
		}
		return out
	}
	for _, c := range []struct {
		name        string
		texts       []string
		least, most int // lines
	}{
		{"none", nil, 0, 0},
		{"the same twice", []string{"a", "a", "b"}, 2, 2},
		{"many", texts(150, "unknown field %q"), 150, 150},
		{"too many", texts(1000, "unknown field \"%030d\""), 85, 91},
		{"too long", append(texts(10, "%d "+strings.Repeat("x", 1000)), "last"), 11, 11},
	} {
		var w warnings
		w.add(c.texts)
		length := 0
		for _, line := range w.lines {
			if !strings.HasPrefix(line, `299 - "`) {
				t.Errorf("%s: %s", c.name, line)
			}
			length += len(line) - len(`299 - ""`) - strings.Count(line, `\`)
		}
		if n := len(w.lines); n < c.least || n > c.most || length > maxWarnings {
			t.Errorf("%s: %d lines of %d characters, want %d to %d", c.name, n, length, c.least, c.most)
		}
	}
}
