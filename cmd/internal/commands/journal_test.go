package commands

import (
	"bytes"
	"strings"
	"testing"
)

// TestJournalPriorities: in the journal each line has the priority of its level, in both formats, and
// nowhere else has it a prefix.
func TestJournalPriorities(t *testing.T) {
	for _, format := range []string{"json", "text"} {
		var b bytes.Buffer
		log, watched := newLogger(&settings{LogFormat: format, LogLevel: "debug"}, &b)
		for _, journal := range []bool{false, true} {
			b.Reset()
			if journal {
				watched.Writer = priorities{&b}
			}
			log.Debug("d", "level", "ERROR")
			log.Info(`i "level":"ERROR" level=ERROR `)
			log.Warn("w")
			log.With("component", "x").Error("e")
			got := ""
			for line := range strings.Lines(b.String()) {
				got += line[:3] + " "
			}
			if want := "<7> <6> <4> <3> "; (got == want) != journal {
				t.Errorf("%s, journal: %v: %q\n%s", format, journal, got, &b)
			}
		}
	}
}
