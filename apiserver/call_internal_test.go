package apiserver

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

const (
	// mostCallMethods is how many methods call has at most. What does not need the request is a
	// method of objects.Op, of a small type that holds what it needs, or a function.
	mostCallMethods = 60
	// mostServerExports is how many methods of Server other packages may call.
	mostServerExports = 5
)

// TestCallStaysSmall counts what the types that everything goes through can do.
func TestCallStaysSmall(t *testing.T) {
	var methods, exports []string
	for _, f := range sources(t, func(name string) bool { return !strings.HasSuffix(name, "_test.go") }) {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			switch receiver(fn) {
			case "call":
				methods = append(methods, fn.Name.Name)
			case "Server":
				if fn.Name.IsExported() {
					exports = append(exports, fn.Name.Name)
				}
			}
		}
	}
	if n := len(methods); n == 0 || n > mostCallMethods {
		t.Errorf("call has %d methods, want at most %d: %s", n, mostCallMethods, methods)
	}
	if n := len(exports); n == 0 || n > mostServerExports {
		t.Errorf("Server exports %d methods, want at most %d: %s", n, mostServerExports, exports)
	}
}

// TestCallHasRequest: a call is made where a request comes in, and nowhere else, not even
// in tests. So none is without a request.
func TestCallHasRequest(t *testing.T) {
	var made []string
	for name, f := range sources(t, func(string) bool { return true }) {
		ast.Inspect(f, func(n ast.Node) bool {
			var of ast.Expr
			switch n := n.(type) {
			case *ast.CompositeLit:
				of = n.Type
			case *ast.ValueSpec:
				of = n.Type
			case *ast.CallExpr:
				if fn, ok := n.Fun.(*ast.Ident); ok && fn.Name == "new" && len(n.Args) == 1 {
					of = n.Args[0]
				}
			}
			if id, ok := of.(*ast.Ident); ok && id.Name == "call" {
				made = append(made, name)
			}
			return true
		})
	}
	if len(made) != 1 || made[0] != "handler.go" {
		t.Errorf("calls are made in %s, want once in handler.go", made)
	}
}

// sources are the package's files, parsed, by their names.
func sources(t *testing.T, which func(name string) bool) map[string]*ast.File {
	t.Helper()
	names, err := filepath.Glob("*.go")
	must.OK(t, err)
	out := map[string]*ast.File{}
	for _, name := range names {
		if !which(name) {
			continue
		}
		if out[name], err = parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// receiver is the type that a function is a method of, or "".
func receiver(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return ""
	}
	of := fn.Recv.List[0].Type
	if p, ok := of.(*ast.StarExpr); ok {
		of = p.X
	}
	if id, ok := of.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}
