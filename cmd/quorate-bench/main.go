// Command quorate-bench measures clusters: `quorate bench` runs it. It starts the clusters that it
// measures with the quorate in its own directory. Package main only reads flags and writes reports;
// the packages below bench measure.
package main

import (
	"os"
	"slices"

	"github.com/quorate/quorate/internal/cli"
	"github.com/spf13/cobra"
)

// Set by the linker in builds from make.
var version, commit string

var build cli.Build

func main() {
	build = cli.BuildOf(version, commit)
	root := newCommand()
	// Help and errors call the commands as people type them: quorate bench load.
	args := append([]string{"bench"}, os.Args[1:]...)
	if len(os.Args) > 1 && slices.Contains([]string{"help", cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd}, os.Args[1]) {
		args = append([]string{os.Args[1], "bench"}, os.Args[2:]...)
	}
	root.SetArgs(args)
	os.Exit(cli.Run(root, func(error) int { return 0 }))
}

// newCommand is quorate with the command bench alone.
func newCommand() *cobra.Command {
	root := &cobra.Command{Use: "quorate", SilenceUsage: true, SilenceErrors: true, CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true}}
	root.SetFlagErrorFunc(cli.FlagError)
	root.SetHelpCommand(cli.HelpCommand())
	bench := cli.Group(&cobra.Command{Use: "bench", Short: "Measure a cluster"})
	bench.AddCommand(benchLoadCommand(), benchModesCommand(), benchFaultsCommand(), benchScaleCommand(), benchBurstCommand(), benchChurnCommand(), benchCompareCommand(), bareServerCommand(), cli.ManCommand(build.Version))
	root.AddCommand(bench)
	return root
}
