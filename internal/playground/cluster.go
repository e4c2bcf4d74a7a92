package playground

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/quorate/quorate/internal/words"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/membership/pki"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/disk"
)

// cluster is cluster.json: what programs need to know of a playground.
type cluster struct {
	Nodes         []*Node    `json:"nodes"`
	Components    components `json:"components,omitempty"`
	Kubeconfig    string     `json:"kubeconfig"`
	CAFile        string     `json:"caFile"`
	AdminCertFile string     `json:"adminCertFile"`
	AdminKeyFile  string     `json:"adminKeyFile"`
	// ServiceAccountKeyFile is the first node's key. All nodes accept the tokens that it signs.
	ServiceAccountKeyFile string `json:"serviceAccountKeyFile"`

	dir string
	// tied nodes end with this process, however it ends.
	tied bool
	means
	// note says which flags a playground that exists has not heeded.
	note string
	// fresh is a cluster that is not on disk yet, replaced are the nodes in whose place
	// it is made.
	fresh    bool
	replaced []*Node
	// broken are the nodes that cannot take part, and why, while the others go on.
	broken map[*Node]error
}

// Node is one node of a playground.
type Node struct {
	Name    string `json:"name"`
	PID     int    `json:"pid"` // 0: it does not run
	API     string `json:"api"`
	Peer    string `json:"peer"`
	DataDir string `json:"dataDir"`
	Log     string `json:"log"`

	advertised string // where the others reach it, if that is not Peer

	child    *exec.Cmd
	logStart int64 // where this run's lines begin in the log
	more     []int // other processes of this node, which should not be
}

// ErrNone is returned for a directory without a cluster.json.
var ErrNone = errors.New("there is no playground cluster")

// errMoved is returned for a playground that was moved or copied: its nodes' files have the
// paths of the first place.
var errMoved = errors.New("was made in")

// Bounds of a playground.
const (
	maxNodes   = 9
	peerOffset = 1000 // from a node's API port to its peer port
)

func clusterFile(dir string) string { return filepath.Join(dir, "cluster.json") }

// Nodes are the nodes of the playground in a directory, with the processes that run now.
func Nodes(dir string) ([]*Node, error) {
	c, err := readCluster(dir)
	if err != nil {
		return nil, err
	}
	c.refresh()
	return c.Nodes, nil
}

// readCluster reads the cluster.json of a playground.
func readCluster(dir string) (*cluster, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(clusterFile(dir))
	if errors.Is(err, syscall.ENOTDIR) {
		return nil, fmt.Errorf("%s is not a directory: give another with --data-dir", rel(dir))
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w in %s: start one with 'quorate dev --data-dir %s'", ErrNone, dir, dir)
	}
	if err != nil {
		return nil, err
	}
	c := &cluster{dir: dir}
	if err = json.Unmarshal(b, c); err == nil {
		err = c.check()
	}
	if errors.Is(err, errMoved) {
		return nil, fmt.Errorf("%s %w", rel(dir), err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s is damaged (%w). To begin again without its data: rm -r %s", clusterFile(dir), err, dir)
	}
	return c, nil
}

var nodeName = regexp.MustCompile(`^n[1-9]$`)

// check refuses a cluster.json that no playground has written. Processes are ended and
// directories removed by what it says.
func (c *cluster) check() error {
	if len(c.Nodes) == 0 {
		return errors.New("it has no nodes")
	}
	for i, n := range c.Nodes {
		if n == nil || !nodeName.MatchString(n.Name) || c.node(n.Name) != n {
			return fmt.Errorf("its node %d has no name of its own", i+1)
		}
		if filepath.Base(n.DataDir) != n.Name || filepath.Dir(n.DataDir) != filepath.Dir(c.Nodes[0].DataDir) {
			return fmt.Errorf("the directory of %s is %q", n.Name, n.DataDir)
		}
	}
	if err := c.checkComponents(); err != nil {
		return err
	}
	made := filepath.Dir(c.Nodes[0].DataDir)
	if made == c.dir {
		return nil
	}
	// Another name of the same directory, a symbolic link for example.
	if sameDir(made, c.dir) {
		c.dir = made
		return nil
	}
	return fmt.Errorf("%w %s, which its files name: move it back there", errMoved, made)
}

func sameDir(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

func (c *cluster) write() error {
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	b = append(b, '\n')
	err = pki.WriteFile(clusterFile(c.dir), b, 0o600)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		// The nodes go on when the disk is full, and are told by this file. It has its room already.
		if inPlace := overwrite(clusterFile(c.dir), b); inPlace == nil {
			return nil
		}
	}
	return err
}

// overwrite writes a file that is there, in place.
func overwrite(file string, b []byte) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Truncate(int64(len(b)))
	}
	return errors.Join(err, f.Close())
}

// openCluster returns the cluster of a data directory. A directory that has none gets
// one: the shared secret, a configuration file per node, certificates, kubeconfig. The
// caller has locked the directory, or made it.
func openCluster(o Options) (*cluster, error) {
	c, err := planCluster(o)
	if err != nil {
		return nil, err
	}
	return c, c.commit(o)
}

// planCluster is the first half of openCluster, which changes nothing: it returns the
// cluster that there is, or the one that is to be made.
func planCluster(o Options) (*cluster, error) {
	dir, err := filepath.Abs(o.DataDir)
	if err != nil {
		return nil, err
	}
	c, err := readCluster(dir)
	if errors.Is(err, ErrNone) {
		if err := checkOwn(dir); err != nil {
			return nil, err
		}
		return newCluster(dir, o)
	}
	if err != nil {
		return nil, err
	}
	c.refresh()
	if len(c.runningNodes()) > 0 {
		return nil, c.alreadyRuns()
	}
	ignored := o.ignoredBy(c)
	if len(ignored) > 0 && !c.formed() {
		// Nothing but its files was made: the ports that were taken at the first start are
		// no reason to stay with them.
		fresh, err := newCluster(c.dir, o)
		if err == nil {
			fresh.replaced = c.Nodes
		}
		return fresh, err
	}
	if len(ignored) > 0 {
		c.note = fmt.Sprintf("%s has %s; ignored: %s\nFor another playground: --data-dir DIR. To make this one again, without its data: %s dev delete --data-dir %s",
			rel(c.dir), c.layout(), strings.Join(ignored, ", "), self(), rel(c.dir))
	}
	return c, nil
}

// commit is the second half of openCluster. Of a cluster that is made, cluster.json is
// written first, so that the directory is known for what it is, whatever happens to this
// process.
func (c *cluster) commit(o Options) error {
	var err error
	set := split(o.Set)
	if c.Kubeconfig, err = filepath.Abs(o.kubeconfigFile()); err != nil {
		return err
	}
	if !c.fresh {
		if c.formed() {
			maps.DeleteFunc(set, func(name, _ string) bool { return firstStartOnly[name] })
		}
		return errors.Join(c.changeSettings(set), c.setArguments(o), c.credentials())
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	for _, n := range c.replaced {
		if err := n.remove(); err != nil {
			return err
		}
	}
	if err := c.write(); err != nil {
		return err
	}
	var voters []string
	for _, n := range c.Nodes[:o.Nodes] {
		voters = append(voters, n.peerForOthers())
	}
	for i, n := range c.Nodes {
		if err := c.writeSettings(n, voters, i >= o.Nodes, set); err != nil {
			return err
		}
	}
	return errors.Join(c.setArguments(o), c.credentials())
}

// checkLayout refuses what no playground can have.
func (o Options) checkLayout() error {
	all := o.Nodes + o.Nonvoters
	switch last := 65535 - peerOffset - all + 1; {
	case o.Nodes < 1 || o.Nodes > maxNodes:
		return fmt.Errorf("--nodes %d: must be 1 to %d", o.Nodes, maxNodes)
	case o.Nonvoters < 0 || all > maxNodes:
		return fmt.Errorf("--nonvoters %d: must be 0 to %d with --nodes %d", o.Nonvoters, maxNodes-o.Nodes, o.Nodes)
	case o.APIPort < 1 || o.APIPort > last:
		return fmt.Errorf("--api-port %d: must be 1 to %d: it needs %s from there on, and %d more %d higher", o.APIPort, last, words.Count(all, "port", "ports"), all, peerOffset)
	}
	return nil
}

// nameOf is the name of a playground's node.
func nameOf(i int) string { return fmt.Sprintf("n%d", i+1) }

// newCluster is a cluster that is to be made.
func newCluster(dir string, o Options) (*cluster, error) {
	if err := o.checkLayout(); err != nil {
		return nil, err
	}
	c := &cluster{dir: dir, fresh: true}
	for i := range o.Nodes + o.Nonvoters {
		name := nameOf(i)
		c.Nodes = append(c.Nodes, &Node{
			Name:    name,
			API:     fmt.Sprintf("https://127.0.0.1:%d", o.APIPort+i),
			Peer:    fmt.Sprintf("127.0.0.1:%d", o.APIPort+peerOffset+i),
			DataDir: filepath.Join(dir, name),
			Log:     filepath.Join(dir, name+".log"),
		})
		if o.Partitions {
			c.Nodes[i].advertised = fmt.Sprintf("127.0.0.1:%d", o.APIPort+2*peerOffset+i)
		}
	}
	return c, nil
}

// credentials makes the shared secret, if there is none, and from it the
// administrator's certificate and kubeconfig.
func (c *cluster) credentials() error {
	secrets, _, err := pki.LoadOrCreateSecrets(filepath.Join(c.dir, "token"))
	if err != nil {
		return err
	}
	dir := filepath.Join(c.dir, "pki")
	admin, err := pki.Open(pki.Options{Dir: dir, Secrets: secrets, AdminOnly: true})
	if err != nil {
		return err
	}
	c.CAFile, c.AdminCertFile, c.AdminKeyFile = filepath.Join(dir, pki.FileAPICA), filepath.Join(dir, pki.FileAdminCert), filepath.Join(dir, pki.FileAdminKey)
	c.ServiceAccountKeyFile = filepath.Join(c.Nodes[0].DataDir, "pki", pki.FileTokenKey)
	cert, key := admin.Admin()
	k := pki.Kubeconfig{CA: admin.APICAs(), Cert: cert, Key: key}
	for _, n := range c.Nodes {
		k.Endpoints = append(k.Endpoints, pki.Endpoint{Name: "quorate-" + n.Name, Server: n.API})
	}
	return k.Write(c.Kubeconfig)
}

// formed reports whether a node has data of a cluster. What cannot be read may be such
// data.
func (c *cluster) formed() bool {
	return slices.ContainsFunc(c.Nodes, func(n *Node) bool {
		id, err := membership.ReadCluster(n.DataDir)
		return err != nil || id != ""
	})
}

// checkData returns, of nodes that are to run together, those that cannot, and why: what they have
// cannot be read, or is of another cluster than the others', for which they would wait for ever. What
// lies in the directory of one that does not run may be of a cluster that is no more, as beside one
// that 'quorate recover' has made a new cluster of (see beside).
func (c *cluster) checkData(together ...*Node) map[*Node]error {
	bad := map[*Node]error{}
	of := map[proto.ClusterID][]string{}
	var ids []proto.ClusterID
	for _, n := range c.Nodes {
		if !slices.Contains(together, n) {
			continue
		}
		id, err := membership.ReadCluster(n.DataDir)
		switch {
		case err != nil:
			bad[n] = fmt.Errorf("%s: %w", n.Name, err)
		case id != "":
			if of[id] == nil {
				ids = append(ids, id)
			}
			of[id] = append(of[id], n.Name)
		}
	}
	slices.SortStableFunc(ids, func(a, b proto.ClusterID) int { return len(of[b]) - len(of[a]) })
	for _, id := range ids[min(1, len(ids)):] {
		for _, name := range of[id] {
			bad[c.node(name)] = fmt.Errorf("the data of %s belongs to cluster %s, that of %s to %s: put its own directory back to %s",
				name, id, words.And(of[ids[0]]), ids[0], rel(c.node(name).DataDir))
		}
	}
	return bad
}

// inOrder joins errors of nodes in the order of the nodes.
func (c *cluster) inOrder(of map[*Node]error) error {
	var errs []error
	for _, n := range c.Nodes {
		errs = append(errs, of[n])
	}
	return errors.Join(errs...)
}

// removed reports whether a node knows that it was removed from the cluster: it would end as soon
// as it is started.
func (n *Node) removed() bool {
	return errors.Is(membership.CheckRemoved(n.DataDir), membership.ErrRemoved)
}

// members are the nodes that were not removed from the cluster.
func (c *cluster) members() []*Node { return c.those(func(n *Node) bool { return !n.removed() }) }

func (c *cluster) those(are func(*Node) bool) (out []*Node) {
	for _, n := range c.Nodes {
		if are(n) {
			out = append(out, n)
		}
	}
	return out
}

// beside are the nodes that will run together when some are started: with those that run,
// and, if none does, with all others, unless one of them was recovered: it begins alone.
func (c *cluster) beside(nodes []*Node) []*Node {
	together := append(c.runningNodes(), nodes...)
	recovered := slices.ContainsFunc(nodes, func(n *Node) bool {
		_, err := os.Stat(filepath.Join(n.DataDir, disk.RecoverAside))
		return err == nil
	})
	if len(together) > len(nodes) || recovered {
		return together
	}
	return c.Nodes
}

func (c *cluster) node(name string) *Node {
	return c.find(func(n *Node) bool { return n.Name == name })
}

// find returns the node that is meant, or nil.
func (c *cluster) find(is func(*Node) bool) *Node {
	if i := slices.IndexFunc(c.Nodes, is); i >= 0 {
		return c.Nodes[i]
	}
	return nil
}

func namesOf(nodes []*Node) (names []string) {
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	return names
}
