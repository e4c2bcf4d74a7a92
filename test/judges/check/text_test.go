package check

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/judges/history"
)

// TestText judges every history in testdata: it must find the violations that
// the file expects, and those alone.
func TestText(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			must.OK(t, err)
			h, expected, err := history.Parse(string(text))
			must.OK(t, err)
			v := All(h)
			found := make([]bool, len(expected))
			for _, x := range v.Violations {
				wanted := false
				for i, e := range expected {
					if e.Check == x.Check && strings.Contains(x.Text, e.Text) {
						found[i], wanted = true, true
					}
				}
				if !wanted {
					t.Errorf("not expected: %s: %s", x.Check, x.Text)
				}
			}
			for i, e := range expected {
				if !found[i] {
					t.Errorf("not found: %s: %s", e.Check, e.Text)
				}
			}
			if good := strings.HasPrefix(filepath.Base(file), "good-"); good != (len(expected) == 0) {
				t.Errorf("good files expect nothing, others something")
			}
		})
	}
}
