package commands

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/quorate/quorate/internal/cli"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// configCommand shows and checks configurations without starting anything.
func configCommand() *cobra.Command {
	c := cli.Group(&cobra.Command{Use: "config", Short: "Show or check a node's configuration"})
	c.AddCommand(
		&cobra.Command{
			Use:   "default",
			Short: "Print a configuration file with every setting at its default",
			Args:  cli.NoArguments,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return writeSettings(cmd.OutOrStdout(), new(settings).flags(), true)
			},
		},
		settingsCommand("validate", "Check a configuration", func(cmd *cobra.Command, _ *settings) error {
			fmt.Fprintln(cmd.OutOrStdout(), "the configuration is valid")
			return nil
		}),
	)
	c.AddCommand(&cobra.Command{
		Use:    "check-set SETTING...",
		Short:  "Check settings, given as flag=value, for quorate-bench, which starts nodes with them",
		Hidden: true,
		Args:   cobra.MinimumNArgs(1),
		RunE:   func(_ *cobra.Command, args []string) error { return checkSettings(args) },
	})
	var showOrigin bool
	// Where a value comes from is asked just when it is wrong: the error comes after the table.
	view := anySettingsCommand("view", "Print the configuration that a node would use", func(cmd *cobra.Command, s *settings, origins map[string]origin, invalid error) error {
		switch {
		case !showOrigin && invalid != nil, origins == nil:
			return invalid
		case !showOrigin:
			return writeSettings(cmd.OutOrStdout(), s.set, false)
		}
		w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
		fmt.Fprintln(w, "SETTING\tVALUE\tORIGIN")
		s.set.VisitAll(func(flag *pflag.Flag) {
			if flag.Name != "help" {
				fmt.Fprintf(w, "%s\t%s\t%s\n", flag.Name, flag.Value, origins[flag.Name])
			}
		})
		return errors.Join(w.Flush(), invalid)
	})
	view.Flags().BoolVar(&showOrigin, "show-origin", false, "say where each value comes from")
	c.AddCommand(view)
	return c
}

// settingsCommand is a command that takes all settings of a node. It runs if they are valid.
func settingsCommand(use, short string, run func(*cobra.Command, *settings) error) *cobra.Command {
	return anySettingsCommand(use, short, func(cmd *cobra.Command, s *settings, _ map[string]origin, invalid error) error {
		if invalid != nil {
			return invalid
		}
		return run(cmd, s)
	})
}

// anySettingsCommand is a settingsCommand that runs with invalid settings too, and is told
// where they come from and what is wrong. Without origins the file could not be read.
func anySettingsCommand(use, short string, run func(*cobra.Command, *settings, map[string]origin, error) error) *cobra.Command {
	s := &settings{}
	flags := s.flags()
	var file string
	c := &cobra.Command{Use: use, Short: short, Args: cli.NoArguments}
	c.Flags().SortFlags = false
	c.Flags().StringVar(&file, "config", os.Getenv(envPrefix+"CONFIG"), "YAML file of settings, one key per flag; - is standard input")
	cli.DefaultIs(c.Flags(), "config", "$"+envPrefix+"CONFIG")
	cli.Environment(c,
		cli.Note{envPrefix + "CONFIG", "the file of --config"},
		cli.Note{envPrefix + "SETTING", "any setting, named like its flag: " + envPrefix + "DATA_DIR is --data-dir"})
	c.Flags().AddFlagSet(flags)
	cli.GroupFlags(c, sections)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		origins, err := resolve(flags, file, cmd.InOrStdin(), os.Environ())
		if err == nil {
			if err = s.complete(); err != nil {
				err = fmt.Errorf("configuration:\n%w", err)
			}
		}
		return run(cmd, s, origins, err)
	}
	return c
}

// writeSettings prints settings as a configuration file.
func writeSettings(w io.Writer, f *pflag.FlagSet, comments bool) error {
	var err error
	f.VisitAll(func(flag *pflag.Flag) {
		if flag.Name == "help" || err != nil {
			return
		}
		var value string
		if value, err = yamlValue(flag.Value); err != nil {
			return
		}
		if comments {
			_, err = fmt.Fprintf(w, "# %s\n#%s: %s\n\n", flag.Usage, flag.Name, value)
			return
		}
		_, err = fmt.Fprintf(w, "%s: %s\n", flag.Name, value)
	})
	return err
}

// yamlValue writes a value so that parseConfig reads the same one: quoted where
// YAML would take it for something else, such as the name "on" or [::1]:7443.
func yamlValue(v pflag.Value) (string, error) {
	if list, ok := v.(pflag.SliceValue); ok {
		items := list.GetSlice()
		if items == nil {
			items = []string{}
		}
		b, err := json.Marshal(items)
		return string(b), err
	}
	if v.Type() != "string" {
		return v.String(), nil
	}
	b, err := yaml.Marshal(v.String())
	return strings.TrimSuffix(string(b), "\n"), err
}
