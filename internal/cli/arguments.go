package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Group is a command that only has subcommands: alone it explains itself, and what is
// none of them is an error. By default cobra would print the help and end with 0.
func Group(c *cobra.Command) *cobra.Command {
	c.Args = OnlySubcommands
	addNotes(c, noteGroup, Note{})
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	return c
}

// NoArguments are the arguments of a command that takes none.
func NoArguments(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("unexpected argument %q; it is: %s", args[0], Synopsis(c))
}

// Exactly are the arguments of a command that takes these, in this order.
func Exactly(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return fmt.Errorf("%s is missing: %s", names[len(args)], Synopsis(c))
		case len(args) > len(names):
			return fmt.Errorf("unexpected argument %q; it is: %s", args[len(names)], Synopsis(c))
		}
		if i := slices.Index(args, ""); i >= 0 {
			return fmt.Errorf("%s is empty: %s", names[i], Synopsis(c))
		}
		return nil
	}
}

// AtMost are the arguments of a command that takes one, or none.
func AtMost(name string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return Exactly(name)(c, args)
	}
}

// Needs makes a flag one that a command cannot do without. cobra's own words for that are
// `required flag(s) "data-dir" not set`.
func Needs(c *cobra.Command, flag string) {
	_ = c.MarkFlagRequired(flag) // for completion and man pages; fails for unknown flags only
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		if !c.Flags().Changed(flag) {
			return fmt.Errorf("--%s is missing: %s", flag, Synopsis(c))
		}
		return nil
	}
}

// Synopsis is how a command is written, without its flags.
func Synopsis(c *cobra.Command) string {
	_, arguments, _ := strings.Cut(c.Use, " ")
	return strings.TrimSpace(c.CommandPath() + " " + arguments)
}

// HelpCommand is cobra's, but for topics that there are not: they are errors.
func HelpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]...", Short: "Explain a command",
		Args: cobra.ArbitraryArgs,
		ValidArgsFunction: func(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
			about, rest, err := c.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var out []cobra.Completion
			for _, sub := range about.Commands() {
				if sub.IsAvailableCommand() && strings.HasPrefix(sub.Name(), typed) {
					out = append(out, cobra.CompletionWithDesc(sub.Name(), sub.Short))
				}
			}
			return out, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			about, rest, err := c.Root().Find(args)
			if err != nil {
				return err
			}
			if about.DisableFlagParsing {
				return about.RunE(about, append([]string{"help"}, rest...)) // another program explains itself
			}
			if len(rest) > 0 {
				return OnlySubcommands(about, rest)
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

// CheckOutput checks --output of a command that prints a table.
func CheckOutput(output string) error {
	switch output {
	case "table", "json":
		return nil
	}
	return fmt.Errorf("--output %q: must be table or json", output)
}
