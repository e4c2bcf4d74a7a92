package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/quorate/quorate/internal/words"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// OnlySubcommands are the arguments of a command that has subcommands and takes no others:
// what is one letter off is probably one of them.
func OnlySubcommands(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	names := []string{}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	if name := Nearest(args[0], names); name != "" {
		return fmt.Errorf("unknown command %q for %q; did you mean %q?", args[0], c.CommandPath(), name)
	}
	return fmt.Errorf("unknown command %q for %q; it has %s", args[0], c.CommandPath(), words.And(names))
}

// FlagError says what is wrong with a flag in the words of who typed it.
func FlagError(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	var missing *pflag.ValueRequiredError
	switch {
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "":
		return fmt.Errorf("%w%s", err, DidYouMean(c.Flags(), unknown.GetSpecifiedName()))
	case errors.As(err, &invalid):
		return fmt.Errorf("--%s %s: %s", invalid.GetFlag().Name, invalid.GetValue(), InvalidValue(invalid.GetFlag(), invalid.Unwrap()))
	case errors.As(err, &missing):
		return fmt.Errorf("--%s: its value is missing", missing.GetFlag().Name)
	}
	return err
}

// InvalidValue says what a flag's value must be.
func InvalidValue(f *pflag.Flag, err error) string {
	switch f.Value.Type() {
	case "int", "int32", "int64", "uint", "uint32", "uint64":
		return "must be a whole number"
	case "float64":
		return "must be a number"
	case "bool":
		return "must be true or false"
	case "duration":
		return "must be a time with its unit: 5s, 10m, 1h30m"
	}
	return err.Error()
}

// DidYouMean is the end of an error about an unknown flag: the nearest one, if one is near.
func DidYouMean(flags *pflag.FlagSet, name string) string {
	var names []string
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if name = Nearest(name, names); name == "" {
		return ""
	}
	return "; did you mean --" + name + "?"
}

// Nearest is the name that is probably meant: at most two letters off, or one with the
// same beginning. "" if none is near.
func Nearest(typed string, names []string) string {
	best, least := "", 3
	for _, name := range names {
		if d := distance(typed, name); d < least && d < len(name) {
			best, least = name, d
		}
	}
	if best != "" {
		return best
	}
	for _, name := range names {
		if len(typed) > 1 && strings.HasPrefix(name, typed) {
			return name
		}
	}
	return ""
}

// distance is how many letters must be put in, taken out, replaced or swapped with the
// next one to get from a to b.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replace := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, replace)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
