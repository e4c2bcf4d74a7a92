package playground

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/quorate/quorate/internal/words"
)

// askWithin bounds what `quorate dev status` waits for a node.
const askWithin = 2 * time.Second

// NodeStatus is a node in `quorate dev status -o json`. Fields are added, never
// changed.
type NodeStatus struct {
	Name    string     `json:"name"`
	Running bool       `json:"running"`
	Removed bool       `json:"removed,omitempty"` // from the cluster, for good
	PID     int        `json:"pid,omitempty"`
	Ready   bool       `json:"ready"`
	Unready string     `json:"unready,omitempty"` // why
	Started *time.Time `json:"started,omitempty"`
	API     string     `json:"api"`
	Log     string     `json:"log"`
}

// Status is that of a playground. Fields are added, never changed.
type Status struct {
	DataDir    string       `json:"dataDir"`
	Kubeconfig string       `json:"kubeconfig"`
	Nodes      []NodeStatus `json:"nodes"`
	// Components are the programs of a control plane beside the nodes.
	Components []ComponentStatus `json:"components,omitempty"`
}

// ComponentStatus is a program of the control plane in `quorate dev status -o json`. Fields are added, never
// changed.
type ComponentStatus struct {
	Name    string `json:"name"`
	Node    string `json:"node"` // beside which it runs
	Running bool   `json:"running"`
	PID     int    `json:"pid,omitempty"`
	// Restarting: it has ended, and is about to be started again.
	Restarting bool   `json:"restarting,omitempty"`
	Log        string `json:"log"`
}

// ReadStatus asks the nodes of a playground how they are.
func ReadStatus(ctx context.Context, dir string) (*Status, error) {
	c, err := readCluster(dir)
	if err != nil {
		return nil, err
	}
	c.refresh()
	st := c.status(ctx)
	return &st, nil
}

// Ready reports whether all nodes run and are ready, but those that were removed from the cluster, and the
// control plane's programs run. Without a node that was not removed, nothing is.
func (st *Status) Ready() bool {
	return !slices.ContainsFunc(st.Components, func(m ComponentStatus) bool { return !m.Running || m.Restarting }) && slices.ContainsFunc(st.Nodes, func(n NodeStatus) bool { return n.Ready }) &&
		!slices.ContainsFunc(st.Nodes, func(n NodeStatus) bool { return !n.Ready && !n.Removed })
}

// status asks all nodes at once.
func (c *cluster) status(ctx context.Context) Status {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	out := Status{DataDir: c.dir, Kubeconfig: c.Kubeconfig, Nodes: make([]NodeStatus, len(c.Nodes))}
	for _, m := range c.Components {
		s := ComponentStatus{Name: m.Name, Node: m.Node, Running: m.PID != 0, PID: m.PID, Log: m.Log}
		s.Restarting = s.Running && !m.keeps()
		out.Components = append(out.Components, s)
	}
	client, clientErr := c.client()
	var wg sync.WaitGroup
	for i, n := range c.Nodes {
		s := &out.Nodes[i]
		*s = NodeStatus{Name: n.Name, Running: n.PID != 0, PID: n.PID, API: n.API, Log: n.Log}
		s.Removed = !s.Running && n.removed()
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
func (n *Node) ask(ctx context.Context, client *http.Client, s *NodeStatus) {
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

// Print writes the status as a table, with what to do next.
func (st *Status) Print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(w, "NAME\tSTATE\tPID\tUP\tAPI\tLOG")
	running, ready := 0, 0
	var stopped, removed []string
	for _, n := range st.Nodes {
		state, pid, up := n.state()
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", n.Name, state, pid, up, n.API, rel(n.Log))
		switch {
		case n.Running:
			running++
		case n.Removed:
			removed = append(removed, n.Name)
		default:
			stopped = append(stopped, n.Name)
		}
		if n.Ready {
			ready++
		}
	}
	down := st.printComponents(w)
	if err := w.Flush(); err != nil {
		return err
	}
	dir := rel(st.DataDir)
	fmt.Fprintf(out, "\n%d of %s run, %d ready\n", running, words.Count(len(st.Nodes)-len(removed), "node", "nodes"), ready)
	if len(removed) > 0 {
		fmt.Fprintf(out, "Removed from the cluster: %s\n", words.And(removed))
	}
	switch {
	case len(removed) == len(st.Nodes):
		fmt.Fprintf(out, "Begin again without their data:  %s dev delete --data-dir %s\n", self(), dir)
	case running == 0:
		fmt.Fprintf(out, "Start:  %s dev --detach --data-dir %s\n", self(), dir)
	case len(stopped) > 0:
		fmt.Fprintf(out, "Start the rest:  %s dev start %s --data-dir %s\n", self(), strings.Join(stopped, " "), dir)
	case len(down) > 0:
		fmt.Fprintf(out, "Start the rest:  %s dev start %s --data-dir %s\n", self(), strings.Join(down, " "), dir)
	default:
		fmt.Fprintf(out, "Roles and lag:  %s status --kubeconfig %s\n", self(), rel(st.Kubeconfig))
	}
	return nil
}

// printComponents adds the control plane's programs to the table, and returns those that do not run.
func (st *Status) printComponents(w io.Writer) (down []string) {
	for _, m := range st.Components {
		state, pid := "runs", fmt.Sprint(m.PID)
		switch {
		case !m.Running:
			state, pid = "stopped", "-"
			down = append(down, m.Name)
		case m.Restarting:
			state = "restarting: see its log"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t-\t-\t%s\n", m.Name, state, pid, rel(m.Log))
	}
	return down
}

// state is a node's in the table.
func (n *NodeStatus) state() (state, pid, up string) {
	switch {
	case n.Removed:
		return "removed", "-", "-"
	case !n.Running:
		return "stopped", "-", "-"
	}
	state, up = "not ready: "+n.Unready, "-"
	if n.Ready {
		state = "ready"
	}
	if n.Started != nil {
		up = time.Since(*n.Started).Round(time.Second).String()
	}
	return state, fmt.Sprint(n.PID), up
}
