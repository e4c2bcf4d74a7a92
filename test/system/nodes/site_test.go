//go:build linux

package nodes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
	"github.com/quorate/quorate/test/harness/isolated"
)

const (
	proxyIP    = "10.99.0.2"
	proxyAt    = proxyIP + ":6443" // for the test's own clients
	ownProxyAt = "127.0.0.1:6443"  // for each worker's programs
	podNetwork = "10.244.0.0/16"
	serviceIP  = "10.0.0.1"
)

// Site is a cluster with real workers: three machines with a Quorate node, a controller manager
// and a scheduler each, and two with containerd, kubelet, kube-proxy and quorate proxy, which have joined by kubeadm.
type Site struct {
	bin     string
	apis    string // host:port of all nodes
	ca      string // of the API
	site    *authority
	control []*controlMachine
	workers []*worker
	admin   string // kubeconfig, through a proxy
	client  kubernetes.Interface
}

// controlMachine is a machine of the control plane. Its controller manager and scheduler talk to
// its own Quorate node.
type controlMachine struct {
	*machine
	quorate, manager, scheduler *service
	client                      kubernetes.Interface // of this node alone
}

// worker is a machine that runs Pods.
type worker struct {
	*machine
	containerd, kubelet, proxy *service
	podCIDR                    string
}

// newSite starts all of it, and awaits that both workers are ready.
func newSite(t *testing.T) *Site {
	t.Helper()
	begun := time.Now()
	s := &Site{bin: os.Getenv(enableVariable)}
	must.OK(t, isolated.MakeBridge())
	s.site = newAuthority(t, cluster.RunDir())
	s.startQuorate(t)
	t.Logf("all nodes serve after %s", time.Since(begun).Round(100*time.Millisecond))
	s.startControllers(t)
	// A worker's proxy reads with kubelet's certificate where the nodes are.
	s.kubectl(t, "create", "role", "quorate-proxy", "-n", "default", "--verb=get,list,watch", "--resource=endpointslices.discovery.k8s.io")
	s.kubectl(t, "create", "rolebinding", "quorate-proxy", "-n", "default", "--role=quorate-proxy", "--group=system:nodes")
	images := makeImages(t, s.bin, cluster.RunDir())
	join := s.joinCommand(t)
	for i := range 2 {
		s.startWorker(t, fmt.Sprintf("w%d", i+1), fmt.Sprintf("10.99.0.%d", 21+i), join, images, i == 1)
	}
	s.connectPods(t)
	for _, w := range s.workers {
		s.await(t, time.Minute, w.name+" is ready", func() string { return s.notReady(t.Context(), w.name) })
	}
	t.Logf("all workers are ready after %s", time.Since(begun).Round(100*time.Millisecond))
	return s
}

func (s *Site) startQuorate(t *testing.T) {
	t.Helper()
	var peers, apis []string
	for i := range 3 {
		m := newMachine(t, fmt.Sprintf("q%d", i+1), fmt.Sprintf("10.99.0.%d", 11+i), s.bin)
		s.control = append(s.control, &controlMachine{machine: m})
		peers, apis = append(peers, m.ip+":7443"), append(apis, m.ip+":6443")
	}
	secret := strings.Repeat("0123456789abcdef", 4)
	const policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n"
	for _, m := range s.control {
		m.quorate = m.serve(t, cluster.Binary(), "node", "--name", m.name, "--data-dir", m.path("data"),
			"--api-address", m.ip+":6443", "--peer-address", m.ip+":7443",
			"--bootstrap-expect", "3", "--join", strings.Join(peers, ","), "--token-file", m.write(t, "secret", secret),
			"--enable-aggregator-routing", // there is no kube-proxy beside it
			"--tls-san", proxyIP, "--control-plane-endpoint", ownProxyAt, "--client-ca-file", s.site.certFile,
			"--audit-policy-file", m.write(t, "audit.yaml", policy), "--audit-log-path", m.path("audit.log"))
	}
	s.apis = strings.Join(apis, ",")
	newMachine(t, "proxy", proxyIP, s.bin).serve(t, cluster.Binary(), "proxy", "--listen", proxyAt, "--server", s.apis)
	s.ca = s.control[0].path("data/pki/api-ca.crt")
	s.await(t, 30*time.Second, "the API's authority", func() string {
		if _, err := os.Stat(s.ca); err != nil {
			return err.Error()
		}
		return ""
	})
	s.admin = filepath.Join(cluster.RunDir(), "admin.kubeconfig")
	writeFile(t, s.admin, []byte(s.kubeconfig(t, proxyAt, "site-admin", "system:masters")))
	s.client = cluster.Client(t, s.admin)
	for _, m := range s.control {
		m.client = cluster.Client(t, m.write(t, "admin.kubeconfig", s.kubeconfig(t, m.ip+":6443", "site-admin", "system:masters")))
		s.await(t, 30*time.Second, m.name+" serves", func() string {
			_, err := m.client.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
			return text(err)
		})
	}
}

// kubeconfig is one of a user of the site's authority.
func (s *Site) kubeconfig(t *testing.T, server, user string, groups ...string) string {
	t.Helper()
	return s.site.kubeconfig(t, s.ca, "https://"+server, user, groups...)
}

func (s *Site) startControllers(t *testing.T) {
	t.Helper()
	for _, m := range s.control {
		own := m.ip + ":6443"
		manager := m.write(t, "manager.kubeconfig", s.kubeconfig(t, own, "system:kube-controller-manager"))
		m.manager = m.serve(t, "kube-controller-manager", "--kubeconfig", manager,
			"--authentication-kubeconfig", manager, "--authorization-kubeconfig", manager, "--bind-address", "127.0.0.1",
			"--use-service-account-credentials", "--root-ca-file", s.ca, "--cert-dir", m.path("manager-pki"),
			"--allocate-node-cidrs", "--cluster-cidr", podNetwork, "--service-cluster-ip-range", "10.0.0.0/24")
		scheduler := m.write(t, "scheduler.kubeconfig", s.kubeconfig(t, own, "system:kube-scheduler"))
		m.scheduler = m.serve(t, "kube-scheduler", "--kubeconfig", scheduler, "--bind-address", "127.0.0.1",
			"--authentication-kubeconfig", scheduler, "--authorization-kubeconfig", scheduler, "--cert-dir", m.path("scheduler-pki"))
	}
}

// joinCommand is the command that kubeadm prints for machines that join.
func (s *Site) joinCommand(t *testing.T) string {
	t.Helper()
	var join string
	s.await(t, 30*time.Second, "kubeadm makes a token", func() string {
		out, err := s.control[0].try(t.Context(), "kubeadm", "token", "create", "--print-join-command", "--kubeconfig", s.admin)
		if err != nil {
			return out
		}
		at := strings.Index(out, "kubeadm join")
		if at < 0 {
			return "no command in " + out
		}
		join = out[at:]
		return ""
	})
	return join
}

// startWorker makes a worker and has it join, as people do: kubelet is a service that fails until kubeadm has
// written what it needs. byTunnel is for one whose kubelet the nodes cannot dial.
func (s *Site) startWorker(t *testing.T, name, ip, join string, images []string, byTunnel bool) {
	t.Helper()
	w := &worker{machine: newMachine(t, name, ip, s.bin)}
	s.workers = append(s.workers, w)
	cgroup := isolated.Cgroup() + "/" + name
	must.OK(t, isolated.MakeCgroup(cgroup))
	for _, dir := range []string{"log", "manifests", "cni", "plugins", "containerd", "kubelet", "etc", "etc-work"} {
		must.OK(t, os.MkdirAll(w.path(dir), 0o755))
	}
	w.do(t, w.mount)
	// The network outside has no route on: what is not ours fails at once. Addresses of Services need one.
	w.route(t, "default", isolated.BridgeIP)
	proxyArgs := []string{"proxy", "--listen", ownProxyAt, "--server", s.apis}
	if byTunnel {
		w.run(t, "nft", "-f", w.write(t, "firewall.nft", fmt.Sprintf(firewall, s.control[0].ip, s.control[1].ip, s.control[2].ip)))
		proxyArgs = append(proxyArgs, "--tunnel", "--node-name", name, "--kubeconfig", "/etc/kubernetes/kubelet.conf")
	}
	w.serve(t, cluster.Binary(), proxyArgs...)
	w.startContainerd(t, images)
	resolv := w.write(t, "resolv.conf", "nameserver 127.0.0.1\n")
	w.write(t, "kubelet.conf.d/90-site.conf", fmt.Sprintf(kubeletConfig, cgroup, w.path("manifests"), resolv, w.path("plugins")))
	w.kubelet = w.serve(t, "sh", "-c", fmt.Sprintf(kubeletUnit, filepath.Join(w.bin, "kubelet"), w.path("kubelet.conf.d")))
	// No systemd looks after kubelet here: kubeadm's words to it are in vain.
	w.write(t, "bin/systemctl", "#!/bin/sh\nexit 0\n")
	must.OK(t, os.Chmod(w.path("bin/systemctl"), 0o700))
	begun := time.Now()
	// The checks before want what Debian installs, such as crictl and a kernel's configuration.
	w.run(t, "sh", "-c", fmt.Sprintf("PATH=%s:$PATH; exec %s/%s --cri-socket unix:///run/containerd/containerd.sock --ignore-preflight-errors=all",
		w.path("bin"), w.bin, strings.TrimSpace(join)))
	t.Logf("%s: kubeadm join took %s", name, time.Since(begun).Round(100*time.Millisecond))
	proxy := w.write(t, "proxy.yaml", fmt.Sprintf(proxyConfig,
		w.write(t, "proxy.kubeconfig", s.kubeconfig(t, ownProxyAt, "system:kube-proxy")), name, podNetwork))
	w.proxy = w.serve(t, "kube-proxy", "--config", proxy)
}

// firewall keeps the nodes from a worker's kubelet.
const firewall = `table inet firewall {
	chain input {
		type filter hook input priority 0;
		ip saddr { %s, %s, %s } tcp dport 10250 reject with tcp reset
	}
}
`

// kubeletUnit is what kubeadm's unit of systemd runs, with a directory for what is this machine's own.
const kubeletUnit = `[ -e /var/lib/kubelet/kubeadm-flags.env ] && . /var/lib/kubelet/kubeadm-flags.env
exec %s --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf \
	--config=/var/lib/kubelet/config.yaml --config-dir=%s --v=2 $KUBELET_KUBEADM_ARGS`

// kubelet would set these for the whole of this machine.
var settingsOfKubelet = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

// mount gives the machine what programs have fixed places for, and hides what is this machine's.
func (w *worker) mount() error {
	errs := []error{unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")} // kubelet's volumes come to containers so
	for _, dir := range []string{"/run", "/var/lib"} {
		errs = append(errs, unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"))
	}
	// What kubeadm writes into /etc is this worker's own.
	etc := fmt.Sprintf("lowerdir=/etc,upperdir=%s,workdir=%s", w.path("etc"), w.path("etc-work"))
	errs = append(errs, unix.Mount("overlay", "/etc", "overlay", 0, etc),
		os.Mkdir("/var/lib/kubelet", 0o755), unix.Mount(w.path("kubelet"), "/var/lib/kubelet", "", unix.MS_BIND, ""),
		unix.Mount(w.path("log"), "/var/log", "", unix.MS_BIND, ""),
		isolated.Shell("sysctl", "-q", "-w", "net.ipv4.ip_forward=1"))
	for i, name := range settingsOfKubelet {
		at := filepath.Join("/proc/sys", name)
		now, err := os.ReadFile(at)
		file := w.path(fmt.Sprintf("sysctl-%d", i))
		errs = append(errs, err, os.WriteFile(file, now, 0o600), unix.Mount(file, at, "", unix.MS_BIND, ""))
	}
	return errors.Join(errs...)
}

func (w *worker) startContainerd(t *testing.T, images []string) {
	t.Helper()
	debian := filepath.Join(w.bin, "debian")
	config := w.write(t, "containerd.toml", fmt.Sprintf(containerdConfig, w.path("containerd"), pauseImage,
		filepath.Join(debian, "usr/sbin/runc"), filepath.Join(debian, "usr/lib/cni"), w.path("cni")))
	w.containerd = w.serve(t, "containerd", "--config", config)
	cluster.Await(t, 30*time.Second, "containerd answers on "+w.name, func() string {
		out, err := w.try(t.Context(), "ctr", "version")
		if err != nil {
			return out
		}
		return ""
	})
	for _, image := range images {
		w.run(t, "ctr", "-n", "k8s.io", "images", "import", image)
	}
}

const containerdConfig = `version = 2
root = %q
state = "/run/containerd"
oom_score = 0
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = %q
      SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = %q
`

const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
failCgroupV1: false
failSwapOn: false
cgroupDriver: cgroupfs
cgroupRoot: /%s
oomScoreAdj: 0
maxOpenFiles: 65536
makeIPTablesUtilChains: false
staticPodPath: %q
fileCheckFrequency: 1s
syncFrequency: 10s
resolvConf: %q
volumePluginDir: %q
imageGCHighThresholdPercent: 99
imageGCLowThresholdPercent: 98
evictionHard: {memory.available: 10Mi, nodefs.available: 1%%, imagefs.available: 1%%, nodefs.inodesFree: 1%%}
`

const proxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {kubeconfig: %q}
hostnameOverride: %s
clusterCIDR: %s
conntrack: {maxPerCore: 0, min: 0}
`

// connectPods does a network plugin's work: each worker's Pods have a bridge with the addresses
// that the node was given, and the other machines a route to it.
func (s *Site) connectPods(t *testing.T) {
	t.Helper()
	for _, w := range s.workers {
		s.await(t, time.Minute, w.name+" has addresses for Pods", func() string {
			node, err := s.client.CoreV1().Nodes().Get(t.Context(), w.name, metav1.GetOptions{})
			if err != nil {
				return err.Error() + "\n" + w.kubelet.log()
			}
			if w.podCIDR = node.Spec.PodCIDR; w.podCIDR == "" {
				return "none yet"
			}
			return ""
		})
		for _, m := range s.machines() {
			if m != w.machine {
				m.route(t, w.podCIDR, w.ip)
			}
		}
		must.OK(t, isolated.Shell("ip", "route", "replace", w.podCIDR, "via", w.ip))
		w.write(t, "cni/10-site.conflist", fmt.Sprintf(`{"cniVersion": "0.4.0", "name": "site", "plugins": [{
"type": "bridge", "bridge": "pods0", "isGateway": true, "hairpinMode": true,
"ipam": {"type": "host-local", "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}`, w.podCIDR))
	}
}

func (s *Site) machines() []*machine {
	var all []*machine
	for _, m := range s.control {
		all = append(all, m.machine)
	}
	for _, w := range s.workers {
		all = append(all, w.machine)
	}
	return all
}

// notReady says why a node is not ready, or nothing.
func (s *Site) notReady(ctx context.Context, name string) string {
	node, err := s.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	if c := readyOf(node); c.Status != corev1.ConditionTrue {
		return fmt.Sprintf("%s: %s", c.Reason, c.Message)
	}
	return ""
}

func readyOf(node *corev1.Node) corev1.NodeCondition {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c
		}
	}
	return corev1.NodeCondition{Message: "no condition yet"}
}

// await is cluster.Await that shows the ends of all logs when the time is over.
func (s *Site) await(t *testing.T, within time.Duration, what string, missing func() string) {
	t.Helper()
	deadline := time.Now().Add(within)
	cluster.Await(t, within+10*time.Second, what, func() string {
		why := missing()
		if why != "" && time.Now().After(deadline) {
			s.showLogs(t)
			t.Fatalf("%s: not within %s: %s", what, within, why)
		}
		return why
	})
}

func (s *Site) showLogs(t *testing.T) {
	for _, m := range s.control {
		for _, x := range []*service{m.quorate, m.manager, m.scheduler} {
			if x != nil {
				t.Logf("%s on %s:\n%s", x.name, m.name, x.log())
			}
		}
	}
	for _, w := range s.workers {
		for _, x := range []*service{w.containerd, w.kubelet, w.proxy} {
			if x != nil {
				t.Logf("%s on %s:\n%s", x.name, w.name, x.log())
			}
		}
	}
}

// tryKubectl runs kubectl as an administrator, through a proxy. Both outputs come together.
func (s *Site) tryKubectl(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), cluster.CommandWithin)
	defer cancel()
	cmd := s.kubectlCommand(ctx, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (s *Site) kubectlCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, cluster.KubectlPath(), append([]string{"--kubeconfig", s.admin}, args...)...)
	cmd.Env = cluster.CleanEnv("HOME=" + cluster.RunDir())
	cmd.WaitDelay = time.Second
	return cmd
}

func (s *Site) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.tryKubectl(t, "", args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// kubectlAtEnd is kubectl for the cleanup of a test.
func (s *Site) kubectlAtEnd(t *testing.T, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), cluster.CommandWithin)
	defer cancel()
	if out, err := s.kubectlCommand(ctx, args...).CombinedOutput(); err != nil {
		t.Errorf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// apply applies a manifest.
func (s *Site) apply(t *testing.T, namespace, manifest string) {
	t.Helper()
	if out, err := s.tryKubectl(t, manifest, "apply", "-n", namespace, "-f", "-"); err != nil {
		t.Fatalf("kubectl apply: %v\n%s\n%s", err, out, manifest)
	}
}

func text(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

func readAll(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must.OK(t, err)
	return string(b)
}
