package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

// Exit codes of `quorate dev status`, beside 0: those of systemctl and pg_ctl.
const exitNotRunning = 3

// askWithin bounds what `quorate dev status` waits for a node.
const askWithin = 2 * time.Second

// devNodeStatus is a node in `quorate dev status -o json`. Fields are added, never
// changed.
type devNodeStatus struct {
	Name    string     `json:"name"`
	Running bool       `json:"running"`
	PID     int        `json:"pid,omitempty"`
	Ready   bool       `json:"ready"`
	Unready string     `json:"unready,omitempty"` // why
	Started *time.Time `json:"started,omitempty"`
	API     string     `json:"api"`
	Log     string     `json:"log"`
}

// devStatus is the whole answer.
type devStatus struct {
	DataDir    string          `json:"dataDir"`
	Kubeconfig string          `json:"kubeconfig"`
	Nodes      []devNodeStatus `json:"nodes"`
}

func devStatusCommand(o *devOptions) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use: "status", Short: "Show which nodes of a playground cluster run and are ready", Args: cobra.NoArgs,
		Long: `Shows the nodes of a playground: which run, as which process, and which are ready. The
roles of the nodes are in 'quorate status'.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return fmt.Errorf("--output %q: must be table or json", output)
			}
			c, err := readCluster(o.dataDir)
			if err != nil {
				return err
			}
			c.refresh()
			st := c.status(cmd.Context())
			if output == "json" {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				err = e.Encode(st)
			} else {
				err = c.printStatus(cmd.OutOrStdout(), st)
			}
			if err != nil {
				return err
			}
			for _, n := range st.Nodes {
				if !n.Ready {
					return exitError{code: exitNotRunning}
				}
			}
			return nil
		},
	}
	exitCodes(c, note{"3", "not all nodes run and are ready"})
	c.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]cobra.Completion{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// status asks all nodes at once.
func (c *devCluster) status(ctx context.Context) devStatus {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	out := devStatus{DataDir: c.dir, Kubeconfig: c.Kubeconfig, Nodes: make([]devNodeStatus, len(c.Nodes))}
	client, clientErr := c.client()
	var wg sync.WaitGroup
	for i, n := range c.Nodes {
		s := &out.Nodes[i]
		*s = devNodeStatus{Name: n.Name, Running: n.PID != 0, PID: n.PID, API: n.API, Log: n.Log}
		switch {
		case !s.Running:
		case clientErr != nil:
			s.Unready = clientErr.Error()
		default:
			wg.Go(func() { n.ask(ctx, client, s) })
		}
	}
	wg.Wait()
	if client != nil {
		client.CloseIdleConnections()
	}
	return out
}

// ask fills in what only the node itself knows.
func (n *devNode) ask(ctx context.Context, client *http.Client, s *devNodeStatus) {
	p, err := n.process(ctx, client)
	if err == nil && p.PID != n.PID {
		s.Unready = fmt.Sprintf("another process has its port (pid %d)", p.PID)
		return
	}
	if err == nil {
		s.Started = &p.Started
		s.Unready, err = n.unready(ctx, client)
	}
	switch {
	case err == nil:
		s.Ready = s.Unready == ""
	case errors.Is(err, context.DeadlineExceeded):
		s.Unready = fmt.Sprintf("no answer within %s", askWithin)
	default:
		s.Unready = "it does not answer yet"
	}
}

func (c *devCluster) printStatus(out io.Writer, st devStatus) error {
	running, ready := 0, 0
	w := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(w, "NAME\tSTATE\tPID\tUP\tAPI\tLOG")
	for _, n := range st.Nodes {
		state, pid, up := "stopped", "-", "-"
		if n.Running {
			running++
			state, pid = "not ready: "+n.Unready, fmt.Sprint(n.PID)
			if n.Ready {
				ready++
				state = "ready"
			}
			if n.Started != nil {
				up = time.Since(*n.Started).Round(time.Second).String()
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", n.Name, state, pid, up, n.API, rel(n.Log))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	dir := rel(c.dir)
	fmt.Fprintf(out, "\n%d of %s run, %d ready\n", running, count(len(st.Nodes), "node", "nodes"), ready)
	switch {
	case running == 0:
		fmt.Fprintf(out, "Start:  %s dev --detach --data-dir %s\n", self(), dir)
	case running < len(st.Nodes):
		var stopped string
		for _, n := range st.Nodes {
			if !n.Running {
				stopped += " " + n.Name
			}
		}
		fmt.Fprintf(out, "Start the rest:  %s dev start%s --data-dir %s\n", self(), stopped, dir)
	default:
		fmt.Fprintf(out, "Roles and lag:  %s status --kubeconfig %s\n", self(), rel(c.Kubeconfig))
	}
	return nil
}
