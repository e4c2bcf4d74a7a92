package main

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

// note is one line of a section of a man page.
type note struct{ what, means string }

// addNotes appends to the notes of one kind.
func addNotes(c *cobra.Command, kind string, notes ...note) {
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	for _, n := range notes {
		c.Annotations[kind] += n.what + "\t" + n.means + "\n"
	}
}

// notes are those of a command itself.
func notes(c *cobra.Command, kind string) (out []note) {
	for line := range strings.Lines(c.Annotations[kind]) {
		what, means, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		out = append(out, note{what, means})
	}
	return out
}

// notesBelow are those of a command and of the ones that it is a subcommand of, its own first.
func notesBelow(c *cobra.Command, kind string) (out []note) {
	for ; c != nil; c = c.Parent() {
		out = append(out, notes(c, kind)...)
	}
	return out
}

// exitCodes notes what a command's exit codes mean, beside 0 and, unless it is among them,
// 1 for any error. Its help ends with them.
func exitCodes(c *cobra.Command, codes ...note) {
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
		fmt.Fprintf(&b, "\n  %-3s  %s", n.what, n.means)
	}
	return b.String()
}

// files notes files that a command reads or writes.
func files(c *cobra.Command, files ...note) { addNotes(c, noteFile, files...) }

// environment notes variables that a command heeds.
func environment(c *cobra.Command, variables ...note) { addNotes(c, noteEnvironment, variables...) }

// defaultIs describes the default of a flag that is not the same everywhere.
func defaultIs(f *pflag.FlagSet, flag, text string) {
	_ = f.SetAnnotation(flag, noteDefault, []string{text}) // fails for unknown flags only
}
