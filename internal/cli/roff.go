package cli

import (
	"fmt"
	"strings"
	"unicode"
)

// roff writes a man page in the language of man(7). Text is given as people read it.
type roff struct{ b strings.Builder }

// title begins the page, whose date is of the form 2006-01-02. Words stay whole and lines ragged: commands are copied out of it.
func (r *roff) title(name, date, source, manual string) {
	fmt.Fprintf(&r.b, ".TH %s 1 %s %s %s\n.nh\n.ad l\n", argument(strings.ToUpper(name)), date, argument(source), argument(manual))
}

func (r *roff) section(name string) { fmt.Fprintf(&r.b, ".SH %s\n", argument(name)) }

// line writes text in which fonts were chosen: see bold and italic.
func (r *roff) line(formatted string) { r.b.WriteString(protect(formatted) + "\n") }

// text writes paragraphs, which empty lines separate. Those with columns or an indent
// keep their lines.
func (r *roff) text(s string) {
	for i, p := range paragraphs(s) {
		if i > 0 {
			r.b.WriteString(".PP\n")
		}
		if keepsLines(p) {
			r.verbatim(p)
			continue
		}
		for _, line := range p {
			r.line(escape(line))
		}
	}
}

// verbatim writes lines as they are, indented.
func (r *roff) verbatim(lines []string) {
	r.b.WriteString(".RS 4\n.nf\n")
	for _, line := range outdent(lines) {
		r.line(escape(line))
	}
	r.b.WriteString(".fi\n.RE\n")
}

// tagged writes a term, in which fonts were chosen, and below it what it means.
func (r *roff) tagged(term, means string) {
	r.b.WriteString(".TP\n")
	r.line(term)
	r.line(escape(means))
}

func bold(s string) string   { return `\fB` + escape(s) + `\fR` }
func italic(s string) string { return `\fI` + escape(s) + `\fR` }

// argument quotes the argument of a macro.
func argument(s string) string { return `"` + escape(strings.ReplaceAll(s, "\n", " ")) + `"` }

// escape makes text of what troff would take for its own, or print as typographers like
// it: a hyphen must be the character of command lines, and quotes those of shells.
func escape(s string) string {
	var b strings.Builder
	for _, c := range s {
		switch {
		case c == '\\':
			b.WriteString(`\e`)
		case c == '-':
			b.WriteString(`\-`)
		case c == '\'':
			b.WriteString(`\(aq`)
		case c == '"':
			b.WriteString(`\(dq`)
		case c == '`':
			b.WriteString(`\(ga`)
		case c == '^':
			b.WriteString(`\(ha`)
		case c == '~':
			b.WriteString(`\(ti`)
		case c == '\t':
			b.WriteString("    ")
		case unicode.IsControl(c):
		case c > unicode.MaxASCII:
			fmt.Fprintf(&b, `\[u%04X]`, c)
		default:
			b.WriteRune(c)
		}
	}
	return b.String()
}

// protect keeps a line from being a request. The other character that makes one, ', is
// escaped wherever it is.
func protect(line string) string {
	if strings.HasPrefix(line, ".") {
		return `\&` + line
	}
	return line
}

// paragraphs are the lines between empty ones.
func paragraphs(s string) (out [][]string) {
	var p []string
	for _, line := range append(strings.Split(s, "\n"), "") {
		line = strings.TrimRight(line, " \t")
		switch {
		case line != "":
			p = append(p, line)
		case len(p) > 0:
			out, p = append(out, p), nil
		}
	}
	return out
}

// keepsLines says whether a paragraph is a table or an example.
func keepsLines(lines []string) bool {
	for _, line := range lines {
		if strings.HasPrefix(line, " ") || strings.Contains(line, "  ") {
			return true
		}
	}
	return false
}

// outdent removes the indent that all lines have.
func outdent(lines []string) []string {
	least := -1
	for _, line := range lines {
		if n := len(line) - len(strings.TrimLeft(line, " ")); line != "" && (least < 0 || n < least) {
			least = n
		}
	}
	out := make([]string, len(lines))
	for i, line := range lines {
		out[i] = line[min(max(least, 0), len(line)):]
	}
	return out
}
