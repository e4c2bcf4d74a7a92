package commands

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/quorate/quorate/internal/cli"
	"github.com/quorate/quorate/internal/playground"
	"github.com/spf13/cobra"
)

// exitNotRunning is an exit code of `quorate dev status`, beside 0: that of systemctl and pg_ctl.
const exitNotRunning = 3

func devStartCommand(o *playground.Options) *cobra.Command {
	return &cobra.Command{
		Use: "start NODE...", Short: "Start stopped or killed nodes of a playground cluster", Args: cobra.ArbitraryArgs,
		Long: `Starts nodes of a playground that were stopped or killed, and waits until they are
ready; if too few run for a quorum, until they serve, and says which are stopped. All
of a playground that does not run: quorate dev --detach. The control plane's programs
beside a node start with it; their own names, such as kube-scheduler-n1, start one.`,
		ValidArgsFunction: completeNodes(o, func(n *playground.Node) bool { return !n.Running() }),
		RunE: func(cmd *cobra.Command, args []string) error {
			return stopped(playground.Start(cmd.Context(), o.DataDir, args, cmd.OutOrStdout(), cmd.ErrOrStderr()))
		},
	}
}

func devStopCommand(o *playground.Options) *cobra.Command {
	return &cobra.Command{
		Use: "stop [NODE...]", Short: "Stop a playground cluster, or some of its nodes", Args: cobra.ArbitraryArgs,
		Long: `Stops all nodes of a playground, or those that are named, and waits until they are
gone. A 'quorate dev' in the foreground ends with its last node. What does not run
is no error. The control plane's programs beside a node stop with it; their own names,
such as kube-scheduler-n1, stop one.`,
		ValidArgsFunction: completeNodes(o, (*playground.Node).Running),
		RunE: func(cmd *cobra.Command, args []string) error {
			return playground.Stop(cmd.Context(), o.DataDir, args, cmd.OutOrStdout())
		},
	}
}

func devStatusCommand(o *playground.Options) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use: "status", Short: "Show which nodes of a playground cluster run and are ready", Args: cobra.NoArgs,
		Long: `Shows the nodes of a playground: which run, as which process, and which are ready. The
roles of the nodes are in 'quorate status'. Of the control plane's programs it shows
which run.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return fmt.Errorf("--output %q: must be table or json", output)
			}
			st, err := playground.ReadStatus(cmd.Context(), o.DataDir)
			if err != nil {
				return err
			}
			if output == "json" {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				err = e.Encode(st)
			} else {
				err = st.Print(cmd.OutOrStdout())
			}
			if err != nil {
				return err
			}
			if !st.Ready() {
				return cli.ExitError{Code: exitNotRunning}
			}
			return nil
		},
	}
	cli.ExitCodes(c, cli.Note{"3", "not all nodes run and are ready, or a program of the control plane does not run"})
	c.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]cobra.Completion{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func devLogsCommand(o *playground.Options) *cobra.Command {
	l := playground.LogOptions{}
	c := &cobra.Command{
		Use: "logs [NODE...]", Short: "Show the logs of a playground's nodes", Args: cobra.ArbitraryArgs,
		Long: `Shows the last lines of the logs of a playground's nodes, or of those that are named.
Lines of several nodes are in the order of their times, each with its node's name.
The logs of the control plane's programs are shown by their names, such as
kube-scheduler-n1.`,
		Example: `  quorate dev logs n1 --follow
  quorate dev logs --tail -1 | grep -i election`,
		ValidArgsFunction: completeNodes(o, func(*playground.Node) bool { return true }),
		RunE: func(cmd *cobra.Command, args []string) error {
			if l.Tail < -1 {
				return fmt.Errorf("--tail %d: must be a number of lines, or -1 for all", l.Tail)
			}
			return playground.Logs(cmd.Context(), o.DataDir, args, l, cmd.OutOrStdout())
		},
	}
	c.Flags().BoolVarP(&l.Follow, "follow", "f", false, "go on with what is logged from now on, until Ctrl-C")
	c.Flags().IntVar(&l.Tail, "tail", 100, "how many lines of each node; -1 for all")
	return c
}

func devDeleteCommand(o *playground.Options) *cobra.Command {
	return &cobra.Command{
		Use: "delete", Short: "Stop a playground cluster and remove its data", Args: cobra.NoArgs,
		Long: `Stops the nodes of a playground and removes what 'quorate dev' has made: cluster.json,
the secret, certificates, kubeconfig, and each node's file, data and log. Other files
in the directory stay, and so does a directory that is not a playground.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return playground.Delete(cmd.Context(), o.DataDir, cmd.OutOrStdout())
		},
	}
}

// devKeepCommand is what a playground runs to keep a program of the control plane running.
func devKeepCommand() *cobra.Command {
	return &cobra.Command{
		Use: playground.KeepCommand + " KUBECONFIG PROGRAM [ARGUMENT...]", Short: "Keep a program of the control plane running", Hidden: true,
		DisableFlagParsing: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return errors.New("a kubeconfig and a program are required")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return playground.Keep(cmd.Context(), args[1], args[2:], cmd.OutOrStdout())
		},
	}
}
