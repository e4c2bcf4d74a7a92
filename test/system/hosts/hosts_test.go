//go:build linux

package hosts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
	"github.com/quorate/quorate/test/harness/isolated"
)

// components are the programs beside a node, where `make control-plane` has built them.
var components = []string{"kube-controller-manager", "kube-scheduler"}

// site is three hosts with a control plane each.
type site struct {
	hosts      []*Host
	components []string
	clients    map[*Host]kubernetes.Interface // through the node of each
}

// TestHosts sets three hosts up as the manuals say, and does to them what happens to hosts.
func TestHosts(t *testing.T) {
	if why := isolated.Skipped(); why != "" {
		t.Skip(why)
	}
	s := newSite(t)
	w := s.write(t)
	t.Run("Users", func(t *testing.T) { testUsers(t, s) })
	t.Run("Worker", func(t *testing.T) { testWorker(t, s) })
	t.Run("Restarts", func(t *testing.T) { testRestarts(t, s, w) })
	t.Run("Target", func(t *testing.T) { testTarget(t, s, w) })
	t.Run("Killed", func(t *testing.T) { testKilled(t, s, w) })
	t.Run("Hangs", func(t *testing.T) { testHangs(t, s, w) })
	t.Run("PowerOff", func(t *testing.T) { testPowerOff(t, s, w) })
	w.end(t)
}

// newSite does what docs/control-plane.md says under "Three hosts".
func newSite(t *testing.T) *site {
	t.Helper()
	must.OK(t, isolated.MakeBridge())
	s := &site{clients: map[*Host]kubernetes.Interface{}, components: components}
	bin := filepath.Dir(cluster.KubectlPath())
	for _, name := range components {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			t.Logf("without %v: make control-plane builds them: %v", components, err)
			s.components = nil
			break
		}
	}
	var peers []string
	for i := range 3 {
		h := newHost(t, fmt.Sprintf("n%d", i+1), fmt.Sprintf("10.99.0.%d", 11+i))
		s.hosts = append(s.hosts, h)
		peers = append(peers, h.ip+":7443")
	}
	// One makes the secret, the others have a copy.
	secret := s.hosts[0].run(t, "openssl", "rand", "-hex", "32")
	for _, h := range s.hosts {
		h.installUnits(t, "*")
		for _, name := range s.components {
			h.install(t, "/usr/bin", 0o755, filepath.Join(bin, name))
		}
		h.write(t, "/etc/quorate/token", secret+"\n", 0o600)
		h.write(t, "/etc/quorate/"+h.name+".env", strings.Join([]string{
			"QUORATE_API_ADDRESS=" + h.ip + ":6443",
			"QUORATE_PEER_ADDRESS=" + h.ip + ":7443",
			"QUORATE_BOOTSTRAP_EXPECT=3",
			"QUORATE_JOIN=" + strings.Join(peers, ","),
			"QUORATE_COMPONENT_KUBECONFIGS=/var/lib/quorate-components",
			"QUORATE_SERVICE_CLUSTER_IP_RANGE=10.0.0.0/16", "",
		}, "\n"), 0o640)
		// A node that hangs is to be found sooner than after 30 s.
		h.write(t, "/etc/systemd/system/quorate@.service.d/watchdog.conf", "[Service]\nWatchdogSec=5s\n", 0o644)
	}
	begun := time.Now()
	var all sync.WaitGroup
	for _, h := range s.hosts {
		all.Go(func() {
			for _, command := range [][]string{
				{"systemd-sysusers"}, {"systemd-tmpfiles", "--create"}, {"systemctl", "daemon-reload"},
				append([]string{"systemctl", "enable", "--now", "quorate-control-plane.target", "quorate.target", "quorate@" + h.name}, s.components...),
			} {
				if out, err := h.try(t.Context(), command...); err != nil {
					t.Errorf("%s: %v: %v: %s%s", h.name, command, err, out, h.logs(t))
					return
				}
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	for _, h := range s.hosts {
		kubeconfig := filepath.Join(h.dir, "admin.kubeconfig")
		text, err := os.ReadFile(h.path("/var/lib/quorate/" + h.name + "/admin.kubeconfig"))
		must.OK(t, err)
		must.OK(t, os.WriteFile(kubeconfig, text, 0o600))
		s.clients[h] = cluster.Client(t, kubeconfig)
		s.serves(t, h)
	}
	t.Logf("three nodes serve %v after `systemctl enable --now`:\n%v", time.Since(begun).Round(10*time.Millisecond), s.hosts[0].run(t, "quorate", "status", "--kubeconfig", "/var/lib/quorate/n1/admin.kubeconfig"))
	s.led(t, s.hosts[0])
	return s
}

// installUnits does the first step of "Three nodes on three hosts".
func (h *Host) installUnits(t *testing.T, units string) {
	t.Helper()
	h.install(t, "/usr/bin", 0o755, cluster.Binary())
	h.install(t, "/usr/lib/systemd/system", 0o644, "../../../deploy/systemd/"+units)
	h.install(t, "/usr/lib/sysusers.d", 0o644, "../../../deploy/sysusers.d/*")
	h.install(t, "/usr/lib/tmpfiles.d", 0o644, "../../../deploy/tmpfiles.d/*")
	if mayRaise(t) {
		return
	}
	for unit := range strings.FieldsSeq("quorate@ quorate-proxy kube-controller-manager kube-scheduler") {
		h.write(t, "/etc/systemd/system/"+unit+".service.d/limits.conf", "[Service]\nLimitNOFILE=infinity\nOOMScoreAdjust=0\n", 0o644)
	}
}

// mayRaise reports whether this machine lets root raise limits (CAP_SYS_RESOURCE); in some containers it may not.
func mayRaise(t *testing.T) bool {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var has [2]unix.CapUserData
	must.OK(t, unix.Capget(&header, &has[0]))
	return has[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

// serves awaits that a host's node answers with what a quorum has.
func (s *site) serves(t *testing.T, h *Host) {
	t.Helper()
	cluster.Await(t, time.Minute, h.name+" serves", func() string {
		if _, err := s.clients[h].CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
			return err.Error() + "\n" + h.logs(t)
		}
		return ""
	})
}

// others are all hosts but one.
func (s *site) others(than *Host) []*Host {
	return slices.DeleteFunc(slices.Clone(s.hosts), func(h *Host) bool { return h == than })
}

// led awaits that the controllers and the scheduler are led by one of the hosts each, as a host's node sees it.
func (s *site) led(t *testing.T, by *Host) {
	t.Helper()
	for _, name := range s.components {
		cluster.AwaitEvery(t, 200*time.Millisecond, time.Minute, name+" leads", func() string {
			lease, err := s.clients[by].CoordinationV1().Leases("kube-system").Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			if !fresh(lease) {
				return fmt.Sprintf("the lease is of %v", lease.Spec.RenewTime)
			}
			return ""
		})
	}
}

func fresh(l *coordinationv1.Lease) bool {
	return l.Spec.RenewTime != nil && time.Since(l.Spec.RenewTime.Time) < 5*time.Second && l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != ""
}

// leader is the host whose node leads.
func (s *site) leader(t *testing.T) *Host {
	t.Helper()
	var leads *Host
	cluster.Await(t, time.Minute, "a leader", func() string {
		for _, h := range s.hosts {
			out, err := h.try(t.Context(), "systemctl", "show", "--property=StatusText", "--value", "quorate@"+h.name)
			if err == nil && strings.HasPrefix(out, "leader") {
				leads = h
				return ""
			}
		}
		return "no unit says that it leads"
	})
	return leads
}

// writer writes through every host all the time.
type writer struct {
	s    *site
	stop context.CancelFunc
	all  sync.WaitGroup

	mu   sync.Mutex
	made []string
	of   map[*Host]*through
}

// through is what was written through a host.
type through struct {
	last    time.Time     // the last success
	longest time.Duration // between two
	failed  error         // the last failure
}

func (s *site) write(t *testing.T) *writer {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	w := &writer{s: s, stop: stop, of: map[*Host]*through{}}
	for _, h := range s.hosts {
		w.of[h] = &through{last: time.Now()}
		w.all.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				name := fmt.Sprintf("%s-%d", h.name, i)
				_, err := s.clients[h].CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
				if ctx.Err() == nil {
					w.note(h, name, err)
				}
				select {
				case <-ctx.Done():
				case <-time.After(10 * time.Millisecond):
				}
			}
		})
	}
	return w
}

func (w *writer) note(h *Host, name string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	of, now := w.of[h], time.Now()
	if err != nil {
		of.failed = err
		return
	}
	w.made = append(w.made, name)
	of.longest = max(of.longest, now.Sub(of.last))
	of.last = now
}

// othersWithin bounds the time in which nothing is written through a host to which nothing was done.
const othersWithin = 5 * time.Second

// during does something to a host. Through the others writes go on.
func (w *writer) during(t *testing.T, h *Host, what string, do func()) {
	t.Helper()
	w.mu.Lock()
	before := len(w.made)
	for _, of := range w.of {
		of.last, of.longest, of.failed = time.Now(), 0, nil
	}
	w.mu.Unlock()
	begun := time.Now()
	do()
	w.s.serves(t, h)
	took := time.Since(begun)
	w.mu.Lock()
	defer w.mu.Unlock()
	var longest time.Duration
	for _, other := range w.s.others(h) {
		of := w.of[other]
		longest = max(longest, of.longest, time.Since(of.last))
		if longest > othersWithin {
			t.Errorf("%s: nothing was written through %s for %v, the last failure: %v", what, other.name, longest, of.failed)
		}
	}
	t.Logf("%s: its node serves again after %v; %d writes meanwhile, none for at most %v through the other nodes",
		what, took.Round(10*time.Millisecond), len(w.made)-before, longest.Round(time.Millisecond))
}

// end looks for all that was acknowledged, at every node.
func (w *writer) end(t *testing.T) {
	t.Helper()
	w.stop()
	w.all.Wait()
	for _, h := range w.s.hosts {
		list, err := w.s.clients[h].CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
		must.OK(t, err)
		there := map[string]bool{}
		for _, m := range list.Items {
			there[m.Name] = true
		}
		if lost := slices.DeleteFunc(slices.Clone(w.made), func(name string) bool { return there[name] }); len(lost) > 0 {
			t.Errorf("%s has lost %d of %d writes: %v", h.name, len(lost), len(w.made), lost[:min(10, len(lost))])
		}
	}
	t.Logf("%d writes, all are there", len(w.made))
}

// testUsers: each program runs as a user of its own, without privileges, and reads what is its own.
func testUsers(t *testing.T, s *site) {
	h := s.hosts[0]
	for _, unit := range append([]string{"quorate@" + h.name}, s.components...) {
		// It may just be started again: a process is systemd's until it executes the program.
		cluster.Await(t, 30*time.Second, unit+" has no privileges", func() string {
			status, err := os.ReadFile(h.path("/proc/" + h.property(t, unit, "MainPID") + "/status"))
			if err != nil {
				return err.Error()
			}
			for _, line := range []string{"NoNewPrivs:\t1", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "Seccomp:\t2"} {
				if !strings.Contains(string(status), line+"\n") {
					return "not " + line
				}
			}
			return ""
		})
		user, _, _ := strings.Cut(unit, "@")
		if is := h.property(t, unit, "User"); is != user {
			t.Errorf("%s runs as %s", unit, is)
		}
	}
	const secret, state = "/etc/quorate/token", "/var/lib/quorate/n1/raft-state.db"
	kubeconfig := func(of string) string { return "/var/lib/quorate-components/" + of + "/kubeconfig" }
	for _, user := range components {
		if out, err := h.as(t.Context(), user, "cat", kubeconfig(user)); err != nil {
			t.Errorf("%s cannot read its own kubeconfig: %v: %s", user, err, out)
		}
		for _, other := range append([]string{secret, "/var/lib/quorate/n1/admin.kubeconfig", state}, components...) {
			if other == user {
				continue
			}
			if !strings.HasPrefix(other, "/") {
				other = kubeconfig(other)
			}
			if out, err := h.as(t.Context(), user, "cat", other); err == nil || !strings.Contains(out, "Permission denied") {
				t.Errorf("%s reads %s: %v: %.100s", user, other, err, out)
			}
		}
	}
	if out, err := h.as(t.Context(), "quorate", "cat", secret); err == nil {
		t.Errorf("the user of the nodes reads the secret's file itself, not as a credential: %s", out)
	}
}

// testWorker does what "Workers" in docs/operations.md says: a host's own address of the API, and tunnels to
// its kubelet.
func testWorker(t *testing.T, s *site) {
	worker := newHost(t, "w1", "10.99.0.21")
	worker.installUnits(t, "quorate-proxy.service")
	var apis []string
	for _, h := range s.hosts {
		apis = append(apis, h.ip+":6443")
	}
	n1 := s.hosts[0]
	admin := []string{"--kubeconfig", "/var/lib/quorate/n1/admin.kubeconfig"}
	n1.run(t, append([]string{"quorate", "kubeconfig", "--user", "system:node:w1", "--group", "system:nodes", "--to", "/run/w1"}, admin...)...)
	text, err := os.ReadFile(n1.path("/run/w1"))
	must.OK(t, err)
	rbac, ctx := s.clients[n1].RbacV1(), t.Context()
	const name = "quorate-proxy"
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{
		Verbs: []string{"get", "list", "watch"}, APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"},
	}}}
	if _, err := rbac.Roles("default").Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:nodes"}},
	}
	if _, err := rbac.RoleBindings("default").Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// Programs of the host ask the proxy, for whose address the API's certificate is.
	own := strings.Replace(string(text), "https://"+n1.ip+":6443", "https://127.0.0.1:6443", 1)
	worker.write(t, "/etc/kubernetes/kubelet.conf", own, 0o600)
	worker.write(t, "/etc/quorate/proxy.env", "PROXY_FLAGS=--server="+strings.Join(apis, ",")+" --tunnel --node-name=w1\n", 0o644)
	worker.run(t, "systemctl", "daemon-reload")
	worker.run(t, "systemctl", "enable", "--now", "quorate-proxy")
	ask := func() string {
		out, err := worker.try(t.Context(), "curl", "-sS", "--insecure", "--max-time", "5", "https://127.0.0.1:6443/readyz")
		if err != nil || out != "ok" {
			return fmt.Sprintf("%v: %s\n%s", err, out, worker.logs(t))
		}
		return ""
	}
	cluster.Await(t, 30*time.Second, "the worker's address of the API answers", ask)
	cluster.Await(t, 30*time.Second, "a tunnel to each node", func() string {
		log := worker.run(t, "journalctl", "--no-pager", "--unit=quorate-proxy")
		if strings.Count(log, "a tunnel is open") < len(s.hosts) {
			return log
		}
		return ""
	})
	s.askKubelet(t, worker)
	worker.powerOff(t)
	worker.powerOn(t)
	cluster.Await(t, 30*time.Second, "it answers after a start of the host", ask)
}

// askKubelet asks the kubelet of a worker through each node, which takes the tunnel as long as there is one.
func (s *site) askKubelet(t *testing.T, worker *Host) {
	t.Helper()
	worker.run(t, "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN="+worker.name, "-keyout", "/run/kubelet.key", "-out", "/run/kubelet.crt")
	worker.run(t, "systemd-run", "--unit=kubelet", "openssl", "s_server", "-accept", "10250", "-www", "-key", "/run/kubelet.key", "-cert", "/run/kubelet.crt")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: worker.name}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: worker.ip}}}}
	if _, err := s.clients[s.hosts[0]].CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, h := range s.hosts {
		cluster.Await(t, 30*time.Second, "the kubelet answers through "+h.name, func() string {
			page, err := s.clients[h].CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes/" + worker.name + "/proxy/").DoRaw(t.Context())
			if err != nil || !strings.Contains(string(page), "s_server") {
				return fmt.Sprintf("%v: %s\n%s", err, page, worker.logs(t))
			}
			return ""
		})
	}
}

// testRestarts restarts a unit at a time: the command returns when the node is there again.
func testRestarts(t *testing.T, s *site, w *writer) {
	for _, h := range s.hosts {
		w.during(t, h, "restart of "+h.name, func() { h.run(t, "systemctl", "restart", "quorate@"+h.name) })
	}
}

// testTarget stops all of a host, that of the leader, and starts it.
func testTarget(t *testing.T, s *site, w *writer) {
	h := s.leader(t)
	w.during(t, h, "stop of the leader's target", func() {
		h.run(t, "systemctl", "stop", "quorate-control-plane.target")
		// The command waits for the target alone.
		for _, unit := range append([]string{"quorate@" + h.name}, s.components...) {
			cluster.Await(t, time.Minute, unit+" has ended", func() string {
				if is := h.property(t, unit, "ActiveState"); is != "inactive" {
					return fmt.Sprintf("it is %s, its result %s:\n%s", is, h.property(t, unit, "Result"), h.logs(t))
				}
				return ""
			})
		}
		s.led(t, s.others(h)[0])
		h.run(t, append([]string{"systemctl", "start", "quorate-control-plane.target", "quorate@" + h.name}, s.components...)...)
	})
}

// testKilled kills each program: systemd starts it again.
func testKilled(t *testing.T, s *site, w *writer) {
	h := s.leader(t)
	for _, unit := range append([]string{"quorate@" + h.name}, s.components...) {
		w.during(t, h, "SIGKILL of the leader's "+unit, func() {
			before := h.property(t, unit, "MainPID")
			h.run(t, "systemctl", "kill", "--signal=KILL", unit)
			s.startedAgain(t, h, unit, before)
		})
	}
}

// startedAgain awaits that a unit has another process than before.
func (s *site) startedAgain(t *testing.T, h *Host, unit, before string) {
	t.Helper()
	cluster.Await(t, time.Minute, unit+" is started again", func() string {
		if is := h.property(t, unit, "MainPID"); is == "0" || is == before {
			return fmt.Sprintf("its process is %s, before %s", is, before)
		}
		return ""
	})
}

// testHangs stops the leader's process: the watchdog of systemd ends it, when others have led for long.
func testHangs(t *testing.T, s *site, w *writer) {
	h := s.leader(t)
	unit := "quorate@" + h.name
	w.during(t, h, "SIGSTOP of the leader's node", func() {
		before := h.property(t, unit, "MainPID")
		h.run(t, "systemctl", "kill", "--signal=STOP", unit)
		s.startedAgain(t, h, unit, before)
	})
	if out := h.run(t, "journalctl", "--no-pager", "--unit="+unit); !strings.Contains(out, "Watchdog timeout") {
		t.Errorf("it was not the watchdog:\n%s", out)
	}
}

// testPowerOff takes the power of each host in turn: when it is back, all is started that was enabled.
func testPowerOff(t *testing.T, s *site, w *writer) {
	for _, h := range s.hosts {
		w.during(t, h, "power failure of "+h.name, func() {
			h.powerOff(t)
			h.powerOn(t)
		})
		for _, unit := range append([]string{"quorate-control-plane.target", "quorate@" + h.name}, s.components...) {
			if is := h.property(t, unit, "ActiveState"); is != "active" {
				t.Errorf("%s is %s:\n%s", unit, is, h.logs(t))
			}
		}
	}
	s.led(t, s.hosts[0])
	var errs []error
	for _, h := range s.hosts {
		if out := h.run(t, "systemctl", "--failed", "--no-legend", "--plain"); out != "" {
			errs = append(errs, fmt.Errorf("%s: %s", h.name, out))
		}
	}
	if err := errors.Join(errs...); err != nil {
		t.Errorf("failed units: %v", err)
	}
}
