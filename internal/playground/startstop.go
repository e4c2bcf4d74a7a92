package playground

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/quorate/quorate/internal/words"
)

// Start starts nodes that were stopped or killed, and waits until they are ready; if too few run
// for a quorum, until they serve. What runs is no error. The error is a Stopped if ctx ended first.
func Start(ctx context.Context, dir string, names []string, out, messages io.Writer) error {
	c, ran, err := startNodes(ctx, dir, names)
	if err != nil {
		return err
	}
	nodes, components, err := c.split(names)
	if err != nil {
		return err
	}
	lack, err := c.waitReady(ctx, messages, true, nodes...)
	if err != nil {
		if ctx.Err() != nil {
			return Stopped(fmt.Sprintf("%s may not be ready yet: %s dev status --data-dir %s", words.And(names), self(), rel(c.dir)))
		}
		return c.withWayOut(ctx, err)
	}
	state := "is ready"
	if lack != "" {
		state = "serves"
	}
	for _, n := range nodes {
		if slices.Contains(ran, n.Name) {
			fmt.Fprintf(out, "%s is running already (pid %d)\n", n.Name, n.PID)
			continue
		}
		fmt.Fprintf(out, "%s %s (pid %d)\n", n.Name, state, n.PID)
	}
	for _, m := range components {
		if slices.Contains(ran, m.Name) {
			fmt.Fprintf(out, "%s is running already (pid %d)\n", m.Name, m.PID)
		}
	}
	// They have an API from the beginning, and credentials.
	if err := startBeside(ctx, dir, nodes, components, out); err != nil {
		return err
	}
	if lack != "" {
		fmt.Fprintln(out, lack)
	}
	return nil
}

// startBeside starts components, and those beside nodes that do not run, under the playground's lock.
func startBeside(ctx context.Context, dir string, nodes []*Node, components []*Component, out io.Writer) error {
	c, unlock, err := lockCluster(ctx, dir)
	if err != nil {
		return err
	}
	defer unlock()
	started := func(m *Component) {
		reap(m)
		fmt.Fprintf(out, "%s runs (pid %d)\n", m.Name, m.PID)
	}
	for _, m := range components {
		if m := c.Components.named(m.Name); m != nil && !m.runs() {
			if err := c.startComponent(m); err != nil {
				return err
			}
			started(m)
		}
	}
	return c.startComponents(nodes, started)
}

// startNodes starts the nodes of that name, under the playground's lock: of several
// commands at once one starts a node. ran are the names of what ran before.
func startNodes(ctx context.Context, dir string, names []string) (c *cluster, ran []string, err error) {
	c, unlock, err := lockCluster(ctx, dir)
	if err != nil {
		return nil, nil, err
	}
	defer unlock()
	if len(names) == 0 {
		return nil, nil, fmt.Errorf("which node? %s: %s dev start %s --data-dir %s", c.choice(), self(), c.Nodes[0].Name, rel(c.dir))
	}
	named, components, err := c.split(names)
	if err != nil {
		return nil, nil, err
	}
	for _, m := range components {
		if m.runs() {
			ran = append(ran, m.Name)
		}
	}
	var nodes []*Node
	for _, n := range named {
		if n.Running() {
			ran = append(ran, n.Name)
			continue
		}
		nodes = append(nodes, n)
		if n.removed() {
			return nil, nil, fmt.Errorf("%s was removed from the cluster. To let it join again, without its data: rm -r %s && %s dev start %s --data-dir %s",
				n.Name, rel(n.DataDir), self(), n.Name, rel(c.dir))
		}
	}
	if len(nodes) == 0 {
		return c, ran, nil
	}
	bad := c.checkData(c.beside(nodes)...)
	for _, n := range nodes {
		if err := bad[n]; err != nil {
			return nil, nil, fmt.Errorf("%w\n%s", err, c.wayOut(n, err))
		}
	}
	if err := c.checkPorts(Options{}, nodes...); err != nil {
		return nil, nil, err
	}
	for _, n := range nodes {
		if err := c.start(n); err != nil {
			return nil, nil, err
		}
	}
	return c, ran, nil
}

// Stop stops the nodes of these names, or all, and waits until they are gone. What does not run is no
// error.
func Stop(ctx context.Context, dir string, names []string, out io.Writer) error {
	c, unlock, err := lockCluster(ctx, dir)
	if err != nil {
		return err
	}
	defer unlock()
	nodes, components, err := c.split(names)
	if err != nil {
		return err
	}
	if len(names) == 0 && len(c.runningNodes()) == 0 && !slices.ContainsFunc(c.Components, (*Component).runs) {
		fmt.Fprintf(out, "nothing runs in %s\n", rel(c.dir))
		return nil
	}
	for _, m := range components {
		if !m.runs() {
			fmt.Fprintf(out, "%s does not run\n", m.Name)
		}
	}
	if err := components.stop(ctx, out); err != nil || len(names) > 0 && len(nodes) == 0 {
		c.refresh()
		return errors.Join(err, c.write())
	}
	for _, n := range nodes {
		if !n.Running() {
			fmt.Fprintf(out, "%s does not run\n", n.Name)
		}
	}
	return c.stopAndNote(ctx, out, nodes...)
}

// stopAndNote is stop, after which cluster.json has the pids of who is left.
func (c *cluster) stopAndNote(ctx context.Context, out io.Writer, nodes ...*Node) error {
	err := c.stop(ctx, out, nodes...)
	c.refresh()
	return errors.Join(err, c.write())
}
