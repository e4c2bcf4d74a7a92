package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// What help and man pages say of a command beside what cobra knows is kept in its
// annotations: one line "WHAT<tab>MEANING" for each note.
const (
	noteExit        = "exit"        // exit codes
	noteFile        = "file"        // files, also of its subcommands
	noteEnvironment = "environment" // variables, also of its subcommands
	noteGroup       = "group"       // it only has subcommands
)

// noteDefault is the annotation of a flag whose default depends on the host or the
// environment: its description in a man page, which must be the same wherever it is made.
const noteDefault = "default"

// Note is one line of a section of a man page.
type Note [2]string

// addNotes appends to the notes of one kind.
func addNotes(c *cobra.Command, kind string, notes ...Note) {
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	for _, n := range notes {
		c.Annotations[kind] += n[0] + "\t" + n[1] + "\n"
	}
}

// notes are those of a command itself.
func notes(c *cobra.Command, kind string) (out []Note) {
	for line := range strings.Lines(c.Annotations[kind]) {
		what, means, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		out = append(out, Note{what, means})
	}
	return out
}

// notesBelow are those of a command and of the ones that it is a subcommand of, its own first.
func notesBelow(c *cobra.Command, kind string) (out []Note) {
	for ; c != nil; c = c.Parent() {
		out = append(out, notes(c, kind)...)
	}
	return out
}

// ExitCodes notes what a command's exit codes mean, beside 0 and, unless it is among them,
// 1 for any error. Its help ends with them.
func ExitCodes(c *cobra.Command, codes ...Note) {
	addNotes(c, noteExit, codes...)
	if c.Long == "" {
		c.Long = c.Short + "."
	}
	c.Long += exitText(c)
}

// exitText is how help shows the exit codes.
func exitText(c *cobra.Command) string {
	codes := notes(c, noteExit)
	if len(codes) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n\nExit codes:")
	for _, n := range codes {
		fmt.Fprintf(&b, "\n  %-3s  %s", n[0], n[1])
	}
	return b.String()
}

// Files notes files that a command reads or writes.
func Files(c *cobra.Command, files ...Note) { addNotes(c, noteFile, files...) }

// Environment notes variables that a command heeds.
func Environment(c *cobra.Command, variables ...Note) { addNotes(c, noteEnvironment, variables...) }

// DefaultIs describes the default of a flag that is not the same everywhere.
func DefaultIs(f *pflag.FlagSet, flag, text string) {
	_ = f.SetAnnotation(flag, noteDefault, []string{text}) // fails for unknown flags only
}
