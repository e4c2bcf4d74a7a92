package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// ManCommand writes the man pages of the command that it is added to and of all below. It is for packagers, by way of `make man`, and hidden
// from the help. cobra's own generator writes Markdown, which takes two more modules to
// become a man page.
func ManCommand(version string) *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use: "man --dir DIR", Short: "Write a man page for every command", Hidden: true, Args: NoArguments,
		Long: `Writes a man page of section 1 for every command, from what its help says. Their date
is that of SOURCE_DATE_EPOCH, so that equal sources give equal pages, or today.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			date, err := pageDate(os.Getenv("SOURCE_DATE_EPOCH"))
			if err != nil {
				return err
			}
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			return eachCommand(cmd.Parent(), func(c *cobra.Command) error {
				return os.WriteFile(filepath.Join(dir, pageName(c)+".1"), []byte(manPage(c, version, date)), 0o644)
			})
		},
	}
	c.Flags().StringVar(&dir, "dir", "", "directory for the pages, made if it is absent")
	Needs(c, "dir")
	return c
}

// pageDate is the date of the pages: that of the sources, in seconds since 1970, or today.
func pageDate(epoch string) (string, error) {
	at := time.Now()
	if epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil || seconds < 0 {
			return "", fmt.Errorf("SOURCE_DATE_EPOCH %q: must be the seconds since 1970", epoch)
		}
		at = time.Unix(seconds, 0)
	}
	return at.UTC().Format(time.DateOnly), nil
}

// eachCommand visits a command and those below it that help shows.
func eachCommand(c *cobra.Command, visit func(*cobra.Command) error) error {
	if err := visit(c); err != nil {
		return err
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			if err := eachCommand(sub, visit); err != nil {
				return err
			}
		}
	}
	return nil
}

// pageName is the name under which man finds a command: quorate-dev-start.
func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// manPage is the page of a command.
func manPage(c *cobra.Command, version, date string) string {
	c.InitDefaultHelpFlag()
	var r roff
	r.title(pageName(c), date, "quorate "+version, "Quorate")
	r.section("NAME")
	r.line(escape(pageName(c) + " - " + lowerFirst(c.Short)))
	r.section("SYNOPSIS")
	r.synopsis(c)
	r.section("DESCRIPTION")
	r.text(description(c))
	if subs := below(c); len(subs) > 0 {
		r.section("COMMANDS")
		for _, sub := range subs {
			r.tagged(bold(sub.CommandPath()), sub.Short+".")
		}
	}
	r.options(c)
	if c.Example != "" {
		r.section("EXAMPLES")
		r.verbatim(strings.Split(strings.Trim(c.Example, "\n"), "\n"))
	}
	r.section("EXIT STATUS")
	for _, n := range statuses(c) {
		r.tagged(bold(n[0]), sentence(n[1]))
	}
	r.notes("ENVIRONMENT", notesBelow(c, noteEnvironment))
	r.notes("FILES", notesBelow(c, noteFile))
	r.section("SEE ALSO")
	r.line(seeAlso(c))
	return r.b.String()
}

// synopsis is the command in bold and what it takes in italics, and its subcommands.
func (r *roff) synopsis(c *cobra.Command) {
	_, arguments, _ := strings.Cut(c.Use, " ")
	line := bold(c.CommandPath())
	if arguments != "" {
		line += " " + italic(arguments)
	}
	if len(notes(c, noteGroup)) == 0 {
		r.line(line + " [" + italic("OPTION") + "]...")
		if len(below(c)) == 0 {
			return
		}
		r.b.WriteString(".br\n")
	}
	r.line(bold(c.CommandPath()) + " " + italic("COMMAND") + " [" + italic("OPTION") + "]...")
}

// description is the help without what has a section of its own.
func description(c *cobra.Command) string {
	text := strings.TrimSuffix(c.Long, exitText(c))
	if text == "" {
		text = sentence(c.Short)
	}
	return text
}

// options lists the flags of a command, its own first, with their defaults.
func (r *roff) options(c *cobra.Command) {
	r.section("OPTIONS")
	each := func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		term := bold("--" + f.Name)
		if f.Shorthand != "" {
			term = bold("-"+f.Shorthand) + ", " + term
		}
		switch {
		case value == "":
		case f.NoOptDefVal != "":
			term += "[=" + italic(value) + "]"
		default:
			term += "=" + italic(value)
		}
		if len(f.Annotations[cobra.BashCompOneRequiredFlag]) > 0 {
			usage += "; required"
		}
		r.tagged(term, sentence(usage+defaultText(f)))
	}
	c.NonInheritedFlags().VisitAll(each)
	c.InheritedFlags().VisitAll(each)
}

// defaultText is the default in parentheses, unless there is none to speak of or the usage
// has told it.
func defaultText(f *pflag.Flag) string {
	value := f.DefValue
	if text := f.Annotations[noteDefault]; len(text) > 0 {
		value = text[0]
	}
	switch {
	case value == "" || value == "[]" || f.Value.Type() == "bool" && value == "false", strings.Contains(f.Usage, "(default"):
		return ""
	case f.Value.Type() == "stringSlice":
		value = strings.Trim(value, "[]")
	}
	return " (default: " + value + ")"
}

// statuses are the exit codes of a command.
func statuses(c *cobra.Command) []Note {
	own := notes(c, noteExit)
	out := []Note{{"0", "it did what it was told"}}
	for _, n := range own {
		if n[0] == "1" {
			return append(out, own...)
		}
	}
	return append(append(out, Note{"1", "an error, which standard error names"}), own...)
}

// notes writes a section of notes, if there are any.
func (r *roff) notes(section string, notes []Note) {
	if len(notes) == 0 {
		return
	}
	r.section(section)
	for _, n := range notes {
		r.tagged(italic(n[0]), sentence(n[1]))
	}
}

// seeAlso names the pages around one: above, below, and beside one that has none below.
func seeAlso(c *cobra.Command) string {
	var pages []string
	add := func(c *cobra.Command) { pages = append(pages, bold(pageName(c))+"(1)") }
	if c.HasParent() {
		add(c.Parent())
	}
	subs := below(c)
	if len(subs) == 0 && c.HasParent() {
		subs = below(c.Parent())
	}
	for _, sub := range subs {
		if sub != c {
			add(sub)
		}
	}
	return strings.Join(pages, ", ")
}

// below are the subcommands that have pages.
func below(c *cobra.Command) (out []*cobra.Command) {
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			out = append(out, sub)
		}
	}
	return out
}

// lowerFirst is how the line of NAME begins, as whatis shows it, but for abbreviations.
func lowerFirst(s string) string {
	first, n := utf8.DecodeRuneInString(s)
	if next, _ := utf8.DecodeRuneInString(s[n:]); unicode.IsUpper(next) {
		return s
	}
	return string(unicode.ToLower(first)) + s[n:]
}

// sentence begins with a capital and ends with a full stop. Names of commands and flags
// keep their letters.
func sentence(s string) string {
	first, n := utf8.DecodeRuneInString(s)
	word, _, _ := strings.Cut(s, " ")
	if unicode.IsLower(first) && strings.IndexFunc(strings.TrimRight(word, ",;:"), func(c rune) bool { return !unicode.IsLetter(c) }) < 0 {
		s = string(unicode.ToUpper(first)) + s[n:]
	}
	if s == "" || strings.HasSuffix(s, ".") {
		return s
	}
	return s + "."
}
