package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

var (
	mdLink    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	mdHeading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	notInSlug = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// anchors are the fragments that a Markdown file's headings give.
func anchors(text string) map[string]bool {
	out := map[string]bool{}
	for _, m := range mdHeading.FindAllStringSubmatch(text, -1) {
		slug := notInSlug.ReplaceAllString(strings.ToLower(m[1]), "")
		out[strings.ReplaceAll(slug, " ", "-")] = true
	}
	return out
}

// TestArchitectureLinks follows every relative link of the project's documents.
func TestArchitectureLinks(t *testing.T) {
	const root = "../.."
	list := exec.CommandContext(t.Context(), "git", "ls-files", "*.md")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Fatalf("the documents are those that git knows: %v", err)
	}
	links := 0
	for _, name := range strings.Fields(string(out)) {
		text, err := os.ReadFile(filepath.Join(root, name))
		must.OK(t, err)
		for _, m := range mdLink.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			path, fragment, _ := strings.Cut(m[1], "#")
			target := filepath.Join(root, name)
			if path != "" {
				target = filepath.Join(root, filepath.Dir(name), path)
			}
			info, err := os.Stat(target)
			if err != nil {
				t.Errorf("%s: %s leads nowhere", name, m[1])
				continue
			}
			if fragment == "" || info.IsDir() {
				continue
			}
			other, err := os.ReadFile(target)
			must.OK(t, err)
			if !anchors(string(other))[fragment] {
				t.Errorf("%s: %s: there is no such heading", name, m[1])
			}
		}
	}
	if links == 0 {
		t.Error("no link was found")
	}
}

// TestArchitectureTable: CONTRIBUTING's table has every package that the import table has.
func TestArchitectureTable(t *testing.T) {
	table, err := os.ReadFile("../../CONTRIBUTING.md")
	must.OK(t, err)
	for name := range rooms {
		if !strings.Contains(string(table), "]("+name+")") {
			t.Errorf("CONTRIBUTING.md has no row for %s", name)
		}
	}
}
