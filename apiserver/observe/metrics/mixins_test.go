package metrics_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

// TestMixins: what the rules and dashboards of others ask for is there, with the labels that they
// use, or testdata/mixins.txt says why not.
func TestMixins(t *testing.T) {
	served := map[string][]string{}
	for line := range lines(t, "testdata/contract.txt") {
		words := strings.Fields(line)
		served[words[0]] = strings.Split(strings.Trim(words[2], "{}"), ",")
	}
	for _, of := range [...]string{"go_goroutines", "process_cpu_seconds_total", "process_resident_memory_bytes"} {
		served[of] = nil // the library's, which the contract leaves out
	}
	for line := range lines(t, "testdata/mixins.txt") {
		asked, reason, _ := strings.Cut(line, " # ")
		words := strings.Fields(asked)
		if words[0] == "-" {
			if _, is := served[words[1]]; is || reason == "" {
				t.Errorf("%s: there after all, or without a reason", line)
			}
			continue
		}
		labels, is := served[words[0]]
		if !is {
			t.Errorf("%s is not served", words[0])
			continue
		}
		for _, label := range strings.Split(strings.Join(words[1:], ","), ",") {
			if label != "" && !slices.Contains(labels, label) {
				t.Errorf("%s has no label %s", words[0], label)
			}
		}
	}
}

// lines of a file, without its comments.
func lines(t *testing.T, file string) func(func(string) bool) {
	t.Helper()
	text, err := os.ReadFile(file)
	must.OK(t, err)
	return func(yield func(string) bool) {
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' && !yield(line) {
				return
			}
		}
	}
}
