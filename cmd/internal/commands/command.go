package commands

import (
	"fmt"

	"github.com/quorate/quorate/internal/cli"
	"github.com/spf13/cobra"
)

// newCommand is the root of the command line. Each subcommand has a file.
func newCommand() *cobra.Command {
	root := cli.Group(&cobra.Command{
		Use:   "quorate",
		Short: "A Kubernetes API server whose storage is its own Raft log",
		Long: `Quorate serves the Kubernetes API from a Raft-replicated store that is part of
every node: no etcd, no primary, one resourceVersion clock. Clients may talk to
any node.

To try it:      quorate dev
To run a node:  quorate node --help`,
		SilenceUsage:  true,
		SilenceErrors: true,
	})
	// Not cobra's Version: its template would link text/template, whose reflection keeps every exported
	// method of every type in the program, a fifth of its size.
	showVersion := root.Flags().BoolP("version", "v", false, "version for quorate")
	help := root.RunE
	root.RunE = func(c *cobra.Command, args []string) error {
		if *showVersion {
			_, err := fmt.Fprint(c.OutOrStdout(), versionText())
			return err
		}
		return help(c, args)
	}
	root.SetFlagErrorFunc(cli.FlagError)
	root.AddGroup(
		&cobra.Group{ID: "run", Title: "Run:"},
		&cobra.Group{ID: "operate", Title: "Operate a cluster:"},
	)
	for _, c := range []*cobra.Command{nodeCommand(), devCommand(), proxyCommand(), kubeAPIServerCommand(), etcdStubCommand(), benchCommand()} {
		c.GroupID = "run"
		root.AddCommand(c)
	}
	for _, c := range []*cobra.Command{statusCommand(), memberCommand(), tokenCommand(), admissionCommand(), snapshotCommand(), recoverCommand(), kubeconfigCommand(), configCommand()} {
		c.GroupID = "operate"
		root.AddCommand(c)
	}
	root.AddCommand(versionCommand(), cli.CompletionCommand(), cli.ManCommand(build.Version))
	root.SetHelpCommand(cli.HelpCommand())
	return root
}
