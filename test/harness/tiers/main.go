// Command tiers says which tests run where. The make targets ask it for the packages of a tier:
//
//	go run ./test/harness/tiers unit raced      # the packages of these tiers that have tests
//	go run ./test/harness/tiers -race unit      # of these, the ones with goroutines or locks
//	go run ./test/harness/tiers -table          # all tiers as a table, with the tests that -short leaves out
//
// The tiers are those of tiers.txt. A package without a tier is an error, so that no test is
// forgotten. The pattern ./... says nothing of packages below test and of other modules: their tests
// need programs, or a make target of their own, so a line has to name them.
package main

import (
	"bufio"
	"bytes"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed tiers.txt
var tiersText string

// tiers are the names that tiers.txt may use, in the order of the table.
var tiers = []string{"unit", "raced", "sim", "system", "measured", "all", "alone", "nodes", "module"}

const module = "github.com/quorate/quorate"

func main() {
	race := flag.Bool("race", false, "only packages that have goroutines or locks")
	table := flag.Bool("table", false, "print all tiers as a table")
	flag.Parse()
	if err := run(os.Stdout, flag.Args(), *race, *table); err != nil {
		fmt.Fprintln(os.Stderr, "tiers:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, wanted []string, race, table bool) error {
	for _, w := range wanted {
		if !slices.Contains(tiers, w) {
			return fmt.Errorf("unknown tier %q: must be one of %s", w, strings.Join(tiers, ", "))
		}
	}
	packages, err := read()
	if err != nil {
		return err
	}
	if table {
		return writeTable(out, packages)
	}
	for _, p := range packages {
		if slices.Contains(wanted, p.tier) && (!race || p.concurrent) {
			fmt.Fprintln(out, p.path)
		}
	}
	return nil
}

// testPackage is a package that has tests.
type testPackage struct {
	path       string // as `go test` takes it
	tier       string
	concurrent bool     // a file of the package or of its tests has goroutines or locks
	tests      []string // names, sorted
	long       []string // those that ask testing.Short, themselves or by cluster.SkipInShort
}

// read reads tiers.txt, and all packages that have tests, sorted by path. The working directory must
// be in the repository.
func read() ([]testPackage, error) {
	root, err := output("go", "list", "-m", "-f", "{{.Dir}}", module)
	if err != nil {
		return nil, fmt.Errorf("find the repository: %w", err)
	}
	dir := strings.TrimSpace(string(root))
	lines, err := parseTiers(tiersText)
	if err != nil {
		return nil, err
	}
	var errs []error
	var found []testPackage
	used := map[string]bool{}
	for _, rel := range testDirectories(dir, &errs) {
		p := testPackage{path: module + "/" + rel}
		named := strings.HasPrefix(rel, "test/") || inOtherModule(dir, rel)
		for _, l := range lines {
			for _, pattern := range l.patterns {
				if matches(pattern, rel) && !(named && pattern == "./...") {
					p.tier, used[pattern] = l.tier, true
				}
			}
		}
		if p.tier == "" {
			errs = append(errs, fmt.Errorf("%s has tests, and no line of tiers.txt names it", rel))
		}
		if err := p.scan(filepath.Join(dir, rel)); err != nil {
			errs = append(errs, err)
		}
		found = append(found, p)
	}
	for _, l := range lines {
		for _, pattern := range l.patterns {
			if !used[pattern] {
				errs = append(errs, fmt.Errorf("tiers.txt: no package with tests matches %s", pattern))
			}
		}
	}
	return found, errors.Join(errs...)
}

// inOtherModule reports whether the directory rel belongs to a module below root.
func inOtherModule(root, rel string) bool {
	for ; rel != "."; rel = filepath.Dir(rel) {
		if _, err := os.Stat(filepath.Join(root, rel, "go.mod")); err == nil {
			return true
		}
	}
	return false
}

// testDirectories returns the directories below root that have test files, without those that the go
// command ignores, relative and sorted. Modules below tools are others' programs without tests.
func testDirectories(root string, errs *[]error) []string {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && path != root && (strings.HasPrefix(e.Name(), ".") || strings.HasPrefix(e.Name(), "_") || slices.Contains([]string{"testdata", "node_modules", "bin"}, e.Name())):
			return filepath.SkipDir
		case !e.IsDir() && strings.HasSuffix(e.Name(), "_test.go"):
			rel, err := filepath.Rel(root, filepath.Dir(path))
			if err != nil {
				return err
			}
			if n := len(dirs); n == 0 || dirs[n-1] != rel {
				dirs = append(dirs, rel)
			}
		}
		return nil
	})
	if err != nil {
		*errs = append(*errs, fmt.Errorf("look for tests: %w", err))
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// tierLine is a line of tiers.txt.
type tierLine struct {
	tier     string
	patterns []string
}

func parseTiers(text string) (lines []tierLine, err error) {
	s := bufio.NewScanner(strings.NewReader(text))
	for n := 1; s.Scan(); n++ {
		fields := strings.Fields(s.Text())
		switch {
		case len(fields) == 0 || strings.HasPrefix(fields[0], "#"):
			continue
		case !slices.Contains(tiers, fields[0]):
			return nil, fmt.Errorf("tiers.txt:%d: unknown tier %q: must be one of %s", n, fields[0], strings.Join(tiers, ", "))
		case len(fields) == 1:
			return nil, fmt.Errorf("tiers.txt:%d: no packages", n)
		}
		for _, p := range fields[1:] {
			if !strings.HasPrefix(p, "./") {
				return nil, fmt.Errorf("tiers.txt:%d: %s: must begin with ./", n, p)
			}
		}
		lines = append(lines, tierLine{tier: fields[0], patterns: fields[1:]})
	}
	return lines, s.Err()
}

// matches reports whether a pattern of the go command, which begins with ./, matches the directory
// rel.
func matches(pattern, rel string) bool {
	pattern = strings.TrimPrefix(pattern, "./")
	if pattern == "..." {
		return true
	}
	if below, ok := strings.CutSuffix(pattern, "/..."); ok {
		return rel == below || strings.HasPrefix(rel, below+"/")
	}
	return rel == pattern
}

// scan reads the sources of the package in dir.
func (p *testPackage) scan(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return err
	}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("parse: %w", err)
		}
		for _, spec := range f.Imports {
			if spec.Path.Value == `"sync"` || spec.Path.Value == `"sync/atomic"` {
				p.concurrent = true
			}
		}
		for _, d := range f.Decls {
			name, short := "", false
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") && fn.Name.Name != "TestMain" && strings.HasSuffix(file, "_test.go") {
				name = fn.Name.Name
			}
			ast.Inspect(d, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.GoStmt:
					p.concurrent = true
				case *ast.SelectorExpr:
					if x, ok := n.X.(*ast.Ident); ok && (x.Name == "testing" && n.Sel.Name == "Short" || n.Sel.Name == "SkipInShort") {
						short = true
					}
				}
				return true
			})
			if name != "" {
				p.tests = append(p.tests, name)
				if short {
					p.long = append(p.long, name)
				}
			}
		}
	}
	slices.Sort(p.tests)
	slices.Sort(p.long)
	return nil
}

// writeTable writes the tiers as a Markdown table: a row for each package.
func writeTable(out io.Writer, packages []testPackage) error {
	w := bufio.NewWriter(out)
	fmt.Fprintln(w, "| Tier | Package | Tests | Race detector | Shorter or left out with -short |")
	fmt.Fprintln(w, "|---|---|---|---|---|")
	for _, tier := range tiers {
		for _, p := range packages {
			if p.tier != tier {
				continue
			}
			race := ""
			switch {
			case tier == "raced":
				race = "make test"
			case tier == "unit" && p.concurrent:
				race = "make test-race"
			case tier == "sim":
				race = "make test-race, fewer seeds"
			}
			fmt.Fprintf(w, "| %s | %s | %d | %s | %s |\n", tier, strings.TrimPrefix(p.path, module+"/"), len(p.tests), race, strings.Join(p.long, ", "))
		}
	}
	return w.Flush()
}

func output(name string, args ...string) ([]byte, error) {
	var stderr bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, stderr.Bytes())
	}
	return out, nil
}
