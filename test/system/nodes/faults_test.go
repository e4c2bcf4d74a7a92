//go:build linux

package nodes

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// fault is something that happens to the node that leads, or to all.
type fault struct {
	name string
	// begin makes it, and returns what ends it.
	begin func(t *testing.T, s *Site, leader *controlMachine) (end func())
	lasts time.Duration
}

var faults = []fault{
	{"LeaderIsKilled", func(t *testing.T, s *Site, m *controlMachine) func() {
		m.quorate.signal(syscall.SIGKILL) // it is started again after a second
		return func() {}
	}, 0},
	{"LeaderIsPaused", func(t *testing.T, s *Site, m *controlMachine) func() {
		m.quorate.signal(syscall.SIGSTOP)
		return func() { m.quorate.signal(syscall.SIGCONT) }
	}, 10 * time.Second},
	// Longer than clients without a proxy that checks would take to notice: that is 40 s and more.
	{"LeaderIsPausedForLong", func(t *testing.T, s *Site, m *controlMachine) func() {
		m.quorate.signal(syscall.SIGSTOP)
		return func() { m.quorate.signal(syscall.SIGCONT) }
	}, 45 * time.Second},
	{"LeaderIsCutOff", func(t *testing.T, s *Site, m *controlMachine) func() {
		m.cutOff(t)
		return func() { m.plugIn(t) }
	}, 20 * time.Second},
}

// testFaults makes one after the other while Pods run, and has new ones made in each.
func testFaults(t *testing.T, s *Site) {
	ns := s.namespace(t)
	s.apply(t, ns, workload("Deployment", "stays", serving("livenessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 2}"), "replicas: 4"))
	s.apply(t, ns, workload("DaemonSet", "agent", serving()))
	s.awaitReady(t, ns, "app=stays", 4)
	s.awaitReady(t, ns, "app=agent", 2)
	o := s.observe(t, ns, "app in (stays, agent)")
	for _, f := range faults {
		for round := range 2 {
			t.Run(fmt.Sprint(f.name, round+1), func(t *testing.T) {
				leader := s.leader(t)
				testFault(t, s, o, ns, f, leader)
			})
		}
	}
	t.Run("RollingRestart", func(t *testing.T) { testRollingRestart(t, s, o, ns) })
	t.Run("AllAtOnce", func(t *testing.T) { testAllAtOnce(t, s, o, ns) })
}

func testFault(t *testing.T, s *Site, o *observer, ns string, f fault, leader *controlMachine) {
	s.quiet(t)
	o.longestGap()
	at := s.whereControllers(t)
	begun := time.Now()
	end := f.begin(t, s, leader)
	over := time.AfterFunc(f.lasts, end)
	t.Cleanup(func() {
		if over.Stop() {
			end()
		}
	})
	took := s.newPod(t, o, ns, begun)
	s.awaitFor(t, f.lasts+time.Minute, "the fault is over, and every lease was renewed since", func() string {
		if since := time.Since(begun); since < f.lasts {
			return "it lasts"
		} else {
			return s.renewedWithin(t, since-f.lasts)
		}
	})
	t.Logf("%s, which leads, with %s: a new pod was ready %s after the fault began; longest time between renewals of a lease: %s", leader.name, at, took, o.longestGap().Round(100*time.Millisecond))
	o.check(t)
}

// testRollingRestart stops all nodes in turn, as in an upgrade.
func testRollingRestart(t *testing.T, s *Site, o *observer, ns string) {
	s.quiet(t)
	o.longestGap()
	for _, m := range s.control {
		begun, runs := time.Now(), m.quorate.started.Load()
		m.quorate.signal(syscall.SIGTERM)
		took := s.newPod(t, o, ns, begun)
		s.awaitFor(t, time.Minute, m.name+" is back", func() string {
			if m.quorate.started.Load() == runs {
				return "it has not ended"
			}
			_, err := m.client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context())
			return text(err)
		})
		t.Logf("%s: a new pod was ready %s after SIGTERM; it was back after %s", m.name, took, time.Since(begun).Round(100*time.Millisecond))
	}
	s.awaitFor(t, time.Minute, "every lease is renewed", func() string { return s.renewedWithin(t, 10*time.Second) })
	t.Logf("longest time between renewals of a lease: %s", o.longestGap().Round(100*time.Millisecond))
	o.check(t)
}

// testAllAtOnce has no API for a time; what runs, runs on.
func testAllAtOnce(t *testing.T, s *Site, o *observer, ns string) {
	s.quiet(t)
	o.longestGap()
	begun := time.Now()
	for _, m := range s.control {
		m.quorate.signal(syscall.SIGKILL)
	}
	took := s.newPod(t, o, ns, begun)
	s.awaitFor(t, time.Minute, "every lease is renewed", func() string { return s.renewedWithin(t, time.Since(begun)) })
	t.Logf("all nodes killed at once: a new pod was ready after %s; longest time between renewals of a lease: %s", took, o.longestGap().Round(100*time.Millisecond))
	o.check(t)
}

// quiet awaits that all nodes are ready and somebody leads the controllers: one fault after the other.
func (s *Site) quiet(t *testing.T) {
	t.Helper()
	s.awaitFor(t, 2*time.Minute, "all nodes, the controller manager and the scheduler are at work", func() string {
		for _, m := range s.control {
			if _, err := m.client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context()); err != nil {
				return m.name + ": " + err.Error()
			}
		}
		for _, name := range []string{"kube-controller-manager", "kube-scheduler"} {
			lease, err := s.client.CoordinationV1().Leases("kube-system").Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			//wall: Kubernetes promises that leases are renewed
			if since := time.Since(lease.Spec.RenewTime.Time); since > 5*time.Second {
				return fmt.Sprintf("%s: its lease was renewed %s ago", name, since)
			}
		}
		for _, w := range s.workers {
			if why := s.notReady(t.Context(), w.name); why != "" {
				return w.name + ": " + why
			}
		}
		return ""
	})
}

// whereControllers says on which machines the controller manager and the scheduler lead.
func (s *Site) whereControllers(t *testing.T) string {
	t.Helper()
	var at []string
	for _, name := range []string{"kube-controller-manager", "kube-scheduler"} {
		lease, err := s.client.CoordinationV1().Leases("kube-system").Get(t.Context(), name, metav1.GetOptions{})
		must.OK(t, err)
		machine, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
		at = append(at, name+" at "+machine)
	}
	return strings.Join(at, " and ")
}

// leader is the node that leads, as the others say.
func (s *Site) leader(t *testing.T) *controlMachine {
	t.Helper()
	var leader *controlMachine
	s.awaitFor(t, 30*time.Second, "a leader", func() string {
		out, err := s.control[0].client.Discovery().RESTClient().Get().AbsPath("/quorate/v1/status").DoRaw(t.Context())
		if err != nil {
			return err.Error()
		}
		name := leaderOf(out)
		for _, m := range s.control {
			if m.name == name {
				leader = m
				return ""
			}
		}
		return "nobody leads: " + string(out)
	})
	return leader
}

// newPod asks for a Pod, which the scheduler gives to a worker, and returns when it was ready, since a time. It is
// asked for until it is taken.
func (s *Site) newPod(t *testing.T, o *observer, ns string, since time.Time) time.Duration {
	t.Helper()
	name := fmt.Sprintf("new-%d", time.Now().UnixMilli()%10_000_000)
	manifest := podManifest(name, []string{serving()})
	s.awaitFor(t, podsWithin, name+" is taken", func() string {
		out, err := s.tryKubectl(t, manifest, "create", "-n", ns, "-f", "-")
		if err == nil || strings.Contains(out, "already exists") {
			return ""
		}
		return out
	})
	var at time.Time
	s.awaitFor(t, podsWithin, name+" is ready", func() string {
		if at = o.readyAt(ns, name); at.IsZero() {
			return states([]corev1.Pod{*s.pod(t, ns, name)})
		}
		return ""
	})
	return at.Sub(since).Round(100 * time.Millisecond)
}

// leaderOf is the name of the leader in an answer about the cluster, or "".
func leaderOf(status []byte) string {
	var st cluster.Status
	if json.Unmarshal(status, &st) != nil {
		return ""
	}
	for _, m := range st.Members {
		if m.Leader {
			return m.Name
		}
	}
	return ""
}
