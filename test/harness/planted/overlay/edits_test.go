package main

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/planted"
)

// TestBugsApply applies all edits to today's sources. It fails when a change of the product
// takes away the text that an edit looks for, or the names that it uses.
func TestBugsApply(t *testing.T) {
	root, err := checkout()
	must.OK(t, err)
	bugs, err := load()
	must.OK(t, err)
	files, err := apply(bugs, func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(root, name)) })
	must.OK(t, err)
	typeCheck(t, root, files)
}

// typeCheck checks the packages that have new files. What they import is compiled without
// the bugs: no bug exports a name.
func typeCheck(t *testing.T, root string, files map[string][]byte) {
	packages := map[string]bool{}
	for name := range files {
		packages["./"+path.Dir(name)] = true
	}
	args := append([]string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles"}, slices.Sorted(maps.Keys(packages))...)
	list := exec.CommandContext(t.Context(), "go", args...)
	list.Dir, list.Stderr = root, os.Stderr
	out, err := list.Output()
	must.OK(t, err)
	type pkg struct {
		ImportPath, Dir, Export string
		GoFiles                 []string
	}
	all := map[string]pkg{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = p
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(all[path].Export) })
	for dir := range packages {
		dir = path.Clean(dir)
		p := all[module+"/"+dir]
		sources := map[string]any{}
		for _, name := range p.GoFiles {
			sources[name] = nil // ParseFile reads the file
		}
		for name, content := range files {
			if path.Dir(name) == dir {
				sources[path.Base(name)] = content
			}
		}
		var parsed []*ast.File
		for _, name := range slices.Sorted(maps.Keys(sources)) {
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), sources[name], parser.SkipObjectResolution)
			if err != nil {
				t.Fatalf("with the bugs planted: %v", err)
			}
			parsed = append(parsed, f)
		}
		conf := types.Config{Importer: imports, Error: func(err error) { t.Errorf("with the bugs planted: %v", err) }}
		_, _ = conf.Check(p.ImportPath, fset, parsed, nil) // Error has the errors
	}
}

// TestEachBugIsAskedFor finds bugs whose edits ask for no bug, or for another one: nobody
// could switch them on.
func TestEachBugIsAskedFor(t *testing.T) {
	bugs, err := load()
	must.OK(t, err)
	if len(bugs) != len(planted.All())+1 || len(bugs) < 29 {
		t.Errorf("%d files for %d bugs and what every overlay has", len(bugs), len(planted.All()))
	}
	asked := regexp.MustCompile(`planted\.On\("([^"]*)"\)`)
	for _, b := range bugs[1:] {
		text := strings.Join(slices.Collect(maps.Values(b.added)), "")
		for _, e := range b.edits {
			text += e.new
		}
		found := asked.FindAllStringSubmatch(text, -1)
		if len(found) == 0 {
			t.Errorf("%s: no edit asks whether it is planted", b.name)
		}
		for _, f := range found {
			if f[1] != b.name {
				t.Errorf("%s asks for %q", b.name, f[1])
			}
		}
	}
}

const source = "package p\n\nfunc f() int {\n\treturn 1\n}\n\nfunc g() int {\n\treturn 1\n}\n"

func TestApply(t *testing.T) {
	for name, x := range map[string]struct {
		edits []string // of one bug each, behind its description
		want  string   // what p.go is then; or the error
	}{
		"replace": {
			[]string{"--- p.go\n@@\n func f() int {\n-\treturn 1\n+\treturn 2\n }\n"},
			strings.Replace(source, "1", "2", 1),
		},
		"insert at one place": {
			[]string{"--- p.go\n@@\n func f() int {\n+\t// a\n", "--- p.go\n@@\n func f() int {\n+\t// b\n"},
			strings.Replace(source, "{\n", "{\n\t// a\n\t// b\n", 1),
		},
		"import": {
			[]string{"--- p.go\n@@\n+var _ = planted.On(\"a\")\n func f() int {\n"},
			strings.Replace(strings.Replace(source, "func f", "var _ = planted.On(\"a\")\nfunc f", 1),
				"package p\n", "package p; import \"github.com/quorate/quorate/test/harness/planted\"\n", 1),
		},
		"gone":            {[]string{"--- p.go\n@@\n-\treturn 3\n"}, "planted bug a: p.go has the old text of an edit 0 times, not once"},
		"part of a line":  {[]string{"--- p.go\n@@\n-return 1\n"}, "planted bug a: p.go has the old text of an edit 0 times, not once"},
		"twice":           {[]string{"--- p.go\n@@\n-\treturn 1\n"}, "planted bug a: p.go has the old text of an edit 2 times, not once"},
		"no place":        {[]string{"--- p.go\n@@\n+\treturn 1\n"}, "planted bug a: an edit of p.go has no line that says where"},
		"no file":         {[]string{"--- q.go\n@@\n-\treturn 1\n"}, "planted bug a: file does not exist"},
		"file is there":   {[]string{"--- p.go\n@@\n func f() int {\n+\n+++ p.go\n+package p\n"}, "planted bug a: the file to add, p.go, is there"},
		"one line twice":  {[]string{"--- p.go\n@@\n-func f() int {\n+a\n", "--- p.go\n@@\n-func f() int {\n+b\n"}, "planted bugs a and b change the same lines of p.go"},
		"no edit":         {[]string{""}, "a: no description, or no edit"},
		"before an edit":  {[]string{"--- p.go\n-func f() int {\n"}, "belongs to no edit"},
		"stripped blank":  {[]string{"--- p.go\n@@\n\n-func f() int {\n"}, "an edit is lines that stay"},
		"two edits in it": {[]string{"--- p.go\n@@\n-func f() int {\n \treturn 1\n-}\n"}, "an edit is lines that stay"},
	} {
		t.Run(name, func(t *testing.T) {
			var bugs []bug
			var failed error
			for i, edits := range x.edits {
				b, err := parse(string(rune('a'+i)), "It is wrong.\n\n"+edits)
				bugs, failed = append(bugs, b), errors.Join(failed, err)
			}
			got := ""
			if failed == nil {
				var files map[string][]byte
				files, failed = apply(bugs, func(name string) ([]byte, error) {
					if name != "p.go" {
						return nil, fs.ErrNotExist
					}
					return []byte(source), nil
				})
				got = string(files["p.go"])
			}
			if failed != nil {
				got = failed.Error()
			}
			if got != x.want && (failed == nil || !strings.Contains(got, x.want)) {
				t.Errorf("%s\nwant\n%s", got, x.want)
			}
		})
	}
}
