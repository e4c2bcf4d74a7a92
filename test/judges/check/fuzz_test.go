package check

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/judges/history"
)

// FuzzAll: whatever a record says, it is judged, and judged the same twice.
func FuzzAll(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.txt")
	for _, file := range files {
		text, err := os.ReadFile(file)
		must.OK(f, err)
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		h, _, err := history.Parse(text)
		if err != nil || len(h.Ops) > 40 {
			return
		}
		a, b := All(h), All(h)
		a.Elapsed, b.Elapsed = 0, 0
		if a.String() != b.String() {
			t.Errorf("judged differently:\n%s\n%s", a, b)
		}
	})
}
