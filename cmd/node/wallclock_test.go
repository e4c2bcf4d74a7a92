package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

// wallClock finds what makes a test depend on the speed of the machine, in the file of a test:
//
//   - a comparison that asks whether too much time has passed by the clock: time.Since(x) > y, or
//     the same of a variable that the function has set to time.Since(x). It needs a comment
//     "//wall: REASON".
//   - a time.Sleep that is in no loop, for a loop looks for a condition again and again. It needs
//     a comment "//sleep: REASON". A file that imports testing/synctest sleeps in virtual time.
//
// The comment is on the line itself or on the one before.
func wallClock(fset *token.FileSet, f *ast.File) (found []string) {
	reasons := map[string]map[int]bool{"wall": {}, "sleep": {}}
	for _, g := range f.Comments {
		for _, c := range g.List {
			for kind, lines := range reasons {
				if reason, ok := strings.CutPrefix(c.Text, "//"+kind+":"); ok && len(strings.Fields(reason)) > 1 {
					lines[fset.Position(c.Pos()).Line] = true
				}
			}
		}
	}
	need := func(kind string, at token.Pos, what string) {
		line := fset.Position(at).Line
		if !reasons[kind][line] && !reasons[kind][line-1] {
			found = append(found, fmt.Sprintf("%d: %s without a comment //%s: REASON", line, what, kind))
		}
	}
	virtual := slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing/synctest"` })
	for _, d := range f.Decls {
		elapsed := elapsedIn(d)
		var within []ast.Node
		ast.Inspect(d, func(n ast.Node) bool {
			if n == nil {
				within = within[:len(within)-1]
				return true
			}
			within = append(within, n)
			switch n := n.(type) {
			case *ast.BinaryExpr:
				late := n.X
				switch n.Op {
				case token.LSS, token.LEQ:
					late = n.Y
				case token.GTR, token.GEQ:
				default:
					return true
				}
				if id, ok := late.(*ast.Ident); !virtual && (isCall(late, "Since") || ok && elapsed[id.Name]) {
					need("wall", n.Pos(), "a bound on time by the clock")
				}
			case *ast.CallExpr:
				if isCall(n, "Sleep") && !virtual && !inLoop(within) {
					need("sleep", n.Pos(), "a sleep")
				}
			}
			return true
		})
	}
	return found
}

// elapsedIn returns the variables that are set to time.Since in a declaration.
func elapsedIn(d ast.Decl) map[string]bool {
	names := map[string]bool{}
	ast.Inspect(d, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok && len(a.Lhs) == len(a.Rhs) {
			for i, value := range a.Rhs {
				if id, ok := a.Lhs[i].(*ast.Ident); ok && isCall(value, "Since") {
					names[id.Name] = true
				}
			}
		}
		return true
	})
	return names
}

// isCall reports whether an expression calls a function of package time.
func isCall(e ast.Expr, name string) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != name {
		return false
	}
	id, ok := s.X.(*ast.Ident)
	return ok && id.Name == "time"
}

// inLoop reports whether the last of the nodes is in a loop of its function.
func inLoop(within []ast.Node) bool {
	for _, n := range slices.Backward(within) {
		switch n.(type) {
		case *ast.ForStmt, *ast.RangeStmt:
			return true
		case *ast.FuncLit, *ast.FuncDecl:
			return false
		}
	}
	return false
}

func TestWallClockTable(t *testing.T) {
	for _, c := range []struct {
		body string
		want int
	}{
		{"if time.Since(x) > y { t.Error() }", 1},
		{"if y <= time.Since(x) { t.Error() }", 1},
		{"if took := time.Since(x); took >= y || z { t.Error() }", 1},
		{"//wall: a timer of two seconds is the other way\nif time.Since(x) > y { t.Error() }", 0},
		{"if time.Since(x) > y { //wall: a timer is the other way\n}", 0},
		{"if time.Since(x) > y { //wall:\n}", 1},
		{"if time.Since(x) > y { //sleep: not this one\n}", 1},
		{"if took := time.Since(x); took < y { t.Error() }", 0},
		{"if took := cputime.Of(f); took > y { t.Error() }", 0},
		{"time.Sleep(y)", 1},
		{"time.Sleep(y) //sleep: nothing may happen meanwhile", 0},
		{"for !ok() { time.Sleep(y) }", 0},
		{"for range 3 { go func() { time.Sleep(y) }() }", 1},
		{"clock.Sleep(y)", 0},
	} {
		for imports, want := range map[string]int{`import "time"`: c.want, `import "testing/synctest"`: 0} {
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, "x_test.go", "package x\n"+imports+"\nfunc f() {\n"+c.body+"\n}\n", parser.ParseComments)
			must.OK(t, err)
			if got := wallClock(fset, f); len(got) != want {
				t.Errorf("%s, with %s: %q", c.body, imports, got)
			}
		}
	}
}

// TestWallClock: no test depends on the speed of the machine, or it says why.
func TestWallClock(t *testing.T) {
	root := "../.."
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".")) {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, what := range wallClock(fset, f) {
			t.Errorf("%s:%s", strings.TrimPrefix(path, root+"/"), what)
		}
		return nil
	})
	must.OK(t, err)
}
