package playground

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// exited is the error of a node that has ended while it was waited for.
type exited struct {
	node *Node
	why  string
}

func (e exited) Error() string { return e.node.Name + " has exited" + e.why }

// lostData is the error of a node that runs without the data that it had: as a new node it waits to be
// let in, and its address belongs to the member that it was.
type lostData struct{ node *Node }

func (e lostData) Error() string {
	return fmt.Sprintf("%s has lost its data, and waits: its address %s belongs to the member that it was before", e.node.Name, e.node.peerForOthers())
}

// waitMost waits until all nodes are ready that can be. Those that cannot are noted in broken; it is an
// error if the others are too few for a quorum.
func (c *cluster) waitMost(ctx context.Context, messages io.Writer) error {
	w, err := c.newWait(messages)
	if err != nil {
		return err
	}
	defer w.end()
	within, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	var lacking string
	for _, n := range c.members() {
		if c.broken[n] != nil {
			continue
		}
		lack, err := w.until(within, n, true)
		lacking = cmp.Or(lacking, lack)
		switch {
		case err == nil:
		case errors.As(err, new(exited)), errors.As(err, new(lostData)):
			c.broken[n] = err
		default:
			return err
		}
	}
	c.refresh() // of those that have exited nothing runs
	switch {
	case lacking != "" && len(c.broken) > 0:
		return errors.Join(c.inOrder(c.broken), fmt.Errorf("%s\nIf too many have lost their data for good: %s recover --help, or, to begin again without data: %s dev delete --data-dir %s",
			lacking, self(), self(), rel(c.dir)))
	case lacking != "":
		return errors.New(lacking)
	case len(c.broken) == len(c.members()):
		return c.inOrder(c.broken)
	}
	return nil
}

// withWayOut adds to the error of a node that cannot take part what to do, if another node is ready:
// then there is a quorum, which can do without it.
func (c *cluster) withWayOut(ctx context.Context, err error) error {
	var n *Node
	var e exited
	var l lostData
	switch {
	case errors.As(err, &e):
		n = e.node
	case errors.As(err, &l):
		n = l.node
	default:
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	now, readErr := readCluster(c.dir)
	client, clientErr := c.client()
	if readErr != nil || clientErr != nil {
		return err
	}
	defer client.CloseIdleConnections()
	now.refresh()
	for _, other := range now.runningNodes() {
		if other.Name == n.Name {
			continue
		}
		if unready, failed := other.unready(ctx, client); failed == nil && unready == "" {
			return fmt.Errorf("%w\n%s", err, c.wayOut(n, err))
		}
	}
	return err
}

// wayOut says how a node that cannot take part becomes a member again, while the others run. All data
// of the cluster are theirs, too.
func (c *cluster) wayOut(n *Node, why error) string {
	remove := fmt.Sprintf("%s member remove %s --kubeconfig %s", self(), n.Name, rel(c.Kubeconfig))
	if errors.As(why, new(lostData)) {
		return "Remove that member, and it joins with the data of the others:\n                 " + remove
	}
	start := fmt.Sprintf("%s dev start %s --data-dir %s", self(), n.Name, rel(c.dir))
	aside := n.DataDir + ".aside"
	for i := 2; ; i++ {
		if _, err := os.Lstat(aside); err != nil {
			break
		}
		aside = fmt.Sprintf("%s.aside%d", n.DataDir, i)
	}
	return fmt.Sprintf(`When the cause is gone:
                 %s
If its data are damaged, or another cluster's: remove the member, and let it join with the data of the others:
                 mv %s %s
                 %s
                 %s`, start, rel(n.DataDir), rel(aside), remove, start)
}
