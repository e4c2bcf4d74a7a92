//go:build linux

package nodes

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/test/harness/cluster"
)

// podsWithin is how long Pods may take: this machine may be busy.
const podsWithin = 90 * time.Second

// namespace makes one of the test's own, which goes at its end.
func (s *Site) namespace(t *testing.T) string {
	t.Helper()
	name := strings.ToLower(t.Name()[strings.LastIndex(t.Name(), "/")+1:])
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := s.client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := s.kubectlCommand(context.Background(), "describe", "all", "-n", name).CombinedOutput()
			t.Logf("in namespace %s:\n%s", name, out)
		}
		err := s.client.CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	return name
}

// container is a container of the tools image, as YAML in one line. Its command is a line of
// shell, or the program inside if that begins with "inside ".
func container(name, command string, more ...string) string {
	words := []string{"sh", "-c", command}
	if inside, ok := strings.CutPrefix(command, "inside "); ok {
		words = append([]string{"/bin/inside"}, strings.Fields(inside)...)
	}
	b, _ := json.Marshal(words)
	return fmt.Sprintf("{name: %s, image: %q, imagePullPolicy: Never, command: %s%s}", name, toolsImage, b,
		strings.Join(append([]string{""}, more...), ", "))
}

// podManifest is a Pod of containers, with further fields of its spec.
func podManifest(name string, containers []string, more ...string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, labels: {app: %s}}\nspec: {terminationGracePeriodSeconds: 1, containers: [%s]%s}\n",
		name, name, strings.Join(containers, ", "), strings.Join(append([]string{""}, more...), ", "))
}

// workload is a Deployment, DaemonSet or StatefulSet of one container.
func workload(kind, name, container string, more ...string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: %s
metadata: {name: %s}
spec: {selector: {matchLabels: {app: %[2]s}}, template: {metadata: {labels: {app: %[2]s}}, spec: {terminationGracePeriodSeconds: 2, containers: [%[3]s]}}%[4]s}
`, kind, name, container, strings.Join(append([]string{""}, more...), ", "))
}

// serving is the HTTP server, ready when it answers.
func serving(more ...string) string {
	return container("serve", "inside serve", append([]string{"ports: [{containerPort: 8080}]",
		"readinessProbe: {httpGet: {path: /readyz, port: 8080}, periodSeconds: 1, failureThreshold: 1}"}, more...)...)
}

func (s *Site) pods(t *testing.T, namespace, selector string) []corev1.Pod {
	t.Helper()
	list, err := s.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		t.Log(err)
		return nil
	}
	return list.Items
}

func (s *Site) pod(t *testing.T, namespace, name string) *corev1.Pod {
	t.Helper()
	pod, err := s.client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		if !apierrors.IsNotFound(err) {
			t.Log(err)
		}
		return &corev1.Pod{}
	}
	return pod
}

func podReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil
		}
	}
	return false
}

// awaitReady awaits exactly so many Pods, all of them ready.
func (s *Site) awaitReady(t *testing.T, namespace, selector string, count int) []corev1.Pod {
	t.Helper()
	var pods []corev1.Pod
	s.awaitFor(t, podsWithin, fmt.Sprintf("%d ready pods of %s in %s", count, selector, namespace), func() string {
		pods = s.pods(t, namespace, selector)
		ready := 0
		for i := range pods {
			if podReady(&pods[i]) {
				ready++
			}
		}
		if ready == count && len(pods) == count {
			return ""
		}
		return fmt.Sprintf("%d of %d are ready: %s", ready, len(pods), states(pods))
	})
	return pods
}

// states is a line about each Pod, for failures.
func states(pods []corev1.Pod) string {
	var b strings.Builder
	for _, p := range pods {
		fmt.Fprintf(&b, "\n  %s on %q: %s", p.Name, p.Spec.NodeName, p.Status.Phase)
		for _, c := range p.Status.ContainerStatuses {
			if w := c.State.Waiting; w != nil {
				fmt.Fprintf(&b, " %s: %s %s", c.Name, w.Reason, w.Message)
			}
			if x := c.State.Terminated; x != nil {
				fmt.Fprintf(&b, " %s: %s %d %s", c.Name, x.Reason, x.ExitCode, x.Message)
			}
		}
	}
	return b.String()
}

// message runs a Pod to its end and returns what it has written to /dev/termination-log.
func (s *Site) message(t *testing.T, namespace, name string) string {
	t.Helper()
	var message string
	s.awaitFor(t, podsWithin, name+" has ended", func() string {
		pod := s.pod(t, namespace, name)
		if pod.Status.Phase == corev1.PodFailed {
			t.Fatalf("%s has failed: %s", name, states([]corev1.Pod{*pod}))
		}
		if pod.Status.Phase != corev1.PodSucceeded {
			return states([]corev1.Pod{*pod})
		}
		message = pod.Status.ContainerStatuses[0].State.Terminated.Message
		return ""
	})
	return message
}

// awaitFor is await without the logs of all programs, for what concerns single Pods. It asks less
// often: many of them run at once.
func (s *Site) awaitFor(t *testing.T, within time.Duration, what string, missing func() string) {
	t.Helper()
	cluster.AwaitEvery(t, 200*time.Millisecond, within, what, missing)
}
