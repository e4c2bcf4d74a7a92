package objectstest

import (
	"bufio"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/raftstore/view"
)

// TestMistakes: what a case says that is not so fails it, with the line and what is so.
func TestMistakes(t *testing.T) {
	const made = `create configmaps default/ ?fieldManager=m {"metadata":{"name":"a"},"data":{"k":"v"}}` + "\n"
	for _, c := range []struct{ name, lines, want string }{
		{"another outcome", made + ": changed", "line:2: : changed\ngot  created\nwant changed"},
		{"another value", made + `= data {"k":"w"}`, "line:2: = data {\"k\":\"w\"}\ngot  {\"k\":\"v\"}\nwant {\"k\":\"w\"}"},
		{"a field that is there", made + "= data", "line:2: = data\ngot  {\"k\":\"v\"}\nwant "},
		{"a field that is not there", made + "= spec 1", "line:2: = spec 1\ngot  \nwant 1"},
		{"another entry of managedFields", made + "% m Update v1: .data.l", "line:2: % m Update v1: .data.l\nmanagedFields are [\"m Update v1: .data.k\"]"},
		{"another warning", made + "w unknown", "line:2: w unknown\nthe warnings are []"},
		{"other rows", made + "rows configmaps default/b", "line:2: rows configmaps default/b\ngot  default/a\nwant default/b"},
		{"not refused", made + "< 409", "line:2: < 409\nit was not refused"},
		{"refused", made + made + ": created", "line:3: : created\nthe operation before failed: configmaps \"a\" already exists"},
		{"refused at the end", made + made, "line:2: the operation before failed: configmaps \"a\" already exists"},
		{"refused with another code", made + made + "< 404", "line:3: < 404\ngot  409 configmaps \"a\" already exists"},
		{"refused with another text", made + made + "< 409 pods", "line:3: < 409 pods\ngot  409 configmaps \"a\" already exists"},
		{"a warning that nothing says", `create configmaps default/ {"metadata":{"name":"a"},"x":1}` + "\n" + made, "line:2: " + strings.TrimSpace(made) +
			"\nthe operation before warned: [\"299 - \\\"unknown field \\\\\\\"x\\\\\\\"\\\"\"]"},
		{"refused with a text that goes on", made + made + "< 409 configmaps", "line:3: < 409 configmaps\ngot  409 configmaps \"a\" already exists"},
		{"another object", "has configmaps {metadata: {name: b, namespace: default}}\nget configmaps default/b\n= {kind: ConfigMap}", "line:3: = {kind: ConfigMap}\ngot  {\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"b\",\"namespace\":\"default\"}}\nwant {\"kind\":\"ConfigMap\"}"},
		{"an object that is YAML no more", "has configmaps {", "line:1: has configmaps {\nyaml: line 1: did not find expected node content"},
		{"a plugin that changes what it must replace", "admit create pods {spec: {a: b}}", "line:1: admit create pods {spec: {a: b}}\nbelow its first level the object was changed, and not replaced"},
		{"a plugin that leaves what no decoder makes", "admit create pods {kind: Pod}", "line:1: admit create pods {kind: Pod}\nthe object has values that no decoder makes: map[string]interface {}{\"kind\":1}"},
		{"a write of no kind", "admit create maps {}", "line:1: admit create maps {}\nthere is no resource maps"},
		{"a plugin that refuses", "admit delete pods {}\n: unchanged", "line:2: : unchanged\nthe operation before failed: no"},
		{"no such word", "make configmaps default/ {}", "line:1: make configmaps default/ {}\nwhat is \"make\"?"},
		{"no such kind", "get maps default/a", "line:1: get maps default/a\nthere is no resource maps"},
		{"no such version", "get configmaps@v2 default/a", "line:1: get configmaps@v2 default/a\nthere is no resource configmaps@v2"},
		{"no such subresource", "get configmaps/status default/a", "line:1: get configmaps/status default/a\nconfigmaps has no subresource status"},
		{"a create with a name", "create configmaps default/a {}", "line:1: create configmaps default/a {}\na path has a name, but that of a create, a list, a clear or events"},
		{"a get without one", "get configmaps default/", "line:1: get configmaps default/\na path has a name, but that of a create, a list, a clear or events"},
		{"no such variable", "get configmaps default/${a}", "line:1: get configmaps default/${a}\na variable is not set"},
		{"a variable of nothing", made + "$a spec", "line:2: $a spec\nthere is no spec"},
		{"nobody", "as", "line:1: as\nas whom?"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := NewCase(t, Options{Plugin: func(view.Store) admission.Plugin { return wrong{} }}).play(c.lines, "line", 0)
			if err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

// wrong is a plugin that does what none may.
type wrong struct{}

func (wrong) Handles(*admission.Attributes) bool { return true }

func (wrong) Admit(_ context.Context, a *admission.Attributes) error {
	switch spec := tree.As(a.Object["spec"]); {
	case a.Operation == admission.Delete:
		return errors.New("no")
	case spec != nil:
		spec["a"] = "c"
	default:
		a.Object["kind"] = 1
	}
	return nil
}

// TestEveryWordIsUsed: the language has no word that no case says.
func TestEveryWordIsUsed(t *testing.T) {
	unused := map[string]bool{"$": true}
	for word := range statements {
		unused[word] = true
	}
	for word := range expectations {
		unused[word] = true
	}
	for word := range verbs {
		unused[word] = true
	}
	for word := range modifiers {
		unused[word] = true
	}
	var files []string
	for _, pattern := range []string{"../testdata/operations/*.txt", "../builtin/testdata/operations/*.txt", "../../admission/plugins/testdata/decisions/*/*.txt"} {
		of, err := filepath.Glob(pattern)
		if err != nil || len(of) == 0 {
			t.Fatalf("no operations in %s: %v", pattern, err)
		}
		files = append(files, of...)
	}
	for _, name := range files {
		f, err := os.Open(name)
		must.OK(t, err)
		lines := bufio.NewScanner(f)
		for lines.Buffer(nil, 1<<20); lines.Scan(); {
			word, rest, _ := strings.Cut(lines.Text(), " ")
			delete(unused, word)
			if modifiers[word] != nil {
				word, _, _ = strings.Cut(rest, " ")
				delete(unused, word)
			}
			if strings.HasPrefix(word, "$") {
				delete(unused, "$")
			}
		}
		if err := lines.Err(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		f.Close()
	}
	for word := range unused {
		t.Errorf("no case says %q", word)
	}
}
