package main

import (
	"embed"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
)

// equivalents names mutants that no test can tell from the original, in one file per package. A
// line that begins with "= " says why those before it, up to the previous such line, are:
//
//	FILE: OLD to NEW: SOURCE LINE
//	= REASON
//
// FILE is a path from the root of the module. The line of the source is its text, not its number,
// so that other changes of the file leave the entry true.
//
//go:embed equivalent
var equivalents embed.FS

// companions has lines "PACKAGE: PACKAGES": the second ones' tests prove the first one too.
//
//go:embed companions.txt
var companions string

// allEquivalents returns the entries of all files with their reasons.
func allEquivalents() (map[string]string, error) {
	files, err := equivalents.ReadDir("equivalent")
	all := map[string]string{}
	for _, f := range files {
		text, readErr := equivalents.ReadFile("equivalent/" + f.Name())
		some, parseErr := readEquivalents(string(text))
		if wrong := errors.Join(readErr, parseErr); wrong != nil {
			err = errors.Join(err, fmt.Errorf("equivalent/%s: %w", f.Name(), wrong))
		}
		maps.Copy(all, some)
	}
	return all, err
}

// readEquivalents returns the entries of a file with their reasons.
func readEquivalents(text string) (map[string]string, error) {
	all := map[string]string{}
	var group []string
	for i, line := range strings.Split(text, "\n") {
		switch reason, is := strings.CutPrefix(line, "= "); {
		case is && len(group) > 0:
			for _, g := range group {
				all[g] = reason
			}
			group = nil
		case strings.HasPrefix(line, "#") || line == "":
		case is || strings.Count(line, ": ") < 2:
			return nil, fmt.Errorf("line %d: %q is no mutant and no reason of mutants", i+1, line)
		default:
			group = append(group, line)
		}
	}
	if len(group) > 0 {
		return nil, fmt.Errorf("%q has no reason", group[0])
	}
	return all, nil
}

// readCompanions returns the packages that prove a package, per package.
func readCompanions(text string) map[string][]string {
	all := map[string][]string{}
	for line := range strings.SplitSeq(text, "\n") {
		if p, others, is := strings.Cut(line, ": "); is && !strings.HasPrefix(line, "#") {
			all[p] = strings.Fields(others)
		}
	}
	return all
}

// key returns how the files of equivalent name a mutant.
func (m mutant) key(root string) string {
	file, err := filepath.Rel(root, m.file)
	if err != nil {
		file = m.file
	}
	return fmt.Sprintf("%s: %s to %s: %s", filepath.ToSlash(file), m.old, m.new, m.text)
}
