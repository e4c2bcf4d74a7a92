package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// devOptions are the flags of `quorate dev`.
type devOptions struct {
	nodes      int
	nonvoters  int
	dataDir    string
	kubeconfig string
	apiPort    int
	detach     bool
	set        []string

	// given are the flags on the command line. An existing playground has its own
	// layout, and anyone who asks for another is told.
	given map[string]bool
}

// readyWithin is how long a playground may take to become ready.
const readyWithin = 60 * time.Second

// kubeconfigFile is where the administrator's kubeconfig is written.
func (o devOptions) kubeconfigFile() string {
	if o.kubeconfig == "" {
		return filepath.Join(o.dataDir, "kubeconfig")
	}
	return o.kubeconfig
}

// devCommand runs a playground cluster: real node processes on loopback, started
// in the same way as nodes on hosts of their own.
func devCommand() *cobra.Command {
	o := devOptions{}
	c := &cobra.Command{
		Use:   "dev",
		Short: "Run a playground cluster on loopback",
		Long: `Starts N real node processes on this machine, makes their certificates and a
kubeconfig, waits until they serve, and prints what to do next. The first node has
its API on 127.0.0.1 at --api-port, the next ones at the ports that follow; their
peer ports are 1000 higher.

The data stays in the data directory: the same command starts the same cluster
again. Without --detach the nodes stop with this command, at Ctrl-C or with its
terminal.`,
		Example: `  quorate dev                          # three nodes; Ctrl-C stops them
  quorate dev --detach && quorate dev status
  quorate dev stop n1 && quorate dev logs n2 --follow
  quorate dev start n1
  quorate dev stop && quorate dev delete`,
		Args: onlySubcommands,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.given = map[string]bool{}
			cmd.Flags().Visit(func(f *pflag.Flag) { o.given[f.Name] = true })
			return runDev(cmd.Context(), o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	c.SetFlagErrorFunc(flagError)
	// What other programs call it.
	c.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "port" {
			name = "api-port"
		}
		return pflag.NormalizedName(name)
	})
	c.PersistentFlags().StringVar(&o.dataDir, "data-dir", ".quorate", "where the cluster keeps everything")
	c.Flags().IntVar(&o.nodes, "nodes", 3, "number of nodes; an existing cluster keeps its own")
	c.Flags().IntVar(&o.nonvoters, "nonvoters", 0, "number of nodes without a vote, beside those of --nodes; an existing cluster keeps its own")
	c.Flags().StringVar(&o.kubeconfig, "kubeconfig", "", "where to write the administrator's kubeconfig (default: DATA-DIR/kubeconfig)")
	c.Flags().IntVarP(&o.apiPort, "api-port", "p", 6443, "port of the first node's API (also --port); an existing cluster keeps its own")
	c.Flags().BoolVar(&o.detach, "detach", false, "return when the cluster is ready and leave it running")
	c.Flags().StringArrayVar(&o.set, "set", nil, "setting for every node, as flag=value (see 'quorate node --help')")
	exitCodes(c, note{"130", "a signal came before the playground was ready"})
	files(c,
		note{"DATA-DIR/cluster.json", "the nodes: addresses, directories, pids; for programs"},
		note{"DATA-DIR/kubeconfig", "the administrator's kubeconfig, with a context for every node"},
		note{"DATA-DIR/n1.yaml, DATA-DIR/n1, DATA-DIR/n1.log", "settings, data directory and log of the first node, and so on"},
		note{"DATA-DIR/token", "the cluster's secret"})
	c.AddCommand(devStartCommand(&o), devStopCommand(&o), devStatusCommand(&o), devLogsCommand(&o), devDeleteCommand(&o))
	return c
}

// layout says what a cluster's first start has decided.
func (c *devCluster) layout() string {
	return count(len(c.Nodes), "node", "nodes") + ", with APIs from port " + c.firstPort() + " on"
}

func (c *devCluster) firstPort() string {
	return c.Nodes[0].API[strings.LastIndex(c.Nodes[0].API, ":")+1:]
}

// ignoredBy are the flags that were given and that a cluster does not heed, since its
// first start has decided otherwise.
func (o devOptions) ignoredBy(c *devCluster) (out []string) {
	voters := 0
	nonvoters := 0
	for _, n := range c.Nodes {
		if c.isNonvoter(n) {
			nonvoters++
		} else {
			voters++
		}
	}
	for _, f := range []struct {
		name       string
		asked, has string
	}{
		{"nodes", fmt.Sprint(o.nodes), fmt.Sprint(voters)},
		{"nonvoters", fmt.Sprint(o.nonvoters), fmt.Sprint(nonvoters)},
		{"api-port", fmt.Sprint(o.apiPort), c.firstPort()},
	} {
		if o.given[f.name] && f.asked != f.has {
			out = append(out, "--"+f.name+" "+f.asked)
		}
	}
	for _, s := range o.set {
		if name, _, _ := strings.Cut(s, "="); firstStartOnly[name] && c.formed() {
			out = append(out, "--set "+s)
		}
	}
	return out
}

// completeNodes completes names of nodes, those that a command can do something with.
func completeNodes(o *devOptions, wanted func(*devNode) bool) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) (out []cobra.Completion, _ cobra.ShellCompDirective) {
		c, err := readCluster(o.dataDir)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c.refresh()
		for _, n := range c.Nodes {
			given := false
			for _, a := range args {
				given = given || a == n.Name
			}
			if !given && wanted(n) {
				state := "stopped"
				if n.running() {
					state = fmt.Sprintf("runs, pid %d", n.PID)
				}
				out = append(out, cobra.CompletionWithDesc(n.Name, state))
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// choose returns the nodes with the given names.
func (c *devCluster) choose(names []string) (out []*devNode, err error) {
	for _, name := range names {
		n := c.node(name)
		if n == nil {
			return nil, fmt.Errorf("there is no node %q in %s: it has %s", name, rel(c.dir), inWords(c.names()))
		}
		out = append(out, n)
	}
	return out, nil
}

// choice says which names there are, for who has given none.
func (c *devCluster) choice() string {
	names := c.names()
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
