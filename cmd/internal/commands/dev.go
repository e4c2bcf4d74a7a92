package commands

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/controllers"
	"github.com/quorate/quorate/internal/cli"
	"github.com/quorate/quorate/internal/playground"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// devCommand runs a playground cluster: real node processes on loopback, started
// in the same way as nodes on hosts of their own.
func devCommand() *cobra.Command {
	o := playground.Options{}
	c := &cobra.Command{
		Use:   "dev",
		Short: "Run a playground cluster on loopback",
		Long: `Starts N real node processes on this machine, makes their certificates and a
kubeconfig, waits until they serve, and prints what to do next. The first node has
its API on 127.0.0.1 at --api-port, the next ones at the ports that follow; their
peer ports are 1000 higher.

The data stays in the data directory: the same command starts the same cluster
again. Without --detach the nodes stop with this command, at Ctrl-C or with its
terminal. It goes on without nodes that cannot take part, for their data are gone or
damaged, as long as the others have a quorum, and says how they become members again.

With --control-plane Kubernetes' own kube-controller-manager and kube-scheduler run
too, one of each beside each of the first three nodes, whose API they use; of the
three one leads. They log in by certificates of their own, leave to the nodes what
these do, stop with their node and are started again when they end.
'make control-plane' builds them. 'quorate dev start', 'stop' and 'logs' take their
names, such as kube-scheduler-n1.`,
		Example: `  quorate dev                          # three nodes; Ctrl-C stops them
  quorate dev --detach && quorate dev status
  quorate dev stop n1 && quorate dev logs n2 --follow
  quorate dev start n1
  quorate dev stop && quorate dev delete
  quorate dev --control-plane          # and have Deployments make Pods`,
		Args: cli.OnlySubcommands,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Given = map[string]bool{}
			cmd.Flags().Visit(func(f *pflag.Flag) { o.Given[f.Name] = true })
			if err := checkSettings(o.Set); err != nil {
				return err
			}
			ctx, end := untilHangup(cmd.Context())
			defer end()
			o.ManagerControllers = controllers.ManagerList
			return stopped(playground.Run(ctx, o, cmd.OutOrStdout(), cmd.ErrOrStderr()))
		},
	}
	c.SetFlagErrorFunc(cli.FlagError)
	// What other programs call it.
	c.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "port" {
			name = "api-port"
		}
		return pflag.NormalizedName(name)
	})
	c.PersistentFlags().StringVar(&o.DataDir, "data-dir", ".quorate", "where the cluster keeps everything")
	c.Flags().IntVar(&o.Nodes, "nodes", 3, "number of nodes; an existing cluster keeps its own")
	c.Flags().IntVar(&o.Nonvoters, "nonvoters", 0, "number of nodes without a vote, beside those of --nodes; an existing cluster keeps its own")
	c.Flags().StringVar(&o.Kubeconfig, "kubeconfig", "", "where to write the administrator's kubeconfig (default: DATA-DIR/kubeconfig)")
	c.Flags().IntVarP(&o.APIPort, "api-port", "p", 6443, "port of the first node's API (also --port); an existing cluster keeps its own")
	c.Flags().BoolVar(&o.Detach, "detach", false, "return when the cluster is ready and leave it running")
	c.Flags().BoolVar(&o.ControlPlane, "control-plane", false, "run kube-controller-manager and kube-scheduler beside the nodes; an existing cluster gets them too, and keeps them until --control-plane=false")
	c.Flags().StringVar(&o.Binaries, "control-plane-binaries", "", "directory of kube-controller-manager and kube-scheduler (default: that of this program, then the PATH)")
	c.Flags().StringArrayVar(&o.Set, "set", nil, "setting for every node, as flag=value (see 'quorate node --help')")
	cli.ExitCodes(c, cli.Note{"130", "a signal came before the playground was ready"})
	cli.Files(c,
		cli.Note{"DATA-DIR/cluster.json", "the nodes: addresses, directories, pids; for programs"},
		cli.Note{"DATA-DIR/kubeconfig", "the administrator's kubeconfig, with a context for every node"},
		cli.Note{"DATA-DIR/n1.yaml, DATA-DIR/n1, DATA-DIR/n1.log", "settings, data directory and log of the first node, and so on"},
		cli.Note{"DATA-DIR/kube-scheduler-n1.log", "log of the kube-scheduler beside the first node, and so on"},
		cli.Note{"DATA-DIR/token", "the cluster's secret"})
	c.AddCommand(devStartCommand(&o), devStopCommand(&o), devStatusCommand(&o), devLogsCommand(&o), devDeleteCommand(&o), devKeepCommand())
	return c
}

// stopped gives the error of what a signal has ended its exit code.
func stopped(err error) error {
	var s playground.Stopped
	if errors.As(err, &s) {
		return cli.ExitError{Code: cli.ExitStopped, Text: s.Error()}
	}
	return err
}

// checkSettings checks --set. What no node would start with is refused here,
// before anything is made.
func checkSettings(set []string) error {
	f := new(settings).flags()
	for _, s := range set {
		name, value, ok := strings.Cut(s, "=")
		switch {
		case !ok:
			return fmt.Errorf("--set %s: must be flag=value", s)
		case f.Lookup(name) == nil:
			return fmt.Errorf("--set %s: there is no setting %q, see 'quorate node --help'%s", s, name, cli.DidYouMean(f, name))
		case playground.Decides(name):
			return fmt.Errorf("--set %s: a playground decides %s by itself", s, name)
		}
		if err := f.Set(name, value); err != nil {
			return fmt.Errorf("--set %s: %s", s, cli.InvalidValue(f.Lookup(name), err))
		}
	}
	return nil
}

// completeNodes completes names of nodes, those that a command can do something with.
func completeNodes(o *playground.Options, wanted func(*playground.Node) bool) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) (out []cobra.Completion, _ cobra.ShellCompDirective) {
		nodes, err := playground.Nodes(o.DataDir)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		for _, n := range nodes {
			if slices.Contains(args, n.Name) || !wanted(n) {
				continue
			}
			state := "stopped"
			if n.Running() {
				state = fmt.Sprintf("runs, pid %d", n.PID)
			}
			out = append(out, cobra.CompletionWithDesc(n.Name, state))
		}
		components, err := playground.Components(o.DataDir)
		if err != nil {
			return out, cobra.ShellCompDirectiveNoFileComp
		}
		for _, m := range components {
			if !slices.Contains(args, m.Name) {
				out = append(out, cobra.CompletionWithDesc(m.Name, "control plane"))
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}
