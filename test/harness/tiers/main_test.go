package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

// TestTiers: every package with tests has a tier, every line of tiers.txt has packages, and a make
// target runs every tier.
func TestTiers(t *testing.T) {
	packages, err := read()
	must.OK(t, err)
	makefile, err := os.ReadFile("../../../Makefile")
	must.OK(t, err)
	var ran []string
	for _, call := range regexp.MustCompile(`\$\(call run_tier,([^,]*),`).FindAllStringSubmatch(string(makefile), -1) {
		ran = append(ran, strings.Fields(call[1])...)
	}
	seen := map[string]int{}
	for _, p := range packages {
		seen[p.tier]++
		rel := strings.TrimPrefix(p.path, module+"/")
		switch p.tier {
		case "sim", "nodes":
			if !strings.Contains(string(makefile), "./"+rel+" ") {
				t.Errorf("the Makefile does not run %s", rel)
			}
		case "module":
			top := rel
			for !exists(filepath.Join("../../..", top, "go.mod")) {
				top = filepath.Dir(top)
			}
			if !regexp.MustCompile(`cd ` + regexp.QuoteMeta(top) + ` && .*(go_test|go test)`).Match(makefile) {
				t.Errorf("the Makefile does not run the tests of the module %s", top)
			}
		default:
			if !slices.Contains(ran, p.tier) {
				t.Errorf("the Makefile does not run the tier %s of %s", p.tier, rel)
			}
		}
	}
	for _, tier := range tiers {
		if seen[tier] == 0 {
			t.Errorf("the tier %s has no packages", tier)
		}
	}
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

func TestParseTiers(t *testing.T) {
	lines, err := parseTiers("# why\n\nunit ./...\nall ./a ./b/...\n")
	if err != nil || len(lines) != 2 || lines[1].tier != "all" || len(lines[1].patterns) != 2 {
		t.Errorf("%+v, %v", lines, err)
	}
	for text, want := range map[string]string{
		"often ./a": `tiers.txt:1: unknown tier "often"`,
		"\nunit":    "tiers.txt:2: no packages",
		"unit a":    "tiers.txt:1: a: must begin with ./",
	} {
		if _, err := parseTiers(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, rel string
		want         bool
	}{
		{"./...", "a/b", true},
		{"./a", "a", true}, {"./a", "a/b", false}, {"./a", "ab", false},
		{"./a/...", "a", true}, {"./a/...", "a/b/c", true}, {"./a/...", "ab", false},
	} {
		if got := matches(c.pattern, c.rel); got != c.want {
			t.Errorf("%s, %s: %v", c.pattern, c.rel, got)
		}
	}
}

func TestScan(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("a.go", "package a\nfunc TestNot() {}\n")
	write("a_test.go", `package a
import "testing"
func TestMain(m *testing.M) { m.Run() }
func TestB(t *testing.T) { if testing.Short() { t.Skip() } }
func TestA(t *testing.T) { t.Run("", func(t *testing.T) { cluster.SkipInShort(t, "") }) }
func TestC(t *testing.T) {}
func (x) TestD() {}
`)
	var p testPackage
	must.OK(t, p.scan(dir))
	if p.concurrent || !slices.Equal(p.tests, []string{"TestA", "TestB", "TestC"}) || !slices.Equal(p.long, []string{"TestA", "TestB"}) {
		t.Errorf("%+v", p)
	}
	for _, text := range []string{"package a\nimport _ \"sync/atomic\"\n", "package a\nfunc f() { func() { go f() }() }\n"} {
		write("b.go", text)
		var p testPackage
		if err := p.scan(dir); err != nil || !p.concurrent {
			t.Errorf("%q: %+v, %v", text, p, err)
		}
	}
}
