package objectstest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/wire/status"
	"github.com/quorate/quorate/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Run plays all cases of the files that a pattern names, each as a test with a store of its own.
func Run(t *testing.T, pattern string, o Options) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no operations in %s: %v", pattern, err)
	}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		blocks := strings.Split("\n"+string(raw), "\n== ")
		at := 1 + strings.Count(blocks[0], "\n")
		for _, block := range blocks[1:] {
			title, lines, _ := strings.Cut(block, "\n")
			begin := at
			at += 1 + strings.Count(block, "\n")
			t.Run(strings.TrimSuffix(filepath.Base(f), ".txt")+"/"+title, func(t *testing.T) {
				c := NewCase(t, o)
				if err := c.play(blocks[0], filepath.Base(f), -1); err != nil {
					t.Fatal(err)
				}
				if err := c.play(lines, filepath.Base(f), begin); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// Case is a store of objects, who asks it, and what came of the last operation. For one goroutine.
type Case struct {
	*Store
	t       testing.TB
	options Options
	user    *auth.User
	vars    map[string]string

	outcome  string
	object   tree.Object
	old      tree.Object // as it was before the write that a plugin is asked about
	warnings []string    // that no line has named yet
	fields   []string    // entries of managedFields, too
	err      error
	expected bool           // the error is one that the case expects, or there is none
	before   proto.Revision // what was there before the operation
}

// NewCase returns a case with a store of its own, which has the namespace default.
func NewCase(t testing.TB, o Options) *Case {
	t.Helper()
	c := &Case{
		Store: NewStore(t, o), t: t, options: o, expected: true, vars: map[string]string{"large": strings.Repeat("x", large), "many": manyFields(), "resources": manyResources()},
		user: &auth.User{Name: "admin", Groups: []string{auth.Masters, auth.Authenticated}},
	}
	c.Play(`create namespaces / {"metadata":{"name":"default"}}`)
	return c
}

// Play plays lines of a case. It fails the test at the first that does not hold.
func (c *Case) Play(lines string) {
	c.t.Helper()
	if err := c.play(lines, "line", 0); err != nil {
		c.t.Fatal(err)
	}
}

// play plays lines, the first of which is the one behind at in a file.
func (c *Case) play(lines, file string, at int) error {
	all := strings.Split(lines, "\n")
	for i, line := range all {
		if line == "" || line == "#" || strings.HasPrefix(line, "# ") || indented(line) {
			continue
		}
		for _, more := range all[i+1:] {
			if !indented(more) {
				break
			}
			line += " " + strings.TrimSpace(more)
		}
		if err := c.line(line); err != nil {
			return fmt.Errorf("%s:%d: %.200s\n%w", file, at+i+1, line, err)
		}
	}
	if err := c.settled(); err != nil {
		return fmt.Errorf("%s:%d: %w", file, at+strings.Count(strings.TrimRight(lines, "\n"), "\n")+1, err)
	}
	return nil
}

// indented reports whether a line goes on with the one before.
func indented(line string) bool {
	return strings.HasPrefix(line, "  ") || strings.HasPrefix(line, "\t")
}

// settled says what came of the last operation and should not have.
func (c *Case) settled() error {
	switch {
	case !c.expected:
		return fmt.Errorf("the operation before failed: %w", c.err)
	case len(c.warnings) > 0:
		return fmt.Errorf("the operation before warned: %q", c.warnings)
	}
	return nil
}

// expectations are the words that say what must have come of an operation.
var expectations = map[string]func(c *Case, rest string) error{
	":": func(c *Case, want string) error { return same(c.outcome, want) },
	"=": func(c *Case, rest string) error {
		if strings.HasPrefix(rest, "{") {
			want, err := parsed(rest)
			if err != nil {
				return err
			}
			return same(inJSON(c.object), inJSON(want))
		}
		path, want, _ := strings.Cut(rest, " ")
		got, err := c.field(path)
		if err != nil {
			return err
		}
		return same(got, want)
	},
	"<":    (*Case).refused,
	"%":    (*Case).managed,
	"w":    (*Case).warned,
	"rows": (*Case).rows,
}

// statements are the words of lines that are no operations.
var statements = map[string]func(c *Case, rest string) error{
	"as":    (*Case).as,
	"has":   (*Case).has,
	"admit": (*Case).admit,
	"old": func(c *Case, text string) (err error) {
		c.old, err = parsed(text)
		return err
	},
}

func (c *Case) as(rest string) error {
	names := strings.Fields(rest)
	if len(names) == 0 {
		return errors.New("as whom?")
	}
	c.user = &auth.User{Name: names[0], UID: "uid of " + names[0], Groups: append(names[1:], auth.Authenticated)}
	return nil
}

func (c *Case) line(line string) error {
	for name, value := range c.vars {
		line = strings.ReplaceAll(line, "${"+name+"}", value)
	}
	if strings.Contains(line, "${") {
		return errors.New("a variable is not set")
	}
	word, rest, _ := strings.Cut(line, " ")
	if holds := expectations[word]; holds != nil {
		if !c.expected && word != "<" {
			return c.settled()
		}
		return holds(c, rest)
	}
	if name, ok := strings.CutPrefix(word, "$"); ok {
		value, err := c.field(rest)
		if err == nil && value == "" {
			err = fmt.Errorf("there is no %s", rest)
		}
		c.vars[name] = strings.Trim(value, `"`)
		return err
	}
	if err := c.settled(); err != nil {
		return err
	}
	if do := statements[word]; do != nil {
		return do(c, rest)
	}
	return c.do(line)
}

func same(got, want string) error {
	if got != want {
		return fmt.Errorf("got  %s\nwant %s", got, want)
	}
	return nil
}

// refused compares the error of the last operation.
func (c *Case) refused(want string) error {
	if c.err == nil {
		return errors.New("it was not refused")
	}
	c.expected = true
	code, text, _ := strings.Cut(want, " ")
	start, goesOn := strings.CutSuffix(text, "...")
	got := status.From(c.err)
	if fmt.Sprint(got.Code) != code || !strings.HasPrefix(got.Message, start) || text != "" && !goesOn && got.Message != text {
		return fmt.Errorf("got  %d %s", got.Code, got.Message)
	}
	return nil
}

// field is a field of what came of the last operation, as JSON; "" if it is not there.
func (c *Case) field(path string) (string, error) {
	v := tree.Lookup(c.object, path)
	if v == nil {
		return "", nil
	}
	b, err := json.Marshal(v)
	return string(b), err
}

func (c *Case) warned(text string) error {
	i := slices.IndexFunc(c.warnings, func(w string) bool { return strings.Contains(w, text) })
	if i < 0 {
		return fmt.Errorf("the warnings are %q", c.warnings)
	}
	c.warnings = slices.Delete(slices.Clone(c.warnings), i, i+1)
	return nil
}

func (c *Case) rows(rest string) error {
	table, want, _ := strings.Cut(rest, " ")
	versions, err := c.Range(table, "")
	if err != nil {
		return err
	}
	var keys []string
	for _, v := range versions {
		keys = append(keys, v.Key)
	}
	return same(strings.Join(keys, " "), want)
}

func (c *Case) managed(want string) error {
	i := slices.Index(c.fields, want)
	if i < 0 {
		return fmt.Errorf("managedFields are %q", c.fields)
	}
	c.fields = slices.Delete(c.fields, i, i+1)
	return nil
}

// managedFields are the entries of an object's managedFields as lines.
func managedFields(obj tree.Object) (lines []string, err error) {
	list, _ := tree.Lookup(obj, "metadata.managedFields").([]any)
	raw, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	var entries []metav1.ManagedFieldsEntry
	if err := json.Unmarshal(raw, &entries); err != nil {
		return nil, err
	}
	for _, e := range entries {
		set := fieldpath.NewSet()
		if err := set.FromJSON(e.FieldsV1.GetRawReader()); err != nil {
			return nil, err
		}
		var paths []string
		set.Leaves().Iterate(func(p fieldpath.Path) { paths = append(paths, p.String()) })
		slices.Sort(paths)
		sub := ""
		if e.Subresource != "" {
			sub = " on " + e.Subresource
		}
		lines = append(lines, fmt.Sprintf("%s %s %s%s: %s", e.Manager, e.Operation, e.APIVersion, sub, strings.Join(paths, " ")))
	}
	return lines, nil
}

// manyFields are so many that an object which also says who owns each of them is too large.
func manyFields() string {
	var b strings.Builder
	for i := range large / 100 {
		fmt.Fprintf(&b, `"%050d":"",`, i)
	}
	return strings.TrimSuffix(b.String(), ",")
}

func manyResources() string {
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&b, `"example.com/r%03d":"1",`, i)
	}
	return strings.TrimSuffix(b.String(), ",")
}
