package memdir

import (
	"os"
	"path/filepath"
	"testing"
)

// TestFind: a place that is chosen stays, and one that is not there is no reason to fail.
func TestFind(t *testing.T) {
	t.Setenv("TMPDIR", "")
	if got := find(filepath.Join(t.TempDir(), "missing")); got != "" {
		t.Errorf("a directory %s where nothing is", got)
	}
	if dir := find(t.TempDir()); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, "x"), nil, 0o600); err != nil {
			t.Error(err)
		}
	}
	t.Setenv("TMPDIR", "/var/tmp")
	if got := find(t.TempDir()); got != "" {
		t.Errorf("a directory %s though TMPDIR is set", got)
	}
}
