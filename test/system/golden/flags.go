package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"github.com/quorate/quorate/test/harness/story"
)

func auditPath(dir string) string { return filepath.Join(dir, "audit.log") }

// serverFlags are the flags of either server for a story, NAME=VALUE, and writes the files
// that they name.
func (s *recording) serverFlags(dir string, vars map[string]string) ([]string, error) {
	policy := filepath.Join(dir, "audit-policy.json")
	vars = maps.Clone(vars)
	contents := map[string]string{policy: auditPolicy}
	for name, content := range s.files {
		vars[name] = filepath.Join(dir, name+".yaml")
		contents[vars[name]] = content
	}
	for path, content := range contents {
		content, err := story.Fill(content, vars)
		if err != nil {
			return nil, fmt.Errorf("%s: @file: %w", s.file, err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return nil, err
		}
	}
	flags := []string{"audit-policy-file=" + policy, "audit-log-path=" + auditPath(dir)}
	for _, f := range s.flags {
		filled, err := story.Fill(f, vars)
		if err != nil {
			return nil, fmt.Errorf("%s: --%w", s.file, err)
		}
		flags = append(flags, filled)
	}
	return flags, nil
}
