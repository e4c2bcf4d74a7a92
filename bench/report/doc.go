// Package report is what the reports of all bench commands share. A measurement has a struct that
// is its JSON, which begins with a Head; its Doc is the same for people: blocks of texts, tables,
// verdicts and figures in their order. A Doc writes itself for a terminal, which has no figures, and
// as one HTML page, by one template.
package report

import (
	"bufio"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/quorate/quorate/bench/plot"
)

// Doc is a report for people.
type Doc struct {
	// Name is the window's, Heading the page's; Lines are below its head.
	Name, Heading string
	Head          *Head
	Lines         []string
	Blocks        []Block
	Method        string // how it was measured; for the page
	Report        any    // in the page for programs
}

// Block is a part of a Doc: what it has of this, in this order. A terminal shows all but cards, legends and
// figures; verdicts it shows last, so that they are what is read first.
type Block struct {
	Title, Heading, Note string
	Failures             []string // errors
	Cards                []Card
	Verdicts             []Verdict
	Details              []string // of the verdicts
	Legend               []Colour
	Table                Table
	Figures              []Figure
	Columns              string // of the figures: two, three, or empty for one
	Texts                []string
	Fold                 string // what stands above it while it is folded; for the page
	Open                 bool   // it is folded open
	Page, Terminal       bool   // it is for that alone
}

// Colour is a class of the page's style, and what has it.
type Colour struct{ Class, Name string }

// Card is a figure that is large.
type Card struct{ Class, Title, P50, P99, Text string }

// Figure is a drawing with what is said above it.
type Figure struct {
	Title  string
	Figure template.HTML
}

// Table is one of texts.
type Table struct {
	Head  []string
	Left  int  // columns of words, which are at their left; 0: one
	Texts bool // its cells are sentences
	Rows  []Row
}

// Row is one of a table.
type Row struct {
	First  bool   // it begins a group
	Sub    bool   // it is a part of the row above
	Class  string // of the mark that the cell Marked has
	Marked int
	Cells  []string
	Note   string // below it, as wide as the table
}

//go:embed page.html
var pageText string

var page = template.Must(template.New("").Funcs(template.FuncMap{"style": func() template.CSS { return plot.Style }}).Parse(pageText))

// WriteHTML writes the page, which needs nothing else: no scripts, no fonts, no network.
func (d *Doc) WriteHTML(w io.Writer) error {
	if err := page.ExecuteTemplate(w, "page", d); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}

// WriteTable writes the report for a terminal.
func (d *Doc) WriteTable(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "%s\n%s\n\n", d.Head.Title(), d.Head.Command)
	for _, line := range d.Lines {
		fmt.Fprintln(out, line)
	}
	for _, b := range d.Blocks {
		if b.Page || b.Fold != "" {
			continue
		}
		if err := b.WriteText(out); err != nil {
			return err
		}
	}
	for _, b := range d.Blocks {
		for i, v := range b.Verdicts {
			if i == 0 {
				fmt.Fprintln(out)
			}
			fmt.Fprintf(out, "%-7s %s: %s\n", v.Word(), v.Name, v.Measured)
		}
		for _, text := range b.Details {
			fmt.Fprintf(out, "        %s\n", text)
		}
	}
	return out.Flush()
}

// WriteText writes the block for a terminal, without its verdicts.
func (b *Block) WriteText(w io.Writer) error {
	if len(b.Table.Rows)+len(b.Failures)+len(b.Texts) == 0 && (b.Note == "" || len(b.Figures) > 0) {
		return nil
	}
	head := []string{}
	for _, text := range []string{b.Title, b.Heading, b.Note} {
		if text != "" {
			head = append(head, text)
		}
	}
	fmt.Fprintln(w)
	if len(head) > 0 {
		fmt.Fprintln(w, wrapped(strings.Join(head, ". ")))
	}
	if len(b.Table.Rows) > 0 {
		if len(head) > 0 {
			fmt.Fprintln(w)
		}
		if err := b.Table.write(w); err != nil {
			return err
		}
	}
	for i, text := range slices.Concat(b.Failures, b.Texts) {
		if i == 0 && len(b.Table.Rows) > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, text)
	}
	return nil
}

// wrapped breaks a text into lines of some hundred letters.
func wrapped(text string) string {
	var b strings.Builder
	length := 0
	for word := range strings.FieldsSeq(text) {
		if length > 0 && length+len(word) > 110 {
			b.WriteByte('\n')
			length = 0
		} else if length > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(word)
		length += len(word) + 1
	}
	return b.String()
}

func (t *Table) write(w io.Writer) error {
	if t.Texts {
		for _, r := range t.Rows {
			fmt.Fprintf(w, "  %s\n", strings.Join(r.Cells, ": "))
		}
		return nil
	}
	var lines [][]string
	for i, r := range t.Rows {
		if r.First && i > 0 {
			lines = append(lines, make([]string, len(t.Head)))
		}
		lines = append(lines, r.Cells)
	}
	if err := WriteColumns(w, t.Head, lines); err != nil {
		return err
	}
	for _, r := range t.Rows {
		if r.Note != "" {
			fmt.Fprintf(w, "%s: %s\n", r.Cells[0], r.Note)
		}
	}
	return nil
}

// WriteColumns writes a table for a terminal, its cells at the right of their columns.
func WriteColumns(w io.Writer, head []string, lines [][]string) error {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 8, 2, ' ', tabwriter.AlignRight)
	for _, line := range append([][]string{head}, lines...) {
		fmt.Fprintln(t, strings.Join(line, "\t")+"\t")
	}
	err := t.Flush()
	for line := range strings.Lines(b.String()) {
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
	return err
}

// Signed prints a difference by print, with its sign.
func Signed(difference float64, print func(float64) string) string {
	text := print(difference)
	if size, ok := strings.CutPrefix(text, "-"); ok && size != print(0) {
		return text
	}
	return "+" + strings.TrimPrefix(text, "-")
}

// Count is a number of things, one of which has a name: "1 version", "2 versions".
func Count[N int | int64](n N, name string) string {
	if n != 1 {
		name += "s"
	}
	return fmt.Sprintf("%d %s", n, name)
}
