package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

// forOthers are packages whose exported names need not be used here: who uses them.
var forOthers = map[string]string{
	"node":                          "programs that embed a node",
	"quoratetest":                   "tests of other programs",
	"raftstore/memstore":            "tests of what is built on the store",
	"raftstore/storetest":           "tests of stores",
	"apiserver/objects/objectstest": "tests of objects, of kinds and of controllers",
	"bench/report/reporttest":       "tests of reports",
	"internal/cputime":              "benchmarks",
	"internal/facts":                "tests of what upstream publishes",
	"internal/memdir":               "tests of databases",
	"internal/must":                 "tests",
	"internal/pipes":                "tests of transports",
	"internal/standins":             "tests of connections",
	"test":                          "tests",
}

// listed is what go list says of a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// listPackages lists the packages of this module and all that they import, with their
// export data.
func listPackages(t *testing.T) map[string]*listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles", module+"/...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	must.OK(t, err)
	all := map[string]*listed{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = &p
	}
}

// exports is what the files of this module declare for others, and use.
type exports struct {
	fset     *token.FileSet
	importer types.Importer
	declared map[string]types.Object // by nameOf
	used     map[string]bool
	// methods of all interfaces there are, by name: what has one of them may be called
	// through it.
	methods map[string][]*types.Func
}

// nameOf names a function, type, variable, constant or method for all packages alike;
// "" is another thing, or not of this module.
func nameOf(o types.Object) string {
	if o == nil || o.Pkg() == nil || !o.Exported() {
		return ""
	}
	path, ours := strings.CutPrefix(o.Pkg().Path(), module+"/")
	if !ours {
		return ""
	}
	if f, ok := o.(*types.Func); ok {
		f = f.Origin()
		if recv := f.Signature().Recv(); recv != nil {
			of := recv.Type()
			if p, ok := of.(*types.Pointer); ok {
				of = p.Elem()
			}
			named, ok := of.(*types.Named)
			if !ok || !named.Obj().Exported() || types.IsInterface(named) {
				return "" // an interface's methods are there to be implemented
			}
			return path + "." + named.Obj().Name() + "." + f.Name()
		}
	}
	if o.Parent() != o.Pkg().Scope() {
		return "" // a field, or something local
	}
	return path + "." + o.Name()
}

// wanted reports whether an interface has a method of this name and type. Types of this
// module are another one in each package that is read, so they are compared by name.
func (x *exports) wanted(f *types.Func) bool {
	return slices.ContainsFunc(x.methods[f.Name()], func(m *types.Func) bool {
		return types.Identical(m.Signature(), f.Signature()) || inWords(m) == inWords(f)
	})
}

// inWords is a method's type without the names of its parameters.
func inWords(f *types.Func) string {
	unnamed := func(t *types.Tuple) *types.Tuple {
		var vars []*types.Var
		for v := range t.Variables() {
			vars = append(vars, types.NewParam(token.NoPos, nil, "", v.Type()))
		}
		return types.NewTuple(vars...)
	}
	s := f.Signature()
	return types.TypeString(types.NewSignatureType(nil, nil, nil, unnamed(s.Params()), unnamed(s.Results()), s.Variadic()), (*types.Package).Path)
}

func (x *exports) interfaceOf(t types.Type) {
	if i, ok := t.Underlying().(*types.Interface); ok {
		for m := range i.Methods() {
			x.methods[m.Name()] = append(x.methods[m.Name()], m)
		}
	}
}

// read type-checks a package of this module.
func (x *exports) read(p *listed) error {
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(x.fset, filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	info := &types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{}}
	conf := types.Config{Importer: x.importer}
	pkg, err := conf.Check(p.ImportPath, x.fset, files, info)
	if err != nil {
		return fmt.Errorf("%s: %w", p.ImportPath, err)
	}
	hooks := map[token.Pos]bool{}
	for _, f := range files {
		for _, d := range f.Decls {
			if d, ok := d.(*ast.FuncDecl); ok && strings.Contains(d.Doc.Text(), "or tests") {
				hooks[d.Name.Pos()] = true
			}
		}
	}
	for id, o := range info.Defs {
		if name := nameOf(o); name != "" && !hooks[id.Pos()] && !strings.HasSuffix(x.fset.File(id.Pos()).Name(), ".pb.go") {
			x.declared[name] = o
		}
	}
	room := rooms[strings.TrimPrefix(p.ImportPath, module+"/")]
	for _, o := range info.Uses {
		if name := nameOf(o); name != "" && !room.tests {
			x.used[name] = true
		}
	}
	for e, tv := range info.Types {
		if _, ok := e.(*ast.InterfaceType); ok {
			x.interfaceOf(tv.Type)
		}
	}
	for _, imported := range append(pkg.Imports(), pkg) {
		for _, n := range imported.Scope().Names() {
			if o, ok := imported.Scope().Lookup(n).(*types.TypeName); ok {
				x.interfaceOf(o.Type())
			}
		}
	}
	return nil
}

// TestEveryExportIsUsed finds exported functions, types, constants, variables and methods
// that no package's own files use: who reads them must think that somebody does. What
// only tests use, or packages for tests, counts as unused, unless its comment says that it
// is for tests. Methods that an interface wants are used by who has the interface.
func TestEveryExportIsUsed(t *testing.T) {
	all := listPackages(t)
	x := &exports{fset: token.NewFileSet(), declared: map[string]types.Object{}, used: map[string]bool{}, methods: map[string][]*types.Func{}}
	x.importer = importer.ForCompiler(x.fset, "gc", func(path string) (io.ReadCloser, error) {
		p := all[path]
		if p == nil {
			return nil, fmt.Errorf("no export data for %s", path)
		}
		return os.Open(p.Export)
	})
	seen := map[string]bool{}
	for _, path := range slices.Sorted(maps.Keys(all)) {
		name, ours := strings.CutPrefix(path, module+"/")
		if !ours {
			continue
		}
		seen[name] = true
		must.OK(t, x.read(all[path]))
	}
	for _, name := range slices.Sorted(maps.Keys(x.declared)) {
		o := x.declared[name]
		if f, method := o.(*types.Func); x.used[name] || method && f.Signature().Recv() != nil && (ofErrors[f.Name()] || x.wanted(f)) {
			continue
		}
		pkg := strings.TrimPrefix(o.Pkg().Path(), module+"/")
		if forOthers[pkg] == "" && !strings.HasPrefix(pkg, "test/") {
			t.Errorf("%s: nobody uses %s: take it out, or say in its comment that it is for tests", x.fset.Position(o.Pos()), name)
		}
	}
	for name := range forOthers {
		if !seen[name] {
			t.Errorf("%s does not exist any more: take it out of forOthers", name)
		}
	}
}

// ofErrors are the methods that package errors looks for.
var ofErrors = map[string]bool{"Unwrap": true, "Is": true, "As": true}
