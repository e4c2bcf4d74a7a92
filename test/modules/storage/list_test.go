package storage

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// States of a function in README.md.
const (
	passes       = "passes"
	doesNotApply = "does not apply"
	notYet       = "not yet"
)

// TestListIsWhole compares README.md with upstream's source and with what the
// other tests run: it cannot name a function that is not there, nor leave one
// out, nor say of one what its run does not give.
func TestListIsWhole(t *testing.T) {
	listed := readList(t)
	state := map[string]string{}
	for _, f := range suite {
		state[f.name] = passes
	}
	for _, f := range missing {
		state[f.name] = ""
	}
	upstream := upstreamFunctions(t)
	for _, name := range upstream {
		got, ok := listed[name]
		want, runs := state[name]
		switch {
		case !ok:
			t.Errorf("README.md does not list %s", name)
		case runs && want == passes && got != passes:
			t.Errorf("README.md says that %s %s, but it passes", name, got)
		case want != passes && got != doesNotApply && got != notYet:
			t.Errorf("README.md says that %s %s, but nothing shows that", name, got)
		case !runs && !strings.HasPrefix(name, "RunBenchmark"):
			t.Errorf("%s is not run, not even to see it fail", name)
		}
	}
	for name := range listed {
		if !slices.Contains(upstream, name) {
			t.Errorf("README.md lists %s, which upstream does not have", name)
		}
	}
}

// readList returns the state of each function in README.md's table.
func readList(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 {
			continue
		}
		name := strings.TrimSpace(cells[1])
		if !strings.HasPrefix(name, "Run") {
			continue
		}
		if _, twice := listed[name]; twice {
			t.Errorf("README.md lists %s twice", name)
		}
		listed[name] = strings.TrimSpace(cells[2])
		if listed[name] != passes && strings.TrimSpace(cells[3]) == "" {
			t.Errorf("README.md does not say why %s %s", name, listed[name])
		}
	}
	return listed
}

// upstreamFunctions are the functions of upstream's suite, from its source.
func upstreamFunctions(t *testing.T) []string {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "k8s.io/apiserver/pkg/storage/testing").Output()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Run") {
				names = append(names, f.Name.Name)
			}
		}
	}
	if len(names) < len(suite)+len(missing) {
		t.Fatalf("only %d functions in %s", len(names), dir)
	}
	return names
}
