package kubectl

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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// TestKwok has KWOK, as `make kwok` builds it, play the kubelets of nodes that do not
// exist: nodes become Ready and renew their leases, pods run and go when they are told
// to, also when the leader is killed meanwhile.
func TestKwok(t *testing.T) {
	path := filepath.Join(filepath.Dir(cluster.KubectlPath()), "kwok")
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		t.Fatalf("%v: run 'make kwok'", err)
	}
	c := cluster.Start(t, 3)
	leader := c.Leader(t)
	others := c.Others(leader)
	n, client := others[0], others[1].Typed(t)
	stop := runKwok(t, n, path)
	defer stop()

	const nodes, pods = 3, 10
	for i := range nodes {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("fake-%d", i), Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"}}}
		if _, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	cluster.Await(t, 20*time.Second, "nodes are ready", func() string {
		list, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		ready := 0
		for _, node := range list.Items {
			for _, x := range node.Status.Conditions {
				if x.Type == corev1.NodeReady && x.Status == corev1.ConditionTrue {
					ready++
				}
			}
		}
		return missing("ready nodes", ready, nodes)
	})
	makePods := func(prefix string) {
		t.Helper()
		for i := range pods {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", prefix, i), Labels: map[string]string{"made": prefix}},
				Spec:       corev1.PodSpec{NodeName: fmt.Sprintf("fake-%d", i%nodes), Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			}
			if _, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	running := func(prefix string) {
		t.Helper()
		cluster.Await(t, 20*time.Second, "pods run", func() string {
			list, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "made=" + prefix, FieldSelector: "status.phase=Running"})
			if err != nil {
				return err.Error()
			}
			there := 0
			for _, p := range list.Items {
				if p.Status.PodIP != "" && len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].Ready {
					there++
				}
			}
			return missing("running pods", there, pods)
		})
	}
	makePods("before")
	running("before")
	renewed := func() metav1.MicroTime {
		lease, err := client.CoordinationV1().Leases("kube-node-lease").Get(t.Context(), "fake-0", metav1.GetOptions{})
		if err != nil || lease.Spec.RenewTime == nil {
			return metav1.MicroTime{}
		}
		return *lease.Spec.RenewTime
	}

	c.Kill(t, leader)
	killed := time.Now()
	makePods("after")
	running("after")
	cluster.Await(t, 30*time.Second, "a lease is renewed", func() string {
		if at := renewed(); !at.After(killed) {
			return "it was renewed at " + at.String()
		}
		return ""
	})
	must.OK(t, client.CoreV1().Pods("default").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	cluster.Await(t, 20*time.Second, "pods go", func() string {
		list, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		if left := len(list.Items); left > 0 {
			return fmt.Sprintf("%d are left", left)
		}
		return ""
	})
}

func missing(what string, has, want int) string {
	if has == want {
		return ""
	}
	return fmt.Sprintf("%d %s, want %d", has, what, want)
}

// runKwok starts KWOK for all nodes, against this node of the cluster.
func runKwok(t *testing.T, n *cluster.Node, path string) (stop func()) {
	t.Helper()
	log, err := os.Create(filepath.Join(n.Cluster.Dir, "kwok.log"))
	must.OK(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	args := []string{"--kubeconfig", filepath.Join(n.Cluster.Dir, n.Name, "admin.kubeconfig"), "--manage-all-nodes", "--node-lease-duration-seconds", "8"}
	for _, stage := range kwokStages(t) {
		args = append(args, "--config", stage)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = cluster.CleanEnv("HOME="+n.Cluster.Dir), n.Cluster.Dir, log, log
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	return func() {
		cancel()
		_ = cmd.Wait() // it was killed
		_ = log.Close()
		if t.Failed() {
			raw, _ := os.ReadFile(log.Name())
			t.Logf("the end of KWOK's log:\n%s", raw[max(0, len(raw)-4000):])
		}
	}
}

// kwokStages are the files that say how nodes and pods live, as KWOK's module has them.
func kwokStages(t *testing.T) (files []string) {
	t.Helper()
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok")
	list.Dir = filepath.Join("..", "..", "..", "tools", "kwok")
	out, err := list.Output()
	if err != nil {
		t.Fatalf("find KWOK's module: %v", err)
	}
	for _, pattern := range []string{"node/fast/node-*.yaml", "node/heartbeat-with-lease/node-*.yaml", "pod/fast/pod-*.yaml"} {
		found, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "kustomize", "stage", pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("no stages %s: %v", pattern, err)
		}
		files = append(files, found...)
	}
	return files
}
