package playground

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/quorate/quorate/internal/words"
	"github.com/quorate/quorate/membership/pki"
	"sigs.k8s.io/yaml"
)

// Component is one of the programs of a control plane that run beside the nodes: as on hosts of their own,
// each beside one node, whose API it uses. Of those with the same program one leads.
type Component struct {
	Name    string `json:"name"`    // PROGRAM-NODE
	Node    string `json:"node"`    // beside which it runs, and with which it stops
	Program string `json:"program"` // its file
	// Arguments follow from the settings of the nodes at the last 'quorate dev'.
	Arguments []string `json:"arguments"`
	PID       int      `json:"pid"` // of the process that keeps it running; 0: it does not run
	Log       string   `json:"log"`

	beside *Node // the node of that name
	child  *exec.Cmd
	more   []int // further processes that keep it running, which should not be
}

// maxComponents is beside how many nodes a control plane runs: three of each program survive what three
// voters do.
const maxComponents = 3

var componentName = regexp.MustCompile(`^(kube-controller-manager|kube-scheduler)-(n[1-9])$`)

// program is the name of a component's program.
func (m *Component) program() string { return strings.TrimSuffix(m.Name, "-"+m.Node) }

// componentsDir is where a node keeps the credentials of the components beside it.
func (n *Node) componentsDir() string { return filepath.Join(n.DataDir, "components") }

// kubeconfig of a component. No other has it, so it is known by it in the list of processes.
func (m *Component) kubeconfig() string {
	return pki.ComponentKubeconfig(m.beside.componentsDir(), m.program())
}

// components are those of a playground, or some of them.
type components []*Component

// checkComponents refuses what no playground has written, and finds the nodes.
func (c *cluster) checkComponents() error {
	for i, m := range c.Components {
		if m == nil {
			return fmt.Errorf("its component %d is empty", i+1)
		}
		parts := componentName.FindStringSubmatch(m.Name)
		m.beside = c.node(m.Node)
		if parts == nil || parts[2] != m.Node || m.beside == nil || c.Components.named(m.Name) != m {
			return fmt.Errorf("its component %d has no name of its own", i+1)
		}
	}
	return nil
}

func (of components) named(name string) *Component {
	if i := slices.IndexFunc(of, func(m *Component) bool { return m.Name == name }); i >= 0 {
		return of[i]
	}
	return nil
}

func componentLog(program string, n *Node) string { return program + "-" + n.Name + ".log" }

// planComponents decides which components there are, and finds their programs. A playground that has
// some keeps them, unless it is asked to have none.
func (c *cluster) planComponents(o Options) error {
	if o.Given["control-plane"] && !o.ControlPlane {
		c.Components = nil
	}
	if !o.ControlPlane && len(c.Components) == 0 {
		return nil
	}
	old := c.Components
	c.Components = nil
	for _, program := range pki.Components {
		var file string
		if i := slices.IndexFunc(old, func(m *Component) bool { return m.program() == program }); i >= 0 && o.Binaries == "" {
			file = old[i].Program
		}
		file, err := findProgram(program, o.Binaries, file)
		if err != nil {
			return err
		}
		for _, n := range c.Nodes[:min(maxComponents, len(c.Nodes))] {
			name := program + "-" + n.Name
			c.Components = append(c.Components, &Component{Name: name, Node: n.Name, beside: n, Program: file, Log: filepath.Join(c.dir, componentLog(program, n))})
		}
	}
	return nil
}

// findProgram finds a program where it was last, in a directory, or beside this one and on the PATH.
func findProgram(program, dir, last string) (string, error) {
	var places []string
	if last != "" {
		places = append(places, last)
	}
	if dir != "" {
		places = append(places, filepath.Join(dir, program))
	} else if self, err := os.Executable(); err == nil {
		places = append(places, filepath.Join(filepath.Dir(self), program))
	}
	for _, file := range places {
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return filepath.Abs(file)
		}
	}
	if dir != "" {
		return "", fmt.Errorf("there is no program %s in %s", program, dir)
	}
	file, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Errorf("there is no %s beside %s, nor on the PATH. To build it from Kubernetes' own module: make control-plane; to use one that is there: --control-plane-binaries DIR", program, self())
	}
	return filepath.Abs(file)
}

// beside are the components beside nodes.
func (of components) beside(nodes []*Node) components {
	return slices.DeleteFunc(slices.Clone(of), func(m *Component) bool {
		return !slices.ContainsFunc(nodes, func(n *Node) bool { return n.Name == m.Node })
	})
}

// setArguments decides the flags of the components. Ports are none of what a playground needs of them, and
// of several playgrounds only one could have the usual ones.
func (c *cluster) setArguments(o Options) error {
	if len(c.Components) == 0 {
		return nil
	}
	list, err := c.controllers()
	if err != nil {
		return err
	}
	others, err := o.ManagerControllers(list)
	if err != nil {
		return err
	}
	for _, m := range c.Components {
		m.Arguments = []string{"--kubeconfig=" + m.kubeconfig(), "--secure-port=0"}
		if m.program() == "kube-controller-manager" {
			m.Arguments = append(m.Arguments, "--use-service-account-credentials", "--controllers="+others,
				"--root-ca-file="+filepath.Join(filepath.Dir(m.kubeconfig()), pki.FileComponentCA))
		}
	}
	return c.write()
}

// controllers is the nodes' setting of that name.
func (c *cluster) controllers() ([]string, error) {
	file := c.Nodes[0].settingsFile()
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var settings struct {
		Controllers any `json:"controllers"`
	}
	if err := yaml.Unmarshal(b, &settings); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var list []string
	switch v := settings.Controllers.(type) {
	case nil:
		list = []string{"*"}
	case string:
		list = strings.Split(v, ",")
	case []any:
		for _, x := range v {
			list = append(list, fmt.Sprint(x))
		}
	}
	return list, nil
}

// startComponent starts the process that keeps a component running, and notes its pid.
func (c *cluster) startComponent(m *Component) error {
	child, log, err := c.background(m.Log, append([]string{"dev", KeepCommand, m.kubeconfig(), m.Program}, m.Arguments...)...)
	if err != nil {
		return err
	}
	defer log.Close()
	m.child, child.Dir = child, c.dir
	if err := m.child.Start(); err != nil {
		return fmt.Errorf("start %s: %w", m.Name, err)
	}
	m.PID = m.child.Process.Pid
	return c.write()
}

// startComponents starts those beside nodes that do not run, and calls started for each.
func (c *cluster) startComponents(nodes []*Node, started func(*Component)) error {
	for _, m := range c.Components.beside(nodes) {
		if m.runs() {
			continue
		}
		if err := c.startComponent(m); err != nil {
			return err
		}
		started(m)
	}
	return nil
}

// reap waits for a component's process, if it ends before this one.
func reap(m *Component) { go func() { _ = m.child.Wait() }() }

func (m *Component) runs() bool { return stateOf(m.PID, m.kubeconfig()) != absent }

// componentFile is the kubeconfig of what a process keeps running, or "".
func componentFile(args []string) string {
	for i := 1; i+3 < len(args); i++ {
		if args[i] == "dev" && args[i+1] == KeepCommand {
			return args[i+2]
		}
	}
	return ""
}

// refresh corrects the pids, as a cluster's does.
func (of components) refresh(living map[string][]int) {
	for _, m := range of {
		pids := living[m.kubeconfig()]
		m.more = nil
		switch {
		case len(pids) == 0 && !m.runs():
			m.PID = 0
		case len(pids) > 0 && !slices.Contains(pids, m.PID):
			m.PID = pids[0]
		}
		for _, pid := range pids {
			if pid != m.PID {
				m.more = append(m.more, pid)
			}
		}
	}
}

// stop ends components, as stopAll says.
func (of components) stop(ctx context.Context, out io.Writer) error {
	var running []processes
	for _, m := range of {
		if m.runs() { // with a process that is killed the kernel ends the program that it keeps
			running = append(running, processes{m.Name, m.kubeconfig(), append([]int{m.PID}, m.more...)})
		}
	}
	return stopAll(ctx, out, running)
}

// keeps reports whether the process that keeps a component running has it running now. Where the kernel
// does not say which children a thread has, it does.
func (m *Component) keeps() bool {
	files, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(m.PID), "task", "*", "children"))
	return len(files) == 0 || slices.ContainsFunc(files, func(file string) bool {
		children, err := os.ReadFile(file)
		return err == nil && len(bytes.TrimSpace(children)) > 0
	})
}

// split tells the names of nodes from those of components.
func (c *cluster) split(names []string) (nodes []*Node, of components, err error) {
	var rest []string
	for _, name := range names {
		if m := c.Components.named(name); m != nil {
			of = append(of, m)
		} else {
			rest = append(rest, name)
		}
	}
	nodes, err = c.choose(rest)
	return nodes, of, err
}

// printComponents says where the control plane is.
func (c *cluster) printComponents(out io.Writer) {
	if len(c.Components) == 0 {
		return
	}
	var nodes []string
	for _, m := range c.Components {
		if !slices.Contains(nodes, m.Node) {
			nodes = append(nodes, m.Node)
		}
	}
	fmt.Fprintf(out, "  %s run beside %s; logs %s\n", words.And(pki.Components), words.And(nodes), rel(filepath.Join(c.dir, "kube-*.log")))
}

// Components are the components of the playground in a directory, with the processes that run now.
func Components(dir string) ([]*Component, error) {
	c, err := readCluster(dir)
	if err != nil {
		return nil, err
	}
	c.refresh()
	return c.Components, nil
}
