package plugins

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/facts"
)

// upstreamPlugin is a plugin of kube-apiserver, and whether it is on by default.
type upstreamPlugin struct {
	name string
	on   bool
}

// upstreamPlugins reads AllOrderedPlugins and the defaults in the sources of kube-apiserver. Importing them
// would link etcd's client.
func upstreamPlugins(t *testing.T) (all []upstreamPlugin) {
	t.Helper()
	modules := map[string]string{}
	for _, module := range []string{"k8s.io/kubernetes", "k8s.io/apiserver"} {
		modules[module] = facts.Sources(t, module)
	}
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(modules["k8s.io/kubernetes"], "pkg/kubeapiserver/options/plugins.go"), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	dirs := map[string]string{} // of the packages that it imports
	for _, i := range f.Imports {
		imported, _ := strconv.Unquote(i.Path.Value)
		name := path.Base(imported)
		if i.Name != nil {
			name = i.Name.Name
		}
		for module, dir := range modules {
			if below, ok := strings.CutPrefix(imported, module+"/"); ok {
				dirs[name] = filepath.Join(dir, below)
			}
		}
	}
	on := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			if n.Names[0].Name == "AllOrderedPlugins" {
				for _, e := range n.Values[0].(*ast.CompositeLit).Elts {
					all = append(all, upstreamPlugin{name: pluginName(t, dirs, e)})
				}
			}
		case *ast.AssignStmt:
			if name, ok := n.Lhs[0].(*ast.Ident); ok && name.Name == "defaultOnPlugins" {
				for _, e := range n.Rhs[0].(*ast.CallExpr).Args {
					on[pluginName(t, dirs, e)] = true
				}
			}
		}
		return true
	})
	if len(all) == 0 || len(on) == 0 {
		t.Fatalf("%d plugins and %d that are on were found: upstream's file has another form", len(all), len(on))
	}
	for i, p := range all {
		all[i].on = on[p.name]
	}
	return all
}

// pluginName is the value of an expression such as gc.PluginName.
func pluginName(t *testing.T, dirs map[string]string, e ast.Expr) (name string) {
	t.Helper()
	dir := dirs[e.(*ast.SelectorExpr).X.(*ast.Ident).Name]
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok && v.Names[0].Name == "PluginName" {
				name, _ = strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			}
			return true
		})
	}
	if name == "" {
		t.Fatalf("%s has no PluginName", dir)
	}
	return name
}
