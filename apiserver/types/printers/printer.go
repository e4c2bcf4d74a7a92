package printers

import (
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/tree"
	"k8s.io/client-go/util/jsonpath"
)

// Printer computes the cells of a resource's table. It is immutable and safe
// for concurrent use.
type Printer struct {
	columns []kinds.Column
	cells   []cell
}

// cell computes one cell.
type cell func(obj map[string]any) (any, error)

// memoKey is where a resource's printer is kept among its memos.
type memoKey struct{}

// Of returns the printer of a resource's columns (Name and Age if it has none), or says
// which column cannot be compiled. It is compiled on first use and kept with the
// resource: there is one for each resource, so what it has printed can be told by it.
func Of(r *kinds.Resource) (*Printer, error) {
	compile, ok := r.Memo().Load(memoKey{})
	if !ok {
		compile, _ = r.Memo().LoadOrStore(memoKey{}, sync.OnceValues(func() (*Printer, error) {
			p, err := newPrinter(r.TableColumns())
			if err != nil {
				return nil, fmt.Errorf("columns of %s: %w", r.GroupResource(), err)
			}
			return p, nil
		}))
	}
	return compile.(func() (*Printer, error))()
}

func newPrinter(columns []kinds.Column) (*Printer, error) {
	p := &Printer{columns: columns, cells: make([]cell, len(columns))}
	for i := range columns {
		c, err := compileCell(&columns[i])
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", columns[i].Name, err)
		}
		p.cells[i] = c
	}
	return p, nil
}

// Columns are the columns of each row, in order. Not to be changed.
func (p *Printer) Columns() []kinds.Column { return p.columns }

// Row returns the cells of an object: strings, int64, float64, bool, Ageing or
// nil. An error names the column.
func (p *Printer) Row(obj map[string]any) ([]any, error) {
	row := make([]any, len(p.cells))
	for i, c := range p.cells {
		v, err := c(obj)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", p.columns[i].Name, err)
		}
		row[i] = v
	}
	return row, nil
}

var (
	plainPath = regexp.MustCompile(`^(\.[A-Za-z_][A-Za-z0-9_-]*)+$`)
	// plainCall is a function of one path, optionally with one text constant.
	plainCall = regexp.MustCompile(`^([A-Za-z]+)\(self((?:\.[A-Za-z_][A-Za-z0-9_]*)*)\)$`)
)

func compileCell(c *kinds.Column) (cell, error) {
	if c.JSONPath != "" {
		return compilePath(c)
	}
	if m := plainCall.FindStringSubmatch(c.CEL); m != nil && functions[m[1]] != nil {
		f, path := functions[m[1]], splitPath(m[2])
		return func(obj map[string]any) (any, error) { return f(tree.Field(obj, path...)), nil }, nil
	}
	return compileCEL(c.CEL)
}

func splitPath(path string) []string {
	if path == "" {
		return nil
	}
	return strings.Split(strings.TrimPrefix(path, "."), ".")
}

// compilePath makes a cell of a JSONPath. Plain dotted paths, nearly all of
// them, are walked directly.
func compilePath(c *kinds.Column) (cell, error) {
	fallback, date := c.Default, c.Type == "date"
	finish := func(v any) any {
		switch {
		case c.Typed:
			return typedCell(c.Type, v)
		case v == nil:
			return fallback
		case date:
			return age(v)
		}
		return v
	}
	if plainPath.MatchString(c.JSONPath) {
		path := splitPath(c.JSONPath)
		return func(obj map[string]any) (any, error) { return finish(tree.Field(obj, path...)), nil }, nil
	}
	template := jsonpath.New(c.Name).AllowMissingKeys(true)
	if err := template.Parse("{" + c.JSONPath + "}"); err != nil {
		return nil, fmt.Errorf("JSONPath %s: %w", c.JSONPath, err)
	}
	return func(obj map[string]any) (any, error) {
		results, err := template.FindResults(obj)
		if err != nil || len(results) == 0 || len(results[0]) == 0 {
			return fallback, nil
		}
		return finish(results[0][0].Interface()), nil
	}, nil
}

// compileCEL makes a cell of an expression.
func compileCEL(expression string) (cell, error) {
	env, err := environment()
	if err != nil {
		return nil, err
	}
	ast, issues := env.Compile(expression)
	if issues.Err() != nil {
		return nil, fmt.Errorf("expression %s: %w", expression, issues.Err())
	}
	program, err := env.Program(ast, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(columnCost))
	if err != nil {
		return nil, fmt.Errorf("expression %s: %w", expression, err)
	}
	return func(obj map[string]any) (any, error) {
		v, _, err := program.Eval(map[string]any{"self": obj})
		if err != nil {
			return nil, err
		}
		return native(v)
	}, nil
}

// columnCost bounds what one cell may cost, in CEL's units.
const columnCost = 1_000_000
