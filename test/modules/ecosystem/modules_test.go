package ecosystem

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// moduleDir is where a module of testdata/modules.txt lies, which is downloaded if
// it is missing and must have the hash that stands there.
func moduleDir(t *testing.T, name string) string {
	t.Helper()
	fields := pinned(t, name)
	// Beside every module: what it requires is none of ours.
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", fields[1]+"@"+fields[2])
	cmd.Dir = t.TempDir()
	out, err := cmd.Output()
	var module struct{ Dir, Sum, Error string }
	if jsonErr := json.Unmarshal(out, &module); err != nil || jsonErr != nil || module.Error != "" {
		t.Fatalf("download %s: %v, %v %s", fields[1], err, jsonErr, module.Error)
	}
	if module.Sum != fields[3] {
		t.Fatalf("%s %s has the hash %s, want %s", fields[1], fields[2], module.Sum, fields[3])
	}
	return module.Dir
}

// pinned is a line of testdata/modules.txt: name, module, version and hash.
func pinned(t *testing.T, name string) []string {
	t.Helper()
	for _, fields := range table(t, "testdata/modules.txt") {
		if fields[0] == name {
			return fields
		}
	}
	t.Fatalf("testdata/modules.txt has no %s", name)
	return nil
}

// table reads lines of words; # begins a comment.
func table(t *testing.T, path string) [][]string {
	t.Helper()
	b, err := os.ReadFile(path)
	noError(t, err)
	var out [][]string
	for _, line := range strings.Split(string(b), "\n") {
		if line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, strings.Fields(line))
		}
	}
	return out
}
