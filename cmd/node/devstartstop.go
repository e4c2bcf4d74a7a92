package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

func devStartCommand(o *devOptions) *cobra.Command {
	return &cobra.Command{
		Use: "start NODE...", Short: "Start stopped or killed nodes of a playground cluster", Args: cobra.ArbitraryArgs,
		Long: `Starts nodes of a playground that were stopped or killed, and waits until they are
ready; if too few run for a quorum, until they serve, and says which are stopped. All
of a playground that does not run: quorate dev --detach.`,
		ValidArgsFunction: completeNodes(o, func(n *devNode) bool { return !n.running() }),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := startNodes(cmd.Context(), o.dataDir, args)
			if err != nil {
				return err
			}
			nodes, err := c.choose(args)
			if err != nil {
				return err
			}
			lack, err := c.waitServing(cmd.Context(), cmd.ErrOrStderr(), nodes...)
			if err != nil {
				if cmd.Context().Err() != nil {
					return exitError{code: exitStopped, text: fmt.Sprintf("%s may not be ready yet: %s dev status --data-dir %s", inWords(args), self(), rel(c.dir))}
				}
				return err
			}
			state := "is ready"
			if lack != "" {
				state = "serves"
			}
			for _, n := range nodes {
				fmt.Fprintf(cmd.OutOrStdout(), "%s %s (pid %d)\n", n.Name, state, n.PID)
			}
			if lack != "" {
				fmt.Fprintln(cmd.OutOrStdout(), lack)
			}
			return nil
		},
	}
}

// startNodes starts the nodes of that name, under the playground's lock: of several
// commands at once one starts a node.
func startNodes(ctx context.Context, dir string, names []string) (*devCluster, error) {
	c, unlock, err := lockCluster(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if len(names) == 0 {
		return nil, fmt.Errorf("which node? %s: %s dev start %s --data-dir %s", c.choice(), self(), c.Nodes[0].Name, rel(c.dir))
	}
	nodes, err := c.choose(names)
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		if n.running() {
			return nil, fmt.Errorf("%s is running already (pid %d)", n.Name, n.PID)
		}
	}
	if err := errors.Join(c.checkData(c.beside(nodes)...), c.checkPorts(devOptions{}, nodes...)); err != nil {
		return nil, err
	}
	for _, n := range nodes {
		if err := c.start(n); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func devStopCommand(o *devOptions) *cobra.Command {
	return &cobra.Command{
		Use: "stop [NODE...]", Short: "Stop a playground cluster, or some of its nodes", Args: cobra.ArbitraryArgs,
		Long: `Stops all nodes of a playground, or those that are named, and waits until they are
gone. A 'quorate dev' in the foreground ends with its last node. What does not run
is no error.`,
		ValidArgsFunction: completeNodes(o, (*devNode).running),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, unlock, err := lockCluster(cmd.Context(), o.dataDir)
			if err != nil {
				return err
			}
			defer unlock()
			nodes, err := c.choose(args)
			if err != nil {
				return err
			}
			if len(args) == 0 && len(c.runningNodes()) == 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "nothing runs in %s\n", rel(c.dir))
				return nil
			}
			for _, n := range nodes {
				if !n.running() {
					fmt.Fprintf(cmd.OutOrStdout(), "%s does not run\n", n.Name)
				}
			}
			return c.stopAndNote(cmd.Context(), cmd.OutOrStdout(), nodes...)
		},
	}
}

// stopAndNote is stop, after which cluster.json has the pids of who is left.
func (c *devCluster) stopAndNote(ctx context.Context, out io.Writer, nodes ...*devNode) error {
	err := c.stop(ctx, out, nodes...)
	c.refresh()
	return errors.Join(err, c.write())
}
