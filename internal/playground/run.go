package playground

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/words"
)

// Run starts a playground and, unless it is detached, stays until its end. It prints what to do
// next on out, and what it waits for on messages. The error is a Stopped if ctx ended before the
// playground was ready.
func Run(ctx context.Context, o Options, out, messages io.Writer) error {
	began := time.Now()
	var children sync.WaitGroup
	exited := make(chan struct{}, 1)
	c, err := startAll(ctx, o, messages, func(n *Node) {
		if o.Detach {
			return
		}
		children.Go(func() {
			_ = n.child.Wait() // reaps it; how it ended is in its log
			select {
			case exited <- struct{}{}:
			default:
			}
		})
	})
	if err == nil {
		if err = c.waitMost(ctx, messages); err == nil {
			err = c.startControlPlane(ctx, func(m *Component) {
				if !o.Detach {
					children.Go(func() { _ = m.child.Wait() })
				}
			})
		}
		if err == nil {
			c.printNextSteps(out, time.Since(began), o.Detach)
		}
	}
	if err != nil {
		if c != nil {
			err = errors.Join(err, endOurs(ctx, c, io.Discard))
		}
		children.Wait()
		if ctx.Err() != nil {
			return Stopped("stopped before the playground was ready")
		}
		return err
	}
	if o.Detach {
		return nil
	}
	err = watch(ctx, c, exited, out)
	children.Wait()
	return err
}

// startControlPlane starts the components beside the nodes, which are ready: so they have credentials.
func (c *cluster) startControlPlane(ctx context.Context, started func(*Component)) error {
	if len(c.Components) == 0 {
		return nil
	}
	unlock, err := lockPlayground(ctx, c.dir)
	if err != nil {
		return err
	}
	defer unlock()
	return c.startComponents(c.runningNodes(), started)
}

// Stopped is the error of what a signal, or the end of the terminal, has ended before its time.
type Stopped string

// Error implements error.
func (s Stopped) Error() string { return string(s) }

// startAll makes or opens the playground and starts its nodes. With an error it may
// return a cluster too: of that some nodes may run.
func startAll(ctx context.Context, o Options, messages io.Writer, started func(*Node)) (*cluster, error) {
	dir, err := filepath.Abs(o.DataDir)
	if err != nil {
		return nil, err
	}
	made, err := makeDirectory(dir, o)
	if err != nil {
		return nil, err
	}
	unlock, err := lockPlayground(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	c, err := planCluster(o)
	if err == nil {
		err = c.checkStart(o)
	}
	if err != nil {
		// What cannot be made leaves nothing behind, not even the lock.
		if _, none := os.Stat(clusterFile(dir)); errors.Is(none, fs.ErrNotExist) {
			err = errors.Join(err, removeFile(filepath.Join(dir, lockFile)))
			if made {
				err = errors.Join(err, os.Remove(dir))
			}
		}
		return nil, err
	}
	if c.note != "" {
		fmt.Fprintln(messages, c.note)
	}
	if err := c.commit(o); err != nil {
		return nil, err
	}
	for _, n := range c.Nodes {
		if n.removed() {
			fmt.Fprintf(messages, "%s is not started: it was removed from the cluster\n", n.Name)
			continue
		}
		if c.broken[n] != nil {
			continue
		}
		if err := c.start(n); err != nil {
			return c, err
		}
		started(n)
	}
	return c, nil
}

// makeDirectory makes the directory of a new playground, and reports whether it did.
func makeDirectory(dir string, o Options) (made bool, err error) {
	if _, err := readCluster(dir); !errors.Is(err, ErrNone) {
		return false, err
	}
	if other := checkOwn(dir); other != nil {
		// Another command may have made a playground of it since the first look.
		if _, err := readCluster(dir); !errors.Is(err, ErrNone) {
			return false, err
		}
		return false, errors.Join(other, o.checkLayout())
	}
	if err := o.checkLayout(); err != nil {
		return false, err
	}
	_, err = os.Stat(dir)
	made = errors.Is(err, fs.ErrNotExist)
	return made, os.MkdirAll(dir, 0o700)
}

// checkStart refuses a playground whose nodes could not run together now.
func (c *cluster) checkStart(o Options) error {
	nodes := c.members()
	if len(nodes) == 0 {
		return c.allRemoved()
	}
	c.broken = c.checkData(nodes...)
	if len(c.broken) == len(nodes) {
		return c.inOrder(c.broken)
	}
	return errors.Join(c.checkPorts(o, nodes...), c.planComponents(o))
}

// allRemoved is the error of what needs a node that is a member.
func (c *cluster) allRemoved() error {
	return fmt.Errorf("all nodes of %s were removed from their cluster. To begin again without its data: %s dev delete --data-dir %s",
		rel(c.dir), self(), rel(c.dir))
}

// endOurs ends the processes that this one has started, and no others: the playground may
// have been stopped and started again meanwhile.
func endOurs(ctx context.Context, ours *cluster, out io.Writer) error {
	ctx = context.WithoutCancel(ctx)
	unlock, err := lockPlayground(ctx, ours.dir)
	if err != nil { // its directory may be gone; they must end all the same
		return ours.stop(ctx, out)
	}
	defer unlock()
	err = ours.stop(ctx, out)
	if now, readErr := readCluster(ours.dir); readErr == nil {
		now.refresh()
		err = errors.Join(err, now.write())
	}
	return err
}

// supervisePoll is how often a playground in the foreground looks at nodes that are not
// its children, because they were started again.
const supervisePoll = 500 * time.Millisecond

// watch stays until the end of a playground in the foreground, and says which nodes
// exit and come back. When ctx ends, it stops them all.
func watch(ctx context.Context, c *cluster, exited <-chan struct{}, out io.Writer) error {
	tick := time.NewTicker(supervisePoll)
	defer tick.Stop()
	pids := map[string]int{} // of those that ran when they were last looked at
	for _, n := range c.Nodes {
		pids[n.Name] = n.PID
	}
	for {
		select {
		case <-ctx.Done():
			fmt.Fprintln(out, "stopping")
			return endAll(ctx, c)
		case <-exited:
		case <-tick.C:
		}
		now, err := readCluster(c.dir)
		if err != nil { // deleted, which stops it first
			now = c
		}
		now.refresh()
		for _, n := range now.Nodes {
			switch before := pids[n.Name]; {
			case n.PID == before:
			case n.PID == 0 && n.removed():
				fmt.Fprintf(out, "%s was removed from the cluster, and has ended. Its log: %s\n", n.Name, rel(n.Log))
			case n.PID == 0:
				fmt.Fprintf(out, "%s has exited. Its log: %s\nStart it again:  %s dev start %s --data-dir %s\n", n.Name, rel(n.Log), self(), n.Name, rel(c.dir))
			default:
				fmt.Fprintf(out, "%s runs again (pid %d)\n", n.Name, n.PID)
			}
			pids[n.Name] = n.PID
		}
		// `dev stop` in another terminal ends this one too.
		if len(now.runningNodes()) == 0 {
			fmt.Fprintln(out, "all nodes have stopped")
			// The control plane's programs would wait for nodes for ever.
			return endAll(ctx, c)
		}
	}
}

// endAll stops all of a playground: nodes that were started again meanwhile are its own too.
func endAll(ctx context.Context, c *cluster) error {
	ctx = context.WithoutCancel(ctx)
	now, unlock, err := lockCluster(ctx, c.dir)
	if err != nil { // deleted
		return c.stop(ctx, io.Discard)
	}
	defer unlock()
	return now.stopAndNote(ctx, io.Discard)
}

// alreadyRuns is the refusal to start a playground of which nodes run.
func (c *cluster) alreadyRuns() error {
	var who []string
	for _, n := range c.runningNodes() {
		who = append(who, fmt.Sprintf("%s (pid %d)", n.Name, n.PID))
	}
	dir := rel(c.dir)
	if not := c.stopped(); len(not) > 0 {
		return fmt.Errorf("%s is running already: %s. To start the rest: %s dev start %s --data-dir %s", dir, words.And(who), self(), strings.Join(not, " "), dir)
	}
	return fmt.Errorf("%s is running already: %s. To stop it: %s dev stop --data-dir %s", dir, words.And(who), self(), dir)
}

func (c *cluster) printNextSteps(out io.Writer, took time.Duration, detached bool) {
	nodes := c.members()
	count := words.Count(len(nodes), "node", "nodes")
	if len(c.broken) > 0 {
		count = fmt.Sprintf("%d of %s", len(nodes)-len(c.broken), count)
	}
	fmt.Fprintf(out, "\nQuorate is ready: %s in %.1f s\n\n", count, took.Seconds())
	for _, n := range nodes {
		state := fmt.Sprintf("pid %-7d", n.PID)
		if n.PID == 0 {
			state = "does not run"
		}
		fmt.Fprintf(out, "  %-4s %s   %s log %s\n", n.Name, n.API, state, rel(n.Log))
	}
	c.printComponents(out)
	for _, n := range nodes {
		if err := c.broken[n]; err != nil {
			fmt.Fprintf(out, "\n%v\n%s\n", err, c.wayOut(n, err))
		}
	}
	kubeconfig, dir := rel(c.Kubeconfig), rel(c.dir)
	nodes = slices.DeleteFunc(nodes, func(n *Node) bool { return c.broken[n] != nil })
	first, last := nodes[0], nodes[len(nodes)-1].Name
	// The variable counts in other directories, too.
	fmt.Fprintf(out, `
Use it:          export KUBECONFIG=%s
                 kubectl create configmap hello --from-literal=to=world
Another node:    kubectl --context quorate-%s get configmap hello -o yaml
See the nodes:   %s status --kubeconfig %s
`, c.Kubeconfig, last, self(), kubeconfig)
	if len(c.broken) == 0 {
		fmt.Fprintf(out, `Break it:        kill -9 %d && kubectl --context quorate-%s get configmaps
Mend it:         %s dev start %s --data-dir %s
`, first.PID, last, self(), first.Name, dir)
	}
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
