// Program pods has a control plane run Pods on Nodes that KWOK plays, and says how long they took to run and
// what the servers used for each. Then it has the servers restarted in turn, if it is told how, and says
// what became of the objects, and what the control plane's programs read again. bench/pods.sh starts
// servers and programs, of Quorate and of kube-apiserver with etcd in the same way.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/quorate/quorate/bench/host"
	"github.com/quorate/quorate/bench/measure"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "pods:", err)
		os.Exit(1)
	}
}

// plan is what is to be done.
type plan struct {
	name             string
	servers          []string // URLs of the API
	ca, cert, key    string
	pids             []int // of the servers, whose CPU is counted
	nodes, pods, all int
	restart          string   // command that restarts a server, given its number from 1 on
	audit            []string // the servers' audit logs
	within           time.Duration
}

// perDeployment is how many Pods a Deployment has.
const perDeployment = 50

// result is what is printed. Times are in ms, CPU in ms too.
type result struct {
	Name         string           `json:"name"`
	Nodes        int              `json:"nodes"`
	Pods         int              `json:"pods"`
	Seconds      float64          `json:"seconds"`
	PodsPerSec   float64          `json:"podsPerSecond"`
	CreateToRun  measure.Latency  `json:"createToRunning"`
	IdleCPU      float64          `json:"idleCPUPerSecondMs"`
	CPUPerPod    float64          `json:"cpuPerPodMs"`
	NetCPUPerPod float64          `json:"cpuPerPodWithoutIdleMs"`
	All          *phase           `json:"all,omitempty"`
	Restarts     *restarts        `json:"restarts,omitempty"`
	MemoryMiB    map[string]int64 `json:"memoryMiB"`
}

// phase is a number of Pods more, until all run.
type phase struct {
	Pods       int     `json:"pods"`
	Seconds    float64 `json:"seconds"`
	PodsPerSec float64 `json:"podsPerSecond"`
	CPUPerPod  float64 `json:"cpuPerPodMs"`
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	p, err := parse(args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, p.within)
	defer cancel()
	r, err := p.measure(ctx, progress)
	if err != nil {
		return err
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return err
	}
	return r.Restarts.verdict()
}

func parse(args []string) (*plan, error) {
	p := &plan{}
	f := flag.NewFlagSet("pods", flag.ContinueOnError)
	f.StringVar(&p.name, "name", "", "of the servers, for the report")
	servers := f.String("servers", "", "URLs of the API, separated by commas")
	f.StringVar(&p.ca, "ca", "", "CA of the servers")
	f.StringVar(&p.cert, "cert", "", "certificate of an administrator")
	f.StringVar(&p.key, "key", "", "its key")
	pids := f.String("pids", "", "processes of the servers, separated by commas")
	f.IntVar(&p.nodes, "nodes", 500, "Nodes")
	f.IntVar(&p.pods, "pods", 1000, "Pods that are measured one by one")
	f.IntVar(&p.all, "all", 0, "Pods that there are before servers are restarted (0: no more)")
	f.StringVar(&p.restart, "restart", "", "command that restarts a server, given its number")
	audit := f.String("audit", "", "audit logs of the servers, separated by commas")
	f.DurationVar(&p.within, "within", 5*time.Minute, "how long all of it may take")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	p.servers = strings.FieldsFunc(*servers, comma)
	p.audit = strings.FieldsFunc(*audit, comma)
	for _, s := range strings.FieldsFunc(*pids, comma) {
		pid, err := strconv.Atoi(s)
		if err != nil {
			return nil, fmt.Errorf("-pids: %w", err)
		}
		p.pids = append(p.pids, pid)
	}
	if len(p.servers) == 0 || p.nodes < 1 || p.pods < perDeployment {
		return nil, fmt.Errorf("-servers, -nodes and -pods (%d or more) are required", perDeployment)
	}
	return p, nil
}

func comma(r rune) bool { return r == ',' }

// client speaks to one server, without a limit of its own.
func (p *plan) client(server string) (*kubernetes.Clientset, error) {
	return kubernetes.NewForConfig(&rest.Config{
		Host: server, UserAgent: "quorate-bench-pods", QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAFile: p.ca, CertFile: p.cert, KeyFile: p.key},
	})
}

// idleFor is how long the servers are watched before there is anything to do for them, but the
// leases of Nodes and controllers.
const idleFor = 10 * time.Second

func (p *plan) measure(ctx context.Context, progress io.Writer) (*result, error) {
	c, err := p.client(p.servers[len(p.servers)-1])
	if err != nil {
		return nil, err
	}
	r := &result{Name: p.name, Nodes: p.nodes, Pods: p.pods, MemoryMiB: map[string]int64{}}
	l := &load{client: c}
	fmt.Fprintf(progress, "%s: %d nodes\n", p.name, p.nodes)
	if err := l.makeNodes(ctx, p.nodes); err != nil {
		return nil, err
	}
	pods, err := l.follow(ctx)
	if err != nil {
		return nil, err
	}
	// The programs' first Pods wait for caches and connections.
	if _, err := l.runPods(ctx, pods, perDeployment); err != nil {
		return nil, err
	}
	m := &meter{pids: p.pids}
	before := m.cpu()
	measure.Pause(ctx, idleFor)
	idle := m.cpu()
	r.IdleCPU = (idle - before).Seconds() * 1000 / idleFor.Seconds()

	pods.measure(true)
	took, err := l.runPods(ctx, pods, p.pods)
	if err != nil {
		return nil, err
	}
	r.CreateToRun = pods.measure(false).Latency()
	used := m.cpu()
	spent := (used - idle).Seconds() * 1000
	r.Seconds, r.PodsPerSec = took.Seconds(), float64(p.pods)/took.Seconds()
	r.CPUPerPod = spent / float64(p.pods)
	r.NetCPUPerPod = (spent - r.IdleCPU*took.Seconds()) / float64(p.pods)
	r.MemoryMiB["pods"] = m.memory()
	fmt.Fprintf(progress, "%s: %d pods in %.1f s, %.0f/s, p50 %.0f ms, p99 %.0f ms, %.1f ms CPU a pod (%.1f without what an idle second costs, %.0f ms)\n",
		p.name, p.pods, r.Seconds, r.PodsPerSec, r.CreateToRun.P50Ms, r.CreateToRun.P99Ms, r.CPUPerPod, r.NetCPUPerPod, r.IdleCPU)

	if more := p.all - l.made; more > 0 {
		took, err := l.runPods(ctx, pods, more)
		if err != nil {
			return nil, err
		}
		r.All = &phase{Pods: l.made, Seconds: took.Seconds(), PodsPerSec: float64(more) / took.Seconds(), CPUPerPod: (m.cpu() - used).Seconds() * 1000 / float64(more)}
		r.MemoryMiB["all"] = m.memory()
		fmt.Fprintf(progress, "%s: %d pods more in %.1f s, %.0f/s, %.1f ms CPU a pod\n", p.name, more, r.All.Seconds, r.All.PodsPerSec, r.All.CPUPerPod)
	}
	if m.err != nil {
		return nil, m.err
	}
	if p.restart == "" {
		return r, nil
	}
	r.Restarts, err = p.restartAll(ctx, l, pods, progress)
	return r, err
}

// meter asks what processes use. Who ends takes what it has used along, so it is asked before.
type meter struct {
	pids []int
	err  error // the first one
}

func (m *meter) cpu() (sum time.Duration) {
	all, err := host.CPUTimes(m.pids)
	for _, d := range all {
		sum += d
	}
	m.err = cmp.Or(m.err, err)
	return sum
}

func (m *meter) memory() int64 {
	bytes, err := host.ResidentMemory(m.pids)
	m.err = cmp.Or(m.err, err)
	return bytes >> 20
}

// restartServer runs the command, and waits for it.
func (p *plan) restartServer(ctx context.Context, number int) error {
	words := append(strings.Fields(p.restart), strconv.Itoa(number))
	if b, err := exec.CommandContext(ctx, words[0], words[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("restart server %d: %w: %s", number, err, b)
	}
	return nil
}
