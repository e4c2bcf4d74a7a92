package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/planted"
)

// TestFound plants each bug that a test of its own is to find, and runs that test: it fails. Without a bug it passes in the same
// program. Tests of whole clusters plant theirs themselves.
func TestFound(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the tests of several packages")
	}
	root, err := checkout()
	must.OK(t, err)
	overlay := exec.CommandContext(t.Context(), "go", "run", "./test/harness/planted/overlay")
	overlay.Dir, overlay.Stderr = root, os.Stderr
	out, err := overlay.Output()
	must.OK(t, err)
	tests := map[string]map[string][]string{} // bugs by package and test
	for _, bug := range planted.All() {
		test, pkg := planted.FoundBy(bug)
		if test == "" || strings.HasPrefix(pkg, "test/") {
			continue
		}
		if tests[pkg] == nil {
			tests[pkg] = map[string][]string{}
		}
		tests[pkg][test] = append(tests[pkg][test], bug)
	}
	if len(tests) == 0 {
		t.Error("there are none")
	}
	for pkg, byTest := range tests {
		t.Run(pkg, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "test")
			build := exec.CommandContext(t.Context(), "go", "test", "-c", "-overlay", strings.TrimSpace(string(out)), "-o", program, "./"+pkg)
			build.Dir = root
			if text, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			// output has what the test says, whose directory is its package's.
			output := func(test, bug string) (string, error) {
				cmd := exec.CommandContext(t.Context(), program, "-test.run", "^"+test+"$", "-test.v", "-test.short", "-test.timeout", "2m")
				cmd.Dir, cmd.Env = filepath.Join(root, pkg), append(os.Environ(), "QUORATE_PLANTED="+bug)
				text, err := cmd.CombinedOutput()
				return string(text), err
			}
			for test, bugs := range byTest {
				switch text, err := output(test, ""); {
				case err != nil:
					t.Errorf("%s fails without a bug: %v\n%s", test, err, text)
					continue
				case strings.Contains(text, "--- SKIP: "+test+" "):
					t.Logf("%s is skipped here: %s", test, text)
					continue
				case !strings.Contains(text, "--- PASS: "+test+" "):
					t.Errorf("there is no %s", test)
					continue
				}
				for _, bug := range bugs {
					if text, err := output(test, bug); err == nil || !strings.Contains(text, "--- FAIL: "+test) {
						t.Errorf("%s does not find %s: %v\n%s", test, bug, err, text)
					}
				}
			}
		})
	}
}
