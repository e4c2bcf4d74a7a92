//go:build linux

package nodes

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/isolated"
)

// workloads are what people run. Each has a namespace of its own; they run at the same time.
var workloads = map[string]func(*testing.T, *Site){
	"Deployment":         testDeployment,
	"DaemonSet":          testDaemonSet,
	"StatefulSet":        testStatefulSet,
	"Jobs":               testJobs,
	"Services":           testServices,
	"Streams":            func(t *testing.T, s *Site) { testStreams(t, s, s.workers[0]) },
	"StreamsByTunnel":    func(t *testing.T, s *Site) { testStreams(t, s, s.workers[1]) },
	"Probes":             testProbes,
	"Volumes":            testVolumes,
	"InitContainers":     testInitContainers,
	"Debug":              testDebug,
	"Resize":             testResize,
	"StaticPod":          testStaticPod,
	"InCluster":          testInCluster,
	"NamespaceWithPods":  testNamespaceWithPods,
	"Operator":           testOperator,
	"GracefulDeletion":   testGracefulDeletion,
	"BrokenImageAndLoop": testBrokenImage,
}

func testDeployment(t *testing.T, s *Site) {
	ns := s.namespace(t)
	s.apply(t, ns, workload("Deployment", "web", serving(), "replicas: 2"))
	first := s.awaitReady(t, ns, "app=web", 2)
	s.kubectl(t, "scale", "-n", ns, "deployment/web", "--replicas=4")
	s.awaitReady(t, ns, "app=web", 4)
	s.kubectl(t, "set", "env", "-n", ns, "deployment/web", "RELEASE=2")
	s.kubectl(t, "rollout", "status", "-n", ns, "deployment/web", "--timeout=50s")
	now := s.awaitReady(t, ns, "app=web", 4)
	for _, p := range now {
		if slices.ContainsFunc(first, func(f corev1.Pod) bool { return f.Name == p.Name }) {
			t.Errorf("%s is of the first release", p.Name)
		}
	}
	s.kubectl(t, "rollout", "undo", "-n", ns, "deployment/web")
	s.kubectl(t, "rollout", "status", "-n", ns, "deployment/web", "--timeout=50s")
	s.kubectl(t, "scale", "-n", ns, "deployment/web", "--replicas=0")
	s.awaitReady(t, ns, "app=web", 0)
}

func testDaemonSet(t *testing.T, s *Site) {
	ns := s.namespace(t)
	s.apply(t, ns, workload("DaemonSet", "agent", serving()))
	pods := s.awaitReady(t, ns, "app=agent", len(s.workers))
	if pods[0].Spec.NodeName == pods[1].Spec.NodeName {
		t.Errorf("both run on %s", pods[0].Spec.NodeName)
	}
	s.kubectl(t, "set", "env", "-n", ns, "daemonset/agent", "RELEASE=2")
	s.kubectl(t, "rollout", "status", "-n", ns, "daemonset/agent", "--timeout=50s")
}

func testStatefulSet(t *testing.T, s *Site) {
	ns := s.namespace(t)
	s.apply(t, ns, "apiVersion: v1\nkind: Service\nmetadata: {name: db}\nspec: {clusterIP: None, selector: {app: db}, ports: [{port: 8080}]}\n")
	s.apply(t, ns, workload("StatefulSet", "db", serving(), "serviceName: db", "replicas: 2"))
	pods := s.awaitReady(t, ns, "app=db", 2)
	if pods[0].Name != "db-0" || pods[1].Name != "db-1" || pods[0].Spec.Hostname != "db-0" {
		t.Errorf("names: %s, %s, hostname %s", pods[0].Name, pods[1].Name, pods[0].Spec.Hostname)
	}
	s.kubectl(t, "delete", "pod", "-n", ns, "db-0")
	s.awaitFor(t, podsWithin, "another db-0", func() string {
		pod := s.pod(t, ns, "db-0")
		if !podReady(pod) || pod.UID == pods[0].UID {
			return states([]corev1.Pod{*pod})
		}
		return ""
	})
}

func testJobs(t *testing.T, s *Site) {
	ns := s.namespace(t)
	job := func(name, command string, more ...string) {
		s.apply(t, ns, fmt.Sprintf("apiVersion: batch/v1\nkind: Job\nmetadata: {name: %s}\nspec: {template: {spec: {restartPolicy: Never, containers: [%s]}}, %s}\n",
			name, container("work", command), strings.Join(more, ", ")))
	}
	job("good", "echo done", "completions: 3", "parallelism: 2")
	job("bad", "echo broken; exit 3", "backoffLimit: 1")
	s.kubectl(t, "wait", "-n", ns, "job/good", "--for=condition=Complete", "--timeout=55s")
	s.kubectl(t, "wait", "-n", ns, "job/bad", "--for=condition=Failed", "--timeout=55s")
	bad := s.pods(t, ns, "job-name=bad")
	if len(bad) != 2 || bad[0].Status.ContainerStatuses[0].State.Terminated.ExitCode != 3 {
		t.Errorf("the failed job: %s", states(bad))
	}
}

func testServices(t *testing.T, s *Site) {
	ns := s.namespace(t)
	s.apply(t, ns, workload("Deployment", "web", serving(), "replicas: 2"))
	s.apply(t, ns, "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}\n")
	pods := s.awaitReady(t, ns, "app=web", 2)
	service, err := s.client.CoreV1().Services(ns).Get(t.Context(), "web", metav1.GetOptions{})
	must.OK(t, err)
	url := "http://" + service.Spec.ClusterIP + "/"
	seen := map[string]bool{}
	s.awaitFor(t, podsWithin, "both pods answer at the cluster IP, asked from a node", func() string {
		body, err := s.workers[0].get(t.Context(), url)
		seen[body] = true
		if seen[pods[0].Name] && seen[pods[1].Name] {
			return ""
		}
		return fmt.Sprint(seen, err)
	})
	s.apply(t, ns, podManifest("asks", []string{container("asks", "inside get "+url)}, "restartPolicy: Never"))
	if m := strings.TrimSpace(s.message(t, ns, "asks")); m != pods[0].Name && m != pods[1].Name {
		t.Errorf("asked from a pod: %q", m)
	}
	// From a machine that is no node, at the port of each.
	for _, w := range s.workers {
		if body, err := get(t.Context(), fmt.Sprintf("http://%s:%d/", w.ip, service.Spec.Ports[0].NodePort)); err != nil {
			t.Errorf("node port of %s: %v", w.name, err)
		} else if body != pods[0].Name && body != pods[1].Name {
			t.Errorf("node port of %s: %q", w.name, body)
		}
	}
	// The API at its Service, with the certificate that clients in Pods check.
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(readAll(t, s.ca)))
	conn, err := s.workers[1].host.Dial(t.Context(), "tcp", net.JoinHostPort(serviceIP, "443"))
	must.OK(t, err)
	defer conn.Close()
	if err := tls.Client(conn, &tls.Config{RootCAs: pool, ServerName: serviceIP}).HandshakeContext(t.Context()); err != nil {
		t.Errorf("the API at %s: %v", serviceIP, err)
	}
}

// get is an HTTP request from outside of all machines.
func get(ctx context.Context, url string) (string, error) { return request(ctx, http.MethodGet, url) }

// get is an HTTP request from the machine itself.
func (m *machine) get(ctx context.Context, url string) (string, error) {
	transport := &http.Transport{DialContext: m.host.Dial, DisableKeepAlives: true}
	return requestBy(ctx, &http.Client{Transport: transport}, http.MethodGet, url)
}

func request(ctx context.Context, method, url string) (string, error) {
	return requestBy(ctx, http.DefaultClient, method, url)
}

func requestBy(ctx context.Context, client *http.Client, method, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return strings.TrimSpace(string(b)), err
}

func testProbes(t *testing.T, s *Site) {
	ns := s.namespace(t)
	liveness := "livenessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1, failureThreshold: 1}"
	s.apply(t, ns, podManifest("http", []string{serving(liveness)}))
	s.apply(t, ns, podManifest("exec", []string{container("exec", "touch /tmp/ok; sleep 3; rm /tmp/ok; sleep 1000",
		"livenessProbe: {exec: {command: [test, -f, /tmp/ok]}, periodSeconds: 1, failureThreshold: 1, initialDelaySeconds: 1}")}))
	s.apply(t, ns, "apiVersion: v1\nkind: Service\nmetadata: {name: http}\nspec: {selector: {app: http}, ports: [{port: 8080}]}\n")
	pod := s.awaitReady(t, ns, "app=http", 1)[0]
	post := func(path string) {
		if _, err := request(t.Context(), http.MethodPost, "http://"+pod.Status.PodIP+":8080"+path); err != nil {
			t.Fatal(err)
		}
	}
	post("/unready")
	s.awaitFor(t, podsWithin, "a pod that says it is not ready is not ready, and is no endpoint", func() string {
		if podReady(s.pod(t, ns, "http")) {
			return "it is ready"
		}
		slices, err := s.client.DiscoveryV1().EndpointSlices(ns).List(t.Context(), metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=http"})
		if err != nil {
			return err.Error()
		}
		for _, slice := range slices.Items {
			for _, e := range slice.Endpoints {
				if e.Conditions.Ready == nil || *e.Conditions.Ready {
					return "its endpoint is ready"
				}
			}
		}
		return ""
	})
	post("/broken")
	for _, name := range []string{"http", "exec"} {
		s.awaitFor(t, podsWithin, name+": its container is started again when it fails the probe", func() string {
			pod := s.pod(t, ns, name)
			if len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].RestartCount == 0 {
				return states([]corev1.Pod{*pod})
			}
			return ""
		})
	}
}

func testVolumes(t *testing.T, s *Site) {
	ns := s.namespace(t)
	s.kubectl(t, "create", "configmap", "settings", "-n", ns, "--from-literal=color=green")
	s.kubectl(t, "create", "secret", "generic", "password", "-n", ns, "--from-literal=word=sesame")
	shared := t.TempDir()
	must.OK(t, os.Chmod(shared, 0o777))
	const look = `cat /c/color /s/word /p/color /p/word /p/labels > /e/all; echo "$COLOR $WORD $NODE" >> /e/all; ` +
		`test -s /p/token && echo token >> /e/all; cat /e/all > /h/file; cat /e/all > /dev/termination-log`
	s.apply(t, ns, podManifest("mounts", []string{container("mounts", look,
		"env: [{name: COLOR, valueFrom: {configMapKeyRef: {name: settings, key: color}}}, {name: WORD, valueFrom: {secretKeyRef: {name: password, key: word}}}, {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]",
		"volumeMounts: [{name: c, mountPath: /c}, {name: s, mountPath: /s}, {name: e, mountPath: /e}, {name: p, mountPath: /p}, {name: h, mountPath: /h}]")},
		"restartPolicy: Never",
		"volumes: [{name: c, configMap: {name: settings}}, {name: s, secret: {secretName: password}}, {name: e, emptyDir: {}}, "+
			"{name: h, hostPath: {path: "+shared+", type: Directory}}, {name: p, projected: {sources: [{configMap: {name: settings}}, {secret: {name: password}}, "+
			"{downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}, {serviceAccountToken: {path: token, expirationSeconds: 600}}]}}]"))
	got := s.message(t, ns, "mounts")
	want := "greensesamegreensesameapp=\"mounts\"green sesame " + s.pod(t, ns, "mounts").Spec.NodeName + "\ntoken\n"
	if got != want {
		t.Errorf("in the container: %q, not %q", got, want)
	}
	if onHost := readAll(t, filepath.Join(shared, "file")); onHost != want {
		t.Errorf("on the host: %q, not %q", onHost, want)
	}
	// What is mounted follows the object.
	s.apply(t, ns, podManifest("follows", []string{container("follows", "while ! grep -q blue /c/color; do sleep 1; done; cat /c/color > /dev/termination-log",
		"volumeMounts: [{name: c, mountPath: /c}]")}, "restartPolicy: Never", "volumes: [{name: c, configMap: {name: settings}}]"))
	s.awaitReady(t, ns, "app=follows", 1)
	s.kubectl(t, "patch", "configmap", "settings", "-n", ns, "-p", `{"data":{"color":"blue"}}`)
	if got := s.message(t, ns, "follows"); got != "blue" {
		t.Errorf("after the change: %q", got)
	}
}

func testInitContainers(t *testing.T, s *Site) {
	ns := s.namespace(t)
	mount := "volumeMounts: [{name: e, mountPath: /e}]"
	s.apply(t, ns, podManifest("steps", []string{container("main", "echo main >> /e/steps; cat /e/steps > /dev/termination-log", mount)}, "restartPolicy: Never",
		"initContainers: ["+container("one", "echo one >> /e/steps", mount)+", "+
			container("beside", "echo beside >> /e/steps; touch /e/started; sleep 1000", mount, "restartPolicy: Always", "startupProbe: {exec: {command: [test, -f, /e/started]}, periodSeconds: 1}")+", "+
			container("two", "echo two >> /e/steps", mount)+"]", "volumes: [{name: e, emptyDir: {}}]"))
	if got := s.message(t, ns, "steps"); got != "one\nbeside\ntwo\nmain\n" {
		t.Errorf("steps: %q", got)
	}
}

func testDebug(t *testing.T, s *Site) {
	ns := s.namespace(t)
	s.apply(t, ns, podManifest("patient", []string{serving()}))
	s.awaitReady(t, ns, "app=patient", 1)
	s.kubectl(t, "debug", "-n", ns, "patient", "--image="+toolsImage, "--image-pull-policy=Never", "--profile=general", "--target=serve", "-c", "doctor", "--",
		"/bin/inside", "get", "http://127.0.0.1:8080/")
	s.awaitFor(t, podsWithin, "the container that was added has asked the Pod", func() string {
		pod := s.pod(t, ns, "patient")
		if len(pod.Status.EphemeralContainerStatuses) != 1 {
			return "it is not there"
		}
		state := pod.Status.EphemeralContainerStatuses[0].State
		if state.Terminated == nil || strings.TrimSpace(state.Terminated.Message) != "patient" {
			return fmt.Sprintf("%+v", state)
		}
		return ""
	})
}

func testResize(t *testing.T, s *Site) {
	ns := s.namespace(t)
	s.apply(t, ns, podManifest("grows", []string{serving("resources: {requests: {cpu: 50m, memory: 32Mi}, limits: {cpu: 100m, memory: 64Mi}}")}))
	s.awaitReady(t, ns, "app=grows", 1)
	s.kubectl(t, "patch", "pod", "grows", "-n", ns, "--subresource=resize", "-p",
		`{"spec":{"containers":[{"name":"serve","resources":{"requests":{"cpu":"150m"},"limits":{"cpu":"300m"}}}]}}`)
	s.awaitFor(t, podsWithin, "the container has what was asked for, without a restart", func() string {
		status := s.pod(t, ns, "grows").Status.ContainerStatuses
		if len(status) != 1 || status[0].Resources == nil || status[0].Resources.Limits.Cpu().MilliValue() != 300 || status[0].AllocatedResources.Cpu().MilliValue() != 150 {
			return fmt.Sprintf("%+v", status)
		}
		if status[0].RestartCount != 0 {
			t.Fatalf("it was restarted: %+v", status[0])
		}
		return ""
	})
	if !isolated.Unified() {
		quota, err := filepath.Glob(filepath.Join(isolated.CgroupMount, "cpu", isolated.Cgroup(), "*/kubepods/burstable/pod"+string(s.pod(t, ns, "grows").UID), "*/cpu.cfs_quota_us"))
		if err != nil || len(quota) == 0 {
			t.Fatalf("no cgroup of the container: %v", err)
		}
		if !slices.ContainsFunc(quota, func(f string) bool { return strings.TrimSpace(readAll(t, f)) == "30000" }) {
			t.Errorf("the kernel does not know of it: %v", quota)
		}
	}
}

func testStaticPod(t *testing.T, s *Site) {
	ns := s.namespace(t)
	w := s.workers[0]
	file := w.write(t, "manifests/static.yaml", strings.Replace(podManifest("static", []string{serving()}), "{name: static,", "{name: static, namespace: "+ns+",", 1))
	defer os.Remove(file)
	pod := s.awaitReady(t, ns, "app=static", 1)[0]
	if pod.Name != "static-"+w.name || len(pod.OwnerReferences) != 1 || pod.OwnerReferences[0].Kind != "Node" {
		t.Errorf("the mirror pod: %s, owners %+v", pod.Name, pod.OwnerReferences)
	}
	// Its deletion is only that of the mirror.
	s.kubectl(t, "delete", "pod", "-n", ns, pod.Name, "--wait=false")
	s.awaitFor(t, podsWithin, "another mirror of the pod that goes on", func() string {
		again := s.pod(t, ns, pod.Name)
		if again.UID == pod.UID || !podReady(again) || again.Status.ContainerStatuses[0].ContainerID != pod.Status.ContainerStatuses[0].ContainerID {
			return fmt.Sprintf("%s %+v", again.UID, again.Status.ContainerStatuses)
		}
		return ""
	})
	must.OK(t, os.Remove(file))
	s.awaitReady(t, ns, "app=static", 0)
}

func testInCluster(t *testing.T, s *Site) {
	ns := s.namespace(t)
	s.apply(t, ns, `apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: client}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}, {apiGroups: [""], resources: [configmaps], verbs: [create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: client}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: client}
subjects: [{kind: ServiceAccount, name: default, namespace: `+ns+`}]
`)
	s.apply(t, ns, podManifest("client", []string{container("client", "inside client")}))
	s.awaitFor(t, podsWithin, "what the client writes", func() string {
		cm, err := s.client.CoreV1().ConfigMaps(ns).Get(t.Context(), "client", metav1.GetOptions{})
		if err != nil {
			return err.Error() + states(s.pods(t, ns, "app=client"))
		}
		if cm.Data["server"] != "https://"+serviceIP+":443" || cm.Data["node"] == "" {
			t.Fatalf("it has written %v", cm.Data)
		}
		return ""
	})
	if restarts := s.pod(t, ns, "client").Status.ContainerStatuses[0].RestartCount; restarts != 0 {
		t.Errorf("it took %d restarts", restarts)
	}
}

func testNamespaceWithPods(t *testing.T, s *Site) {
	ns := s.namespace(t)
	s.apply(t, ns, workload("Deployment", "web", serving(), "replicas: 2"))
	s.apply(t, ns, podManifest("alone", []string{serving()}))
	s.awaitReady(t, ns, "app=web", 2)
	s.awaitReady(t, ns, "app=alone", 1)
	s.kubectl(t, "delete", "namespace", ns, "--wait=false")
	s.awaitFor(t, podsWithin, "the namespace is gone", func() string {
		_, err := s.client.CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		return "it is there: " + text(err) + states(s.pods(t, ns, ""))
	})
}

func testGracefulDeletion(t *testing.T, s *Site) {
	ns := s.namespace(t)
	s.apply(t, ns, podManifest("slow", []string{container("slow", "trap 'sleep 2; exit 0' TERM; touch /tmp/ok; while true; do sleep 0.2; done",
		"readinessProbe: {exec: {command: [test, -f, /tmp/ok]}, periodSeconds: 1}")}))
	s.kubectl(t, "patch", "pod", "-n", ns, "slow", "-p", `{"metadata":{"finalizers":["site.test/keep"]}}`)
	s.awaitReady(t, ns, "app=slow", 1)
	s.kubectl(t, "delete", "pod", "-n", ns, "slow", "--grace-period=30", "--wait=false")
	s.awaitFor(t, podsWithin, "the container ends by itself, before its grace period", func() string {
		pod := s.pod(t, ns, "slow")
		if pod.Status.Phase != corev1.PodSucceeded {
			return states([]corev1.Pod{*pod})
		}
		return ""
	})
	s.kubectl(t, "patch", "pod", "-n", ns, "slow", "--type=json", "-p", `[{"op":"remove","path":"/metadata/finalizers"}]`)
	s.awaitReady(t, ns, "app=slow", 0)
}

func testBrokenImage(t *testing.T, s *Site) {
	ns := s.namespace(t)
	s.apply(t, ns, strings.Replace(podManifest("missing", []string{container("c", "true")}), toolsImage, "site.test/nobody:1", 1))
	s.apply(t, ns, podManifest("loop", []string{container("c", "exit 1")}))
	waits := func(name, reason string) {
		s.awaitFor(t, podsWithin, name+" waits for "+reason, func() string {
			pod := s.pod(t, ns, name)
			for _, c := range pod.Status.ContainerStatuses {
				if c.State.Waiting != nil && c.State.Waiting.Reason == reason {
					return ""
				}
			}
			return states([]corev1.Pod{*pod})
		})
	}
	waits("missing", "ErrImageNeverPull")
	waits("loop", "CrashLoopBackOff")
	s.awaitFor(t, podsWithin, "events say so", func() string {
		list, err := s.client.CoreV1().Events(ns).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=BackOff"})
		if err != nil {
			return err.Error()
		}
		if len(list.Items) == 0 {
			return "none"
		}
		return ""
	})
}

// testDrain empties a worker while the others go on: it runs alone.
func testDrain(t *testing.T, s *Site) {
	ns := s.namespace(t)
	from, to := s.workers[1].name, s.workers[0].name
	s.apply(t, ns, workload("Deployment", "web", serving(), "replicas: 4"))
	s.apply(t, ns, "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: web}\nspec: {maxUnavailable: 1, selector: {matchLabels: {app: web}}}\n")
	s.awaitReady(t, ns, "app=web", 4)
	s.awaitFor(t, podsWithin, "the budget allows a disruption", func() string {
		pdb, err := s.client.PolicyV1().PodDisruptionBudgets(ns).Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if pdb.Status.DisruptionsAllowed != 1 {
			return fmt.Sprintf("%+v", pdb.Status)
		}
		return ""
	})
	s.kubectl(t, "drain", from, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=55s", "--pod-selector=app=web")
	for _, p := range s.awaitReady(t, ns, "app=web", 4) {
		if p.Spec.NodeName != to {
			t.Errorf("%s runs on %s", p.Name, p.Spec.NodeName)
		}
	}
	s.kubectl(t, "uncordon", from)
}
