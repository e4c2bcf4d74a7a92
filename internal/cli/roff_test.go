package cli

import (
	"strings"
	"testing"
)

func TestRoff(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"a dot", ".so /etc/passwd", `\&.so /etc/passwd`},
		{"a quote", "'br", `\(aqbr`},
		{"a backslash", `a\fBb`, `a\efBb`},
		{"hyphens", "--data-dir", `\-\-data\-dir`},
		{"quotes", "\"a\" `b` ^ ~", `\(dqa\(dq \(gab\(ga \(ha \(ti`},
		{"not ASCII", "a … ß", `a \[u2026] \[u00DF]`},
		{"control characters", "a\x1b[1mb\x00", "a[1mb"},
		{"two paragraphs", "one\ntwo\n\nthree", "one\ntwo\n.PP\nthree"},
		{"columns", "to try:  a\nto run:  .b\n\nend", ".RS 4\n.nf\nto try:  a\nto run:  .b\n.fi\n.RE\n.PP\nend"},
		{"an example", "  # one\n  .a\n    b", ".RS 4\n.nf\n# one\n\\&.a\n  b\n.fi\n.RE"},
	} {
		var r roff
		r.text(c.text)
		if got := strings.TrimSuffix(r.b.String(), "\n"); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if got := argument("a \"b\"\nc"); got != `"a \(dqb\(dq c"` {
		t.Errorf("an argument: %s", got)
	}
}
