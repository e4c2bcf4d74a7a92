package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

// ends are the methods that end a test at once.
var ends = []string{"Fatal", "Fatalf", "FailNow", "Skip", "Skipf", "SkipNow"}

// lockLint collects the calls that may end a test while it holds a lock. Nobody releases the
// lock then, and a cleanup that takes it hangs. A deferred Unlock is fine: an ending
// test runs it.
type lockLint struct {
	fset  *token.FileSet
	found []string
}

// statements looks at a function's statements, or those of a block in it, in their order.
// It assumes that a block leaves the locks as they were.
func (l *lockLint) statements(list []ast.Stmt, held map[string]bool) {
	for _, s := range list {
		ast.Inspect(s, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncLit:
				l.statements(n.Body.List, map[string]bool{})
			case *ast.BlockStmt:
				l.statements(n.List, maps.Clone(held))
			case *ast.CaseClause:
				l.statements(n.Body, maps.Clone(held))
			case *ast.CommClause:
				l.statements(n.Body, maps.Clone(held))
			case *ast.SelectorExpr: // not only a call: t.Cleanup(mu.Unlock), too
				if n.Sel.Name == "Unlock" || n.Sel.Name == "RUnlock" {
					delete(held, types.ExprString(n.X))
				}
				return true
			case *ast.CallExpr:
				l.call(n, held)
				return true
			default:
				return true
			}
			return false
		})
	}
}

func (l *lockLint) call(call *ast.CallExpr, held map[string]bool) {
	of, method := "", ""
	if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
		of, method = types.ExprString(sel.X), sel.Sel.Name
	}
	helper := len(call.Args) > 0 && slices.Contains([]string{"t", "b", "tb"}, types.ExprString(call.Args[0]))
	switch {
	case method == "Lock", method == "RLock":
		held[of] = true
	case len(held) > 0 && (helper || slices.Contains(ends, method)):
		l.found = append(l.found, fmt.Sprintf("%s: %s may end the test, which holds %s: read under the lock, and judge outside",
			l.fset.Position(call.Pos()), types.ExprString(call.Fun), slices.Sorted(maps.Keys(held))[0]))
	}
}

// endsInALock returns what is wrong in a file. source is that of parser.ParseFile.
func endsInALock(t *testing.T, name string, source any) []string {
	l := lockLint{fset: token.NewFileSet()}
	f, err := parser.ParseFile(l.fset, name, source, parser.SkipObjectResolution)
	must.OK(t, err)
	for _, d := range f.Decls {
		if d, ok := d.(*ast.FuncDecl); ok && d.Body != nil {
			l.statements(d.Body.List, map[string]bool{})
		}
	}
	return l.found
}

// TestNoTestEndsInALock: such a test hangs until its timeout instead of saying what is wrong.
func TestNoTestEndsInALock(t *testing.T) {
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.Name() == ".cache", d.Name() == "node_modules":
			return fs.SkipDir
		case strings.HasSuffix(path, "_test.go"), strings.HasPrefix(path, "../../test/") && strings.HasSuffix(path, ".go"):
			for _, found := range endsInALock(t, path, nil) {
				t.Error(found)
			}
		}
		return nil
	})
	must.OK(t, err)
}

// TestEndsInALock plants what TestNoTestEndsInALock looks for.
func TestEndsInALock(t *testing.T) {
	for source, want := range map[string]int{
		"mu.Lock(); if bad { t.Fatal(1) }; mu.Unlock()":                            1,
		"mu.Lock(); must(t, err); mu.Unlock()":                                     1,
		"a.mu.RLock(); b.mu.Lock(); b.mu.Unlock(); t.Skip()":                       1,
		"mu.Lock(); if bad { mu.Unlock(); return }; t.FailNow()":                   1,
		"run(func() { mu.Lock(); t.Fatalf(text); mu.Unlock() })":                   1,
		"mu.Lock(); defer mu.Unlock(); t.Fatal(1)":                                 0,
		"mu.Lock(); bad := is(); mu.Unlock(); if bad { t.Fatal(1) }":               0,
		"mu.Lock(); if bad { mu.Unlock(); t.Fatal(1) }; mu.Unlock(); t.Fatal(2)":   0,
		"mu.Lock(); release := sync.OnceFunc(mu.Unlock); defer release(); must(t)": 0,
		"mu.Lock(); t.Error(1); mu.Unlock()":                                       0,
	} {
		if found := endsInALock(t, "p.go", "package p; func f(t *testing.T) { "+source+" }"); len(found) != want {
			t.Errorf("%s: %q", source, found)
		}
	}
}
