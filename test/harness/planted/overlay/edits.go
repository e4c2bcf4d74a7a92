package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/quorate/quorate/test/harness/planted"
)

const module = "github.com/quorate/quorate"

// built are the edits that every overlay has.
//
//go:embed built.txt
var built string

// A bug is what a file bugs/NAME.txt says:
//
//	A description of the bug.
//
//	--- FILE
//	@@
//	 a line that stays
//	-a line that goes
//	+a line that comes
//	+++ FILE
//	+a line of a new file
//
// Each @@ begins an edit of the file. The lines that stay and those that go must be in the
// file, in this order, exactly once. They should be as few as possible, so that other
// changes of the file rarely break the edit. An edit has lines that go, or comes before,
// after or between lines that stay.
type bug struct {
	name, description string
	edits             []edit
	added             map[string]string // contents by file
}

// edit replaces text of a file.
type edit struct {
	bug, file  string
	before     string // the lines that stay in front
	old, new   string
	after      string // the lines that stay behind
	begin, end int    // of old in the file
}

// load reads all bugs, and what every overlay has.
func load() ([]bug, error) {
	first, err := parse("built", built)
	all, errs := []bug{first}, []error{err}
	for _, name := range planted.All() {
		text, err := planted.Bugs.ReadFile("bugs/" + name + ".txt")
		if err != nil {
			return nil, err
		}
		b, err := parse(name, string(text))
		all, errs = append(all, b), append(errs, err)
	}
	return all, errors.Join(errs...)
}

func parse(name, text string) (bug, error) {
	b := bug{name: name, added: map[string]string{}}
	description, rest, _ := strings.Cut(text, "\n--- ")
	b.description = strings.TrimSpace(description)
	var file, added string
	for i, line := range strings.Split("--- "+strings.TrimSuffix(rest, "\n"), "\n") {
		in := &edit{} // the lines of no edit
		if len(b.edits) > 0 {
			in = &b.edits[len(b.edits)-1]
		}
		sign, content := line, ""
		if line != "" {
			sign, content = line[:1], line[1:]+"\n"
		}
		switch {
		case strings.HasPrefix(line, "--- "):
			file, added = line[4:], ""
		case strings.HasPrefix(line, "+++ "):
			file, added = "", line[4:]
			b.added[added] = ""
		case line == "@@" && file != "":
			b.edits = append(b.edits, edit{bug: name, file: file})
		case added != "" && sign == "+":
			b.added[added] += content
		case file == "" || in.file != file:
			return b, fmt.Errorf("%s: line %d behind the description, %q, belongs to no edit", name, i+1, line)
		case sign == " " && in.old == "" && in.new == "":
			in.before += content
		case sign == " ":
			in.after += content
		case sign == "-" && in.after == "":
			in.old += content
		case sign == "+" && in.after == "":
			in.new += content
		default:
			return b, fmt.Errorf("%s: line %d behind the description, %q: an edit is lines that stay, lines that go or come, and lines that stay", name, i+1, line)
		}
	}
	if b.description == "" || len(b.edits) == 0 {
		return b, fmt.Errorf("%s: no description, or no edit", name)
	}
	return b, nil
}

// find sets where in its file an edit belongs.
func (e *edit) find(source []byte) error {
	text := "\n" + e.before + e.old + e.after
	if text == "\n" {
		return fmt.Errorf("planted bug %s: an edit of %s has no line that says where", e.bug, e.file)
	}
	if n := strings.Count("\n"+string(source), text); n != 1 {
		return fmt.Errorf("planted bug %s: %s has the old text of an edit %d times, not once; make the edit in test/harness/planted/bugs/%s.txt fit the file again:\n%s",
			e.bug, e.file, n, e.bug, text[1:])
	}
	e.begin = strings.Index("\n"+string(source), text) + len(e.before)
	e.end = e.begin + len(e.old)
	return nil
}

// apply returns the files that the edits of all bugs change or add. read returns a file of
// the product.
func apply(bugs []bug, read func(name string) ([]byte, error)) (map[string][]byte, error) {
	files := map[string][]byte{}
	edits := map[string][]edit{}
	var errs []error
	for _, b := range bugs {
		for _, e := range b.edits {
			edits[e.file] = append(edits[e.file], e)
		}
		for name, content := range b.added {
			if _, err := read(name); !errors.Is(err, fs.ErrNotExist) || files[name] != nil {
				errs = append(errs, fmt.Errorf("planted bug %s: the file to add, %s, is there (%v)", b.name, name, err))
			}
			files[name] = []byte(content)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(edits)) {
		source, err := read(name)
		if err != nil {
			errs = append(errs, fmt.Errorf("planted bug %s: %w", edits[name][0].bug, err))
			continue
		}
		files[name], err = applyTo(source, edits[name])
		errs = append(errs, err)
	}
	return files, errors.Join(errs...)
}

// applyTo applies the edits of one file.
func applyTo(source []byte, edits []edit) ([]byte, error) {
	var errs []error
	for i := range edits {
		errs = append(errs, edits[i].find(source))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	// Edits of several bugs at one place are in the order of their names.
	slices.SortStableFunc(edits, func(a, b edit) int { return a.begin - b.begin })
	var out bytes.Buffer
	done := 0
	for i, e := range edits {
		if e.begin < done {
			return nil, fmt.Errorf("planted bugs %s and %s change the same lines of %s:\n%s", edits[i-1].bug, e.bug, e.file, e.old)
		}
		out.Write(source[done:e.begin])
		out.WriteString(e.new)
		done = e.end
	}
	out.Write(source[done:])
	return imported(out.Bytes())
}

// imported adds the import of package planted where it is needed: on the line of the
// package clause, so that no line of the file gets another number.
func imported(source []byte) ([]byte, error) {
	if !bytes.Contains(source, []byte("planted.On(")) {
		return source, nil
	}
	f, err := parser.ParseFile(token.NewFileSet(), "", source, parser.PackageClauseOnly)
	if err != nil {
		return nil, err
	}
	at := int(f.Name.End()) - 1
	return slices.Concat(source[:at], []byte(`; import "`+module+`/test/harness/planted"`), source[at:]), nil
}
