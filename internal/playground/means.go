package playground

import (
	"errors"
	"fmt"

	"github.com/quorate/quorate/internal/relay"
	"github.com/quorate/quorate/internal/slowsync"
)

// means are what some faults need, from the first start of the nodes on. The zero value is none.
type means struct {
	network *relay.Network
	disks   map[string]*slowsync.Disk // by node
}

// newMeans makes what a playground is asked to have, or says what this machine lacks.
func newMeans(o Options) (m means, err error) {
	if o.Partitions {
		if err := relay.Check(); err != nil {
			return m, fmt.Errorf("a node cannot be cut off here: %w", err)
		}
		m.network = relay.New()
	}
	if !o.SlowDisks {
		return m, nil
	}
	m.disks = map[string]*slowsync.Disk{}
	for i := range o.Nodes + o.Nonvoters {
		d, err := slowsync.New()
		if err != nil {
			return means{}, errors.Join(fmt.Errorf("a disk cannot be slow here: %w", err), m.close())
		}
		m.disks[nameOf(i)] = d
	}
	return m, nil
}

// listen begins to accept what nodes send to each other.
func (m means) listen(nodes []*Node) error {
	if m.network == nil {
		return nil
	}
	for _, n := range nodes {
		if err := m.network.Listen(n.Name, n.advertised, n.Peer); err != nil {
			return err
		}
	}
	return nil
}

// start starts a node's child.
func (m means) start(n *Node) error {
	begin := n.child.Start
	if d := m.disks[n.Name]; d != nil {
		begin = func() error { return d.Start(n.child) }
	}
	if err := begin(); err != nil {
		return err
	}
	n.PID = n.child.Process.Pid
	if m.network != nil {
		return m.network.Runs(n.Name, n.PID)
	}
	return nil
}

// ended says that a node's process is gone.
func (m means) ended(n *Node) error {
	if m.network == nil {
		return nil
	}
	return m.network.Ended(n.Name)
}

// mend ends all that was done.
func (m means) mend() error {
	var errs []error
	for name, d := range m.disks {
		if _, err := d.Delay(0); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	if m.network != nil {
		m.network.HealAll()
	}
	return errors.Join(errs...)
}

// close ends the means, after the nodes.
func (m means) close() error {
	var errs []error
	for _, d := range m.disks {
		errs = append(errs, d.Close())
	}
	if m.network != nil {
		errs = append(errs, m.network.Close())
	}
	return errors.Join(errs...)
}

// peerForOthers is the address at which the other nodes reach this one.
func (n *Node) peerForOthers() string {
	if n.advertised != "" {
		return n.advertised
	}
	return n.Peer
}
