package commands

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestSections: each setting of a node is in one section of its help, and no line is long.
func TestSections(t *testing.T) {
	times := map[string]int{}
	for _, s := range sections {
		for _, name := range s.Flags {
			times[name]++
		}
	}
	new(settings).flags().VisitAll(func(f *pflag.Flag) {
		if times[f.Name] != 1 {
			t.Errorf("--%s is in %d sections of sections.go, not in one", f.Name, times[f.Name])
		}
		delete(times, f.Name)
	})
	if len(times) > 0 {
		t.Errorf("sections.go has what is no setting: %v", times)
	}
	for _, args := range [][]string{{"node", "--help"}, {"config", "validate", "--help"}} {
		help := runCommand(t, args...)
		for line := range strings.Lines(help) {
			if len(line) > 160 {
				t.Errorf("%v has a line of %d characters: %q", args, len(line), line)
			}
		}
		for _, s := range sections {
			title := "\n" + s.Title + " flags:\n"
			_, flags, _ := strings.Cut(help, title)
			if flags, _, _ = strings.Cut(flags, "\n\n"); !strings.Contains(flags, "--"+s.Flags[0]) {
				t.Errorf("%v: no --%s under %q", args, s.Flags[0], title)
			}
		}
		if strings.Count(help, "--config string") != 1 {
			t.Errorf("%v does not show --config once", args)
		}
	}
}
