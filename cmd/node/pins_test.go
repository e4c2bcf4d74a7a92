package main

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

// A pin is a module whose version is a decision: an update needs more than
// newer numbers in go.mod.
type pin struct {
	module  string
	version string // exact, or a prefix that ends in "."
	why     string
}

var pins = []pin{
	{"github.com/hashicorp/raft", "v1.7.3", "raftstore/regress proves our read path and transport against this version's pitfalls: run it against the new one first"},
	{"github.com/hashicorp/raft-boltdb/v2", "v2.3.1", "it is the store of term and vote; its next version needs a go-metrics that raft v1.7.3 does not build with"},
	{"go.etcd.io/bbolt", "v1.4.3", "it is the format of state.db and raft.db; later versions were not tried with torn files"},
	{"github.com/hashicorp/go-metrics", "v0.5.", "raft v1.7.3 and raft-boltdb v2.3.1 import its package compat, which v0.7 does not have"},
	{"k8s.io/api", "v0.36.", kubernetesPin},
	{"k8s.io/apimachinery", "v0.36.", kubernetesPin},
	{"k8s.io/client-go", "v0.36.", kubernetesPin},
	{"github.com/google/cel-go", "v0.26.", "the CEL of Kubernetes 1.36; another one accepts other rules"},
}

const kubernetesPin = "the version served is that of these modules: schemas, discovery and golden files move with it"

// TestPins fails when a pinned module has drifted.
func TestPins(t *testing.T) {
	// go.mod names every module that a package comes from. go list -m all would also ask for
	// the modules that k8s.io/kubernetes has in its own repository, by versions that do not exist.
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", "../../go.mod").Output()
	must.OK(t, err)
	var mod struct {
		Require []struct{ Path, Version string }
	}
	must.OK(t, json.Unmarshal(out, &mod))
	versions := map[string]string{}
	for _, m := range mod.Require {
		versions[m.Path] = m.Version
	}
	if got, want := versions["k8s.io/kubernetes"], "v1."+strings.TrimPrefix(versions["k8s.io/api"], "v0."); got != want {
		t.Errorf("k8s.io/kubernetes is at %s, the release of the others is %s: %s", got, want, kubernetesPin)
	}
	for _, p := range pins {
		switch got := versions[p.module]; {
		case got == "":
			t.Errorf("%s is not a dependency any more: drop its pin", p.module)
		case got == p.version, strings.HasSuffix(p.version, ".") && strings.HasPrefix(got, p.version):
		default:
			t.Errorf("%s is at %s, pinned at %s: %s", p.module, got, p.version, p.why)
		}
	}
	// All of Kubernetes' staged modules come from one release.
	for module, v := range versions {
		if strings.HasPrefix(module, "k8s.io/") && strings.HasPrefix(v, "v0.") && !strings.HasPrefix(v, "v0.0.0-") && v != versions["k8s.io/api"] {
			t.Errorf("%s is at %s, k8s.io/api at %s: %s", module, v, versions["k8s.io/api"], kubernetesPin)
		}
	}
}

// modFile is what the tests below read of a module file.
type modFile struct {
	Go      string
	Require []struct {
		Path     string
		Indirect bool
	}
}

func readMod(t *testing.T, file string) (m modFile) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", file).Output()
	must.OK(t, err)
	must.OK(t, json.Unmarshal(out, &m))
	return m
}

func readText(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	must.OK(t, err)
	return string(text)
}

// TestToolchain: the modules of the product and of its tests have the same oldest Go, and who builds a release reads which
// Go that needs.
func TestToolchain(t *testing.T) {
	const root = "../.."
	want := readMod(t, filepath.Join(root, "go.mod")).Go
	for _, module := range []string{"test/modules/storage", "test/judges/etcd", "test/judges/writes", "test/modules/clients", "test/modules/ecosystem"} {
		if got := readMod(t, filepath.Join(root, module, "go.mod")).Go; got != want {
			t.Errorf("%s has go %s, go.mod has go %s", module, got, want)
		}
	}
	release := regexp.MustCompile(`(?m)^RELEASE_GO := go(\S+)$`).FindStringSubmatch(readText(t, filepath.Join(root, "Makefile")))
	if release == nil {
		t.Fatal("the Makefile names no RELEASE_GO")
	}
	for _, name := range []string{"README.md", "CONTRIBUTING.md", "docs/dependencies.md"} {
		if !strings.Contains(readText(t, filepath.Join(root, name)), release[1]) {
			t.Errorf("%s does not name the Go of releases, %s", name, release[1])
		}
	}
}

// TestDependencies: docs/dependencies.md has a row for each direct module of go.mod, and no other.
func TestDependencies(t *testing.T) {
	const page = "../../docs/dependencies.md"
	direct := map[string]bool{}
	for _, m := range readMod(t, "../../go.mod").Require {
		if !m.Indirect {
			direct[m.Path] = true
		}
	}
	_, table, _ := strings.Cut(readText(t, page), "\n## Direct modules\n")
	table, _, _ = strings.Cut(table, "\n## ")
	rows := map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\| ([^ |]+/[^ |]+) \|(.*)\|$`).FindAllStringSubmatch(table, -1) {
		m := row[1]
		switch {
		case !direct[m]:
			t.Errorf("%s has a row for %s, which is no direct module of go.mod", page, m)
		case rows[m]:
			t.Errorf("%s has two rows for %s", page, m)
		}
		rows[m] = true
		if cells := strings.Split(row[2], "|"); len(cells) != 3 || slices.ContainsFunc(cells, func(c string) bool { return strings.TrimSpace(c) == "" }) {
			t.Errorf("%s: the row of %s is not complete", page, m)
		}
	}
	for _, m := range slices.Sorted(maps.Keys(direct)) {
		if !rows[m] {
			t.Errorf("%s has no row for %s", page, m)
		}
	}
}

// TestNoReplace: go install refuses modules whose go.mod has such directives.
func TestNoReplace(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", "../../go.mod").Output()
	must.OK(t, err)
	var m struct{ Replace, Exclude []any }
	must.OK(t, json.Unmarshal(out, &m))
	if len(m.Replace)+len(m.Exclude) > 0 {
		t.Errorf("go.mod has %d replace and %d exclude directives; go install of a version would not work", len(m.Replace), len(m.Exclude))
	}
}
