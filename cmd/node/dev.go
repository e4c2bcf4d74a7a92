package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
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
}

// readyWithin is how long a playground may take to become ready.
const readyWithin = 60 * time.Second

// devCommand runs a playground cluster: real node processes on loopback, started
// in the same way as nodes on hosts of their own.
func devCommand() *cobra.Command {
	o := devOptions{}
	c := &cobra.Command{
		Use:   "dev",
		Short: "Run a playground cluster on loopback",
		Long: `Starts N real node processes on this machine, makes their certificates and a
kubeconfig, waits until they serve, and prints what to do next. Node i has its API
on 127.0.0.1:P+i-1. The data stays in the data directory: the same command starts
the same cluster again.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDev(cmd.Context(), o, cmd.OutOrStdout()) },
	}
	c.PersistentFlags().StringVar(&o.dataDir, "data-dir", ".quorate", "where the cluster keeps everything")
	c.Flags().IntVar(&o.nodes, "nodes", 3, "number of nodes; an existing cluster keeps its own")
	c.Flags().IntVar(&o.nonvoters, "nonvoters", 0, "number of nodes without a vote, beside those of --nodes; an existing cluster keeps its own")
	c.Flags().StringVar(&o.kubeconfig, "kubeconfig", "", "where to write the administrator's kubeconfig (default: DATA-DIR/kubeconfig)")
	c.Flags().IntVar(&o.apiPort, "api-port", 6443, "port of the first node's API; node i listens on P+i-1, its peer port is 1000 higher")
	c.Flags().BoolVar(&o.detach, "detach", false, "return when the cluster is ready and leave it running")
	c.Flags().StringArrayVar(&o.set, "set", nil, "setting for every node, as flag=value (see 'quorate node --help')")
	c.AddCommand(
		&cobra.Command{
			Use: "stop", Short: "Stop a playground cluster", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				cluster, err := readCluster(o.dataDir)
				if err != nil {
					return err
				}
				return cluster.stop(cmd.Context(), cmd.OutOrStdout())
			},
		},
		&cobra.Command{
			Use: "start NODE", Short: "Start a stopped or killed node of a playground cluster", Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				cluster, err := readCluster(o.dataDir)
				if err != nil {
					return err
				}
				n := cluster.node(args[0])
				if n == nil {
					return fmt.Errorf("there is no node %q in %s: it has %s", args[0], o.dataDir, strings.Join(cluster.names(), ", "))
				}
				if n.running() {
					return fmt.Errorf("%s is running (pid %d)", n.Name, n.PID)
				}
				if err := cluster.start(n); err != nil {
					return err
				}
				if err := cluster.waitReady(cmd.Context(), n); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s is ready (pid %d)\n", n.Name, n.PID)
				return nil
			},
		},
	)
	return c
}

func runDev(ctx context.Context, o devOptions, out io.Writer) error {
	began := time.Now()
	if o.kubeconfig == "" {
		o.kubeconfig = filepath.Join(o.dataDir, "kubeconfig")
	}
	cluster, err := openCluster(o)
	if err != nil {
		return err
	}
	for _, n := range cluster.Nodes {
		if n.running() {
			return fmt.Errorf("%s of %s is running already (pid %d); stop it with: %s dev stop --data-dir %s", n.Name, o.dataDir, n.PID, self(), o.dataDir)
		}
	}
	var children sync.WaitGroup
	exited := make(chan *devNode, len(cluster.Nodes))
	for _, n := range cluster.Nodes {
		if err := cluster.start(n); err != nil {
			return errors.Join(err, cluster.stop(context.WithoutCancel(ctx), io.Discard))
		}
		if o.detach {
			continue
		}
		children.Add(1)
		go func() {
			defer children.Done()
			_ = n.child.Wait() // reaps it; how it ended is in its log
			exited <- n
		}()
	}
	if err := cluster.waitReady(ctx, cluster.Nodes...); err != nil {
		return errors.Join(err, cluster.stop(context.WithoutCancel(ctx), io.Discard))
	}
	cluster.printNextSteps(out, time.Since(began), o.detach)
	if o.detach {
		return nil
	}
	stop, cancel := signal.NotifyContext(ctx, syscall.SIGHUP)
	defer cancel()
	for {
		select {
		case n := <-exited:
			fmt.Fprintf(out, "%s has exited. Its log: %s\nStart it again:  %s dev start %s --data-dir %s\n", n.Name, rel(n.Log), self(), n.Name, o.dataDir)
			// `dev stop` in another terminal ends this one too. A node that was started
			// again meanwhile is in cluster.json.
			if current, err := readCluster(o.dataDir); err == nil && current.down() {
				children.Wait()
				fmt.Fprintln(out, "all nodes have stopped")
				return nil
			}
		case <-stop.Done():
			fmt.Fprintln(out, "stopping")
			// A node that was started again meanwhile is in cluster.json.
			if current, err := readCluster(o.dataDir); err == nil {
				cluster = current
			}
			err := cluster.stop(context.WithoutCancel(ctx), io.Discard)
			children.Wait()
			return err
		}
	}
}

func (c *devCluster) printNextSteps(out io.Writer, took time.Duration, detached bool) {
	fmt.Fprintf(out, "\nQuorate is ready: %d nodes in %.1f s\n\n", len(c.Nodes), took.Seconds())
	for _, n := range c.Nodes {
		fmt.Fprintf(out, "  %-4s %s   pid %-7d log %s\n", n.Name, n.API, n.PID, rel(n.Log))
	}
	kubeconfig, dir := rel(c.Kubeconfig), rel(c.dir)
	last := c.Nodes[len(c.Nodes)-1].Name
	fmt.Fprintf(out, `
Use it:          export KUBECONFIG=%s
                 kubectl create configmap hello --from-literal=to=world
Another node:    kubectl --context quorate-%s get configmap hello -o yaml
See the nodes:   %s status --kubeconfig %s
Break it:        kill -9 %d && kubectl --context quorate-%s get configmaps
Mend it:         %s dev start %s --data-dir %s
`, kubeconfig, last, self(), kubeconfig, c.Nodes[0].PID, last, self(), c.Nodes[0].Name, dir)
	if detached {
		fmt.Fprintf(out, "Stop:            %s dev stop --data-dir %s\n", self(), dir)
	} else {
		fmt.Fprintf(out, "Stop:            Ctrl-C\n")
	}
	fmt.Fprintln(out)
}

// self is this program as it was called, so that what is printed can be pasted
// where it is not on the PATH.
func self() string { return os.Args[0] }

// rel shortens a path for people if it lies below the working directory.
func rel(path string) string {
	if wd, err := os.Getwd(); err == nil {
		if r, err := filepath.Rel(wd, path); err == nil && !strings.HasPrefix(r, "..") {
			return r
		}
	}
	return path
}
