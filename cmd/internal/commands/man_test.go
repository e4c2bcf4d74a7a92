package commands

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// writeManPages makes all pages as `make man` does and returns their directory.
func writeManPages(t *testing.T) string {
	t.Helper()
	t.Setenv("SOURCE_DATE_EPOCH", "1795348800")
	dir := filepath.Join(t.TempDir(), "man1")
	runCommand(t, "man", "--dir", dir)
	return dir
}

// TestManPages: every command has a page, with all sections, all of its options and their
// defaults, and what is in the pages is in the language of man(7).
func TestManPages(t *testing.T) {
	dir := writeManPages(t)
	entries, err := os.ReadDir(dir)
	must.OK(t, err)
	var got, want []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		file := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1"
		want = append(want, file)
		if page, err := os.ReadFile(filepath.Join(dir, file)); err != nil {
			t.Error(err)
		} else {
			checkPage(t, c, file, string(page))
		}
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				visit(sub)
			}
		}
	}
	visit(newCommand())
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the pages are %v, want %v", got, want)
	}
	lintPages(t, dir, got)
}

// escape is how a page writes a name with hyphens.
func escape(name string) string { return strings.ReplaceAll(name, "-", `\-`) }

func checkPage(t *testing.T, c *cobra.Command, file, page string) {
	t.Helper()
	at := 0
	for _, section := range []string{"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "SEE ALSO"} {
		i := strings.Index(page[at:], ".SH \""+section+"\"\n")
		if i < 0 {
			t.Errorf("%s has no section %s, or not in its place", file, section)
			return
		}
		at += i
	}
	if got := strings.Contains(page, "\n.SH \"EXAMPLES\"\n"); got != (c.Example != "") {
		t.Errorf("%s: examples: %t", file, got)
	}
	option := func(f *pflag.Flag) {
		if optional := f.Value.Type() != "bool" && f.NoOptDefVal != ""; optional && !strings.Contains(page, escape("--"+f.Name)+`\fR[=`) {
			t.Errorf("%s: the value of --%s is optional", c.CommandPath(), f.Name)
		}
		if !strings.Contains(page, escape("--"+f.Name)+`\fR`) || f.DefValue == "6443" && !strings.Contains(page, "(default: 6443)") {
			t.Errorf("%s does not say --%s, or not its default", file, f.Name)
		}
	}
	c.LocalFlags().VisitAll(option)
	c.InheritedFlags().VisitAll(option)
	checkRoff(t, file, page)
}

var (
	roffRequests = regexp.MustCompile(`^\.(TH "[^"]*" 1 [0-9-]{10} "[^"]*" "[^"]*"|SH "[A-Z ]+"|PP|TP|RS 4|RE|nf|fi|nh|ad l|br)$`)
	roffEscapes  = regexp.MustCompile(`\\(f[BIR]|e|-|&|\((aq|dq|ga|ha|ti)|\[u[0-9A-F]{4,6}\])`)
)

// checkRoff: a line that begins with a dot is a request that we mean, and nothing else in
// the text is one, or a character that troff replaces.
func checkRoff(t *testing.T, file, page string) {
	t.Helper()
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, ".") {
			if !roffRequests.MatchString(line) {
				t.Errorf("%s: this is a request: %s", file, line)
			}
			continue
		}
		if left := roffEscapes.ReplaceAllString(line, ""); strings.ContainsAny(left, "\\-'\"`^~\t") {
			t.Errorf("%s: not escaped: %s", file, line)
		}
		for _, c := range line {
			if c < ' ' || c > '~' {
				t.Errorf("%s: %q in %q", file, c, line)
			}
		}
	}
}

// lintPages has the checkers of this machine look, if there is one.
func lintPages(t *testing.T, dir string, pages []string) {
	t.Helper()
	for _, command := range [][]string{{"mandoc", "-T", "lint", "-W", "warning"}, {"groff", "-man", "-ww", "-z", "-K", "utf8"}} {
		if _, err := exec.LookPath(command[0]); err != nil {
			t.Logf("%s is not here", command[0])
			continue
		}
		for _, page := range pages {
			out, err := exec.CommandContext(t.Context(), command[0], append(command[1:], filepath.Join(dir, page))...).CombinedOutput()
			if err != nil || len(out) > 0 {
				t.Errorf("%s %s: %v\n%s", strings.Join(command, " "), page, err, out)
			}
		}
	}
}

// TestManPagesAreTheSameEverywhere: what a package has does not depend on where it was built.
func TestManPagesAreTheSameEverywhere(t *testing.T) {
	t.Setenv("QUORATE_CONFIG", "/home/somebody/config.yaml")
	host, err := os.Hostname()
	must.OK(t, err)
	b, err := os.ReadFile(filepath.Join(writeManPages(t), "quorate-node.1"))
	must.OK(t, err)
	page := string(b)
	for _, wrong := range []string{"somebody", "(default: " + escape(host) + ")"} {
		if strings.Contains(page, wrong) {
			t.Errorf("it has %q", wrong)
		}
	}
	for _, want := range []string{" 1 2026-11-22 ", "(default: the name of the host)", "(default: $QUORATE_CONFIG)", `\fB\-\-peer\-address\fR=\fIstring\fR` + "\n", "(default: 127.0.0.1:7443)"} {
		if !strings.Contains(page, want) {
			t.Errorf("it has no %q", want)
		}
	}
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	if out, err := tryCommand(t, "man", "--dir", t.TempDir()); err == nil || !strings.Contains(err.Error(), "SOURCE_DATE_EPOCH") {
		t.Errorf("a date that is none: %v %s", err, out)
	}
}
