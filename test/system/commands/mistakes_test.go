package commands

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write what is printed into testdata/mistakes.txt, where it is another text")

// typedWithin bounds each command line of a transcript.
const typedWithin = 30 * time.Second

// TestMistakes types what testdata/mistakes.txt has, with the real program, and compares
// what it prints and how it ends.
func TestMistakes(t *testing.T) {
	const file = "testdata/mistakes.txt"
	tr, err := readTranscript(file)
	if err != nil {
		t.Fatal(err)
	}
	ports, err := portRanges(len(tr.sections))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	now := map[*typed][]string{}
	t.Run("sections", func(t *testing.T) {
		for i, s := range tr.sections {
			t.Run(s.title, func(t *testing.T) {
				t.Parallel()
				s.open(t, ports[i])
				for _, c := range s.commands {
					got, code := s.run(t, c.command, typedWithin)
					same, err := s.matches(c.want, got)
					if err != nil {
						t.Fatalf("%s:%d: %v", file, c.line+1, err)
					}
					if same && code == c.wantCode {
						continue
					}
					for i, line := range got {
						got[i] = s.generalize(line)
					}
					if code != 0 {
						got = append(got, fmt.Sprint(exitWord, code))
					}
					if *update {
						mu.Lock()
						now[c] = got
						mu.Unlock()
						continue
					}
					t.Errorf("%s:%d: $ %s\n%s\nwant\n%s\nexit %d", file, c.line+1, c.command, strings.Join(got, "\n"), strings.Join(c.want, "\n"), c.wantCode)
				}
			})
		}
	})
	if len(now) == 0 {
		return
	}
	var out []string
	rest := 0
	for _, s := range tr.sections {
		for _, c := range s.commands {
			if got, ok := now[c]; ok {
				out = append(out, tr.lines[rest:c.line+1]...)
				out = append(out, got...)
				rest = c.end
			}
		}
	}
	out = slices.Concat(out, tr.lines[rest:])
	if err := os.WriteFile(file, []byte(strings.Join(out, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}
