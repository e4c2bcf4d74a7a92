package playground

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/words"
)

// Options are what a playground is asked for.
type Options struct {
	DataDir string
	// Nodes and Nonvoters are how many; the API of the first is at APIPort of 127.0.0.1, those of
	// the next at the ports that follow.
	Nodes, Nonvoters, APIPort int
	// Kubeconfig is where the administrator's is written. Default: kubeconfig in DataDir.
	Kubeconfig string
	// Detach returns when the cluster is ready, and leaves it running.
	Detach bool
	// ControlPlane runs kube-controller-manager and kube-scheduler beside the nodes, from the directory
	// Binaries, or beside this program or on the PATH. A playground that has them keeps them.
	ControlPlane bool
	Binaries     string
	// ManagerControllers is kube-controller-manager's --controllers beside nodes with a list of their own.
	ManagerControllers func(nodes []string) (string, error)
	// Set are settings for every node, as flag=value. The caller has checked that a node would take them.
	Set []string

	// Backup, if set, is a file of 'quorate snapshot save' with which a Temporary playground
	// begins: in its first node, which starts alone.
	Backup string

	// Partitions and SlowDisks make a Temporary playground one whose nodes can be cut off (Cut)
	// and slowed (Slow): their connections to each other go through this process, and their syncs
	// are asked about.
	Partitions, SlowDisks bool

	// Given are the flags on the command line. An existing playground has its own
	// layout, and a message says so when the flags ask for another.
	Given map[string]bool
}

// readyWithin is how long a playground may take to become ready.
const readyWithin = 60 * time.Second

// kubeconfigFile is where the administrator's kubeconfig is written.
func (o Options) kubeconfigFile() string {
	if o.Kubeconfig == "" {
		return filepath.Join(o.DataDir, "kubeconfig")
	}
	return o.Kubeconfig
}

// layout says what a cluster's first start has decided.
func (c *cluster) layout() string {
	return words.Count(len(c.Nodes), "node", "nodes") + ", with APIs from port " + c.firstPort() + " on"
}

func (c *cluster) firstPort() string {
	return c.Nodes[0].API[strings.LastIndex(c.Nodes[0].API, ":")+1:]
}

// ignoredBy are the flags that were given and that a cluster does not heed, since its
// first start has decided otherwise.
func (o Options) ignoredBy(c *cluster) (out []string) {
	voters := 0
	nonvoters := 0
	for _, n := range c.Nodes {
		if n.isNonvoter() {
			nonvoters++
		} else {
			voters++
		}
	}
	for _, f := range []struct {
		name       string
		asked, has string
	}{
		{"nodes", fmt.Sprint(o.Nodes), fmt.Sprint(voters)},
		{"nonvoters", fmt.Sprint(o.Nonvoters), fmt.Sprint(nonvoters)},
		{"api-port", fmt.Sprint(o.APIPort), c.firstPort()},
	} {
		if o.Given[f.name] && f.asked != f.has {
			out = append(out, "--"+f.name+" "+f.asked)
		}
	}
	for _, s := range o.Set {
		if name, _, _ := strings.Cut(s, "="); firstStartOnly[name] && c.formed() {
			out = append(out, "--set "+s)
		}
	}
	return out
}

// choose returns the nodes with the given names.
func (c *cluster) choose(names []string) (out []*Node, err error) {
	for _, name := range names {
		n := c.node(name)
		if n == nil {
			what := "node"
			if len(c.Components) > 0 {
				what = "node or program"
			}
			return nil, fmt.Errorf("there is no %s %q in %s: it has %s", what, name, rel(c.dir), words.And(c.everything()))
		}
		out = append(out, n)
	}
	return out, nil
}

// choice says which names there are, for who has given none.
func (c *cluster) choice() string {
	return words.Or(c.everything())
}

// everything are the names of the nodes, and of the components beside them.
func (c *cluster) everything() []string {
	out := namesOf(c.Nodes)
	for _, m := range c.Components {
		out = append(out, m.Name)
	}
	return out
}
