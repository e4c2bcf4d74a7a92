package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// replacements has the operators that take the place of an operator, per token.
var replacements = map[token.Token][]token.Token{
	token.LSS: {token.LEQ, token.GEQ},
	token.LEQ: {token.LSS, token.GTR},
	token.GTR: {token.GEQ, token.LEQ},
	token.GEQ: {token.GTR, token.LSS},
	token.EQL: {token.NEQ},
	token.NEQ: {token.EQL},

	token.ADD: {token.SUB},
	token.SUB: {token.ADD},
	token.MUL: {token.QUO},
	token.QUO: {token.MUL},
	token.REM: {token.MUL},
	token.INC: {token.DEC},
	token.DEC: {token.INC},

	token.ADD_ASSIGN: {token.SUB_ASSIGN},
	token.SUB_ASSIGN: {token.ADD_ASSIGN},

	token.LAND: {token.LOR},
	token.LOR:  {token.LAND},

	token.BREAK:    {token.CONTINUE},
	token.CONTINUE: {token.BREAK},
}

// A mutant is one changed operator.
type mutant struct {
	file     string // absolute
	offset   int    // of the operator in the file, in bytes
	old, new string
	line     int
	text     string // the source line, without the space around it
}

func (m mutant) String() string {
	return fmt.Sprintf("%s:%d: %s to %s: %s", m.file, m.line, m.old, m.new, m.text)
}

// mutate returns the source of the file with the mutant in it.
func (m mutant) mutate(source []byte) []byte {
	out := append([]byte(nil), source[:m.offset]...)
	out = append(out, m.new...)
	return append(out, source[m.offset+len(m.old):]...)
}

// find returns the mutants of a file in the order of its text. Generated files have none.
func find(path string) ([]mutant, error) {
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(file) {
		return nil, nil
	}
	lines := strings.Split(string(source), "\n")
	var all []mutant
	add := func(pos token.Pos, old token.Token, news ...token.Token) {
		at := files.Position(pos)
		for _, n := range news {
			all = append(all, mutant{
				file: path, offset: at.Offset, old: old.String(), new: n.String(),
				line: at.Line, text: strings.TrimSpace(lines[at.Line-1]),
			})
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			// Strings are added, and nothing else can be done with them.
			if n.Op == token.ADD && (isString(n.X) || isString(n.Y)) {
				return true
			}
			add(n.OpPos, n.Op, replacements[n.Op]...)
		case *ast.UnaryExpr:
			if n.Op == token.SUB {
				add(n.OpPos, n.Op, token.ADD)
			}
		case *ast.IncDecStmt:
			add(n.TokPos, n.Tok, replacements[n.Tok]...)
		case *ast.AssignStmt:
			add(n.TokPos, n.Tok, replacements[n.Tok]...)
		case *ast.BranchStmt:
			if n.Label == nil {
				add(n.TokPos, n.Tok, replacements[n.Tok]...)
			}
		}
		return true
	})
	return all, nil
}

// isString reports whether an operand is written as a string, or adds to one.
func isString(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Kind == token.STRING
	case *ast.BinaryExpr:
		return e.Op == token.ADD && (isString(e.X) || isString(e.Y))
	}
	return false
}

// findAll returns the mutants of the files of a directory.
func findAll(dir string, names []string) ([]mutant, error) {
	var all []mutant
	for _, name := range names {
		some, err := find(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}
