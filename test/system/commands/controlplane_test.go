package commands

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

var components = []string{"kube-controller-manager", "kube-scheduler"}

// controlPlane starts a playground with a control plane of the programs in a directory.
func controlPlane(t *testing.T, nodes int, binaries string, flags ...string) *cluster.Cluster {
	t.Helper()
	dir, err := os.MkdirTemp(cluster.RunDir(), "plane-")
	if err != nil {
		t.Fatal(err)
	}
	c := cluster.At(dir)
	port, err := cluster.FreePorts(nodes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			showState(t, c)
		}
		if err := c.Destroy(); err != nil {
			t.Error(err)
		}
	})
	c.Quorate(t, append([]string{"dev", "--data-dir", dir, "--nodes", strconv.Itoa(nodes), "--api-port", strconv.Itoa(port), "--detach",
		"--control-plane", "--control-plane-binaries", binaries}, flags...)...)
	c.Reread(t)
	return c
}

// pretenders are programs of the names of the control plane's, which say how they are called and wait.
func pretenders(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range components {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho \"started $$ $*\"\nexec sleep 600\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// starts are the processes that a pretender has been.
func starts(t *testing.T, c *cluster.Cluster, name string) (pids []string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(c.Dir, name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "started "); ok {
			pid, _, _ := strings.Cut(rest, " ")
			pids = append(pids, pid)
		}
	}
	return pids
}

// planeStatus is what 'quorate dev status' says of the control plane: name and whether it runs.
func planeStatus(t *testing.T, c *cluster.Cluster) (runs map[string]bool, ok bool) {
	t.Helper()
	out, err := c.TryQuorate(t, "dev", "status", "-o", "json", "--data-dir", c.Dir)
	var st struct {
		Components []struct {
			Name                string
			Running, Restarting bool
		}
	}
	if err := json.Unmarshal([]byte(out), &st); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	runs = map[string]bool{}
	for _, m := range st.Components {
		runs[m.Name] = m.Running && !m.Restarting
	}
	return runs, err == nil
}

// TestControlPlane: the programs run beside their node with credentials of their own, are started again
// when they end, and stop when they or their node are told to.
func TestControlPlane(t *testing.T) {
	c := controlPlane(t, 1, pretenders(t), "--set", "controllers=*,-garbage-collector")
	await := func(name string, times int) []string {
		t.Helper()
		cluster.Await(t, 20*time.Second, fmt.Sprintf("%s has been started %d times", name, times), func() string {
			if got := starts(t, c, name); len(got) != times {
				return fmt.Sprintf("%d times", len(got))
			}
			return ""
		})
		return starts(t, c, name)
	}
	for _, name := range components {
		await(name+"-n1", 1)
		config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(c.Dir, "n1", "components", name, "kubeconfig"))
		if err != nil {
			t.Fatal(err)
		}
		who, err := kubernetes.NewForConfigOrDie(config).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil || who.Status.UserInfo.Username != "system:"+name {
			t.Errorf("%s is %v, %v", name, who, err)
		}
	}
	log, err := os.ReadFile(filepath.Join(c.Dir, "kube-controller-manager-n1.log"))
	if err != nil || !strings.Contains(string(log), "--controllers=*,-namespace-controller,-serviceaccount-controller,") {
		t.Errorf("it was told: %s (%v)", log, err)
	}

	const scheduler = "kube-scheduler-n1"
	if pid, err := strconv.Atoi(starts(t, c, scheduler)[0]); err != nil || kill(pid) != nil {
		t.Fatal(pid, err)
	}
	again := await(scheduler, 2)
	c.Quorate(t, "dev", "stop", scheduler, "--data-dir", c.Dir)
	if _, err := os.Stat("/proc/" + again[1]); err == nil {
		t.Errorf("process %s is still there", again[1])
	}
	if runs, ok := planeStatus(t, c); ok || runs[scheduler] || !runs["kube-controller-manager-n1"] {
		t.Errorf("it says %v, and that all is well: %t", runs, ok)
	}
	c.Quorate(t, "dev", "start", scheduler, "--data-dir", c.Dir)
	if out, err := c.TryQuorate(t, "dev", "start", scheduler, "--data-dir", c.Dir); err != nil || !strings.Contains(out, scheduler+" is running already") {
		t.Errorf("a second start: %v, %s", err, out)
	}
	await(scheduler, 3)
	if out := c.Quorate(t, "dev", "logs", scheduler, "--data-dir", c.Dir); strings.Count(out, " --secure-port=0\n") != 3 {
		t.Errorf("its log: %s", out)
	}

	c.Quorate(t, "dev", "stop", "n1", "--data-dir", c.Dir)
	if left := cluster.ProcessesOf(c.Dir); len(left) > 0 {
		t.Errorf("these are left of n1: %v", left)
	}
	c.Quorate(t, "dev", "start", "n1", "--data-dir", c.Dir)
	await(scheduler, 4)
	// The same command again, and without the flag: the playground keeps its control plane.
	c.Quorate(t, "dev", "stop", "--data-dir", c.Dir)
	c.Quorate(t, "dev", "--detach", "--data-dir", c.Dir)
	await(scheduler, 5)
	c.Quorate(t, "dev", "stop", "--data-dir", c.Dir)
	c.Quorate(t, "dev", "--detach", "--control-plane=false", "--data-dir", c.Dir)
	if runs, ok := planeStatus(t, c); !ok || len(runs) > 0 {
		t.Errorf("without it, it has %v (all is well: %t)", runs, ok)
	}
	c.Quorate(t, "dev", "delete", "--data-dir", c.Dir)
}

// TestControlPlaneWithoutPrograms: nothing is made where they are missing, and it is said how to get them.
func TestControlPlaneWithoutPrograms(t *testing.T) {
	empty := t.TempDir()
	dir := filepath.Join(empty, "play")
	c := cluster.At(dir)
	// A program beside which nothing is.
	program, err := os.ReadFile(cluster.Binary())
	if err != nil {
		t.Fatal(err)
	}
	alone := filepath.Join(empty, "quorate")
	if err := os.WriteFile(alone, program, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		flags []string
		want  string
	}{
		{nil, "make control-plane"},
		{[]string{"--control-plane-binaries", empty}, "there is no program kube-controller-manager in " + empty},
	} {
		cmd := c.Command(t.Context(), append([]string{"dev", "--control-plane", "--data-dir", dir, "--detach"}, x.flags...)...)
		cmd.Env = cluster.CleanEnv("PATH=" + empty)
		cmd.Path = alone
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), x.want) {
			t.Errorf("%v: %v, %s; want %q", x.flags, err, out, x.want)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%v: %s was made", x.flags, dir)
		}
	}
}

// TestControlPlaneOfKubernetes: Kubernetes' own programs make Pods of a Deployment and bind them, before
// and after the node of those that lead is killed.
func TestControlPlaneOfKubernetes(t *testing.T) {
	dir := filepath.Dir(cluster.KubectlPath())
	for _, name := range components {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Skipf("%v: make control-plane builds it (10 minutes the first time)", err)
		}
	}
	c := controlPlane(t, 3, dir)
	client := c.Node(t, "n2").Typed(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	node, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status.Allocatable = corev1.ResourceList{"pods": resource.MustParse("110"), "cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi")}
	node.Status.Capacity = node.Status.Allocatable
	if _, err := client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	// No kubelet reports, so the node is not ready: the Pods bear with that.
	bound := func(name string) {
		t.Helper()
		replicas, labels := int32(3), map[string]string{"app": name}
		d := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: appsv1.DeploymentSpec{
				Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec: corev1.PodSpec{
						Containers:  []corev1.Container{{Name: "c", Image: "i"}},
						Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
					},
				},
			},
		}
		if _, err := client.AppsV1().Deployments("default").Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		cluster.Await(t, 60*time.Second, "pods of "+name+" are bound", func() string {
			list, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + name, FieldSelector: "spec.nodeName=a"})
			if err != nil {
				return err.Error()
			}
			if len(list.Items) != int(replicas) {
				return fmt.Sprintf("%d are", len(list.Items))
			}
			return ""
		})
	}
	bound("before")
	c.Kill(t, c.Node(t, "n1"))
	// Those beside n1 led perhaps: the others take over when the leases end.
	bound("after")
}

func kill(pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}
