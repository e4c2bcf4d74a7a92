package cli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

// Section is what some flags of a command have in common, for its help.
type Section struct {
	Title string
	Flags []string
}

// defaultColumns is the width of help that is not written to a terminal.
const defaultColumns = 100

// GroupFlags has the help of a command show its flags in sections, those that are in none first, in lines that
// fit the terminal.
func GroupFlags(c *cobra.Command, sections []Section) {
	c.SetUsageFunc(func(c *cobra.Command) error {
		w := c.OutOrStderr()
		fmt.Fprintf(w, "Usage:\n  %s\n", c.UseLine())
		if c.HasExample() {
			fmt.Fprintf(w, "\nExamples:\n%s\n", c.Example)
		}
		columns := columnsOf(w)
		rest := pflag.NewFlagSet("", pflag.ContinueOnError)
		rest.SortFlags = false
		in := map[string]bool{}
		for _, s := range sections {
			for _, name := range s.Flags {
				in[name] = true
			}
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !in[f.Name] {
				rest.AddFlag(f)
			}
		})
		printSection(w, "Flags", rest, columns)
		for _, s := range sections {
			set := pflag.NewFlagSet("", pflag.ContinueOnError)
			set.SortFlags = false
			for _, name := range s.Flags {
				if f := c.LocalFlags().Lookup(name); f != nil {
					set.AddFlag(f)
				}
			}
			printSection(w, s.Title+" flags", set, columns)
		}
		return nil
	})
}

func printSection(w io.Writer, title string, set *pflag.FlagSet, columns int) {
	if set.HasAvailableFlags() {
		fmt.Fprintf(w, "\n%s:\n%s\n", title, strings.TrimRight(set.FlagUsagesWrapped(columns), " \n"))
	}
}

// columnsOf is the width of a terminal.
func columnsOf(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return defaultColumns
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return defaultColumns
	}
	return int(size.Col)
}
