package proxy

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// A worker's network: the host's end and the worker's of a veth pair, and an address that only the
// worker has, in the range of Services.
const (
	hostAddress, workerAddress = "10.213.7.1", "10.213.7.2"
	hiddenAddress              = "10.0.0.77"
)

// worker makes a network namespace whose only way out is to this host, and returns its name.
func worker(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("making a network namespace takes root")
	}
	name := fmt.Sprintf("quorate%d", os.Getpid())
	ip := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Skipf("this machine makes no network namespaces: ip %s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	ip("netns", "add", name)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "delete", name).Run() }) // the veth pair goes with it
	link := fmt.Sprintf("q%d", os.Getpid())
	ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
	ip("address", "add", hostAddress+"/30", "dev", link)
	ip("link", "set", link, "up")
	for _, args := range [][]string{{"link", "set", "lo", "up"}, {"address", "add", workerAddress + "/30", "dev", "eth0"}, {"link", "set", "eth0", "up"}, {"address", "add", hiddenAddress + "/32", "dev", "lo"}} {
		ip(append([]string{"-netns", name}, args...)...)
	}
	return name
}

// listenIn listens in a network namespace.
func listenIn(t *testing.T, namespace, address string) net.Listener {
	t.Helper()
	type made struct {
		l   net.Listener
		err error
	}
	done := make(chan made)
	go func() {
		runtime.LockOSThread() // and not unlocked: the thread ends with the goroutine
		fd, err := unix.Open("/run/netns/"+namespace, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			defer unix.Close(fd)
			err = unix.Setns(fd, unix.CLONE_NEWNET)
		}
		if err != nil {
			done <- made{nil, err}
			return
		}
		l, err := net.Listen("tcp", address)
		done <- made{l, err}
	}()
	m := <-done
	if m.err != nil {
		t.Fatal(m.err)
	}
	t.Cleanup(func() { m.l.Close() })
	return m.l
}

// relay lets the worker reach a node that listens on loopback.
func relay(t *testing.T, to string) string {
	t.Helper()
	l, err := net.Listen("tcp", hostAddress+":0")
	must.OK(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				there, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer there.Close()
				go func() {
					defer there.Close()
					io.Copy(there, c)
				}()
				io.Copy(c, there)
			}()
		}
	}()
	return l.Addr().String()
}

// allowing serves a webhook that allows everything, and counts. It returns its CA bundle.
func allowing(t *testing.T, l net.Listener, calls *atomic.Int64) string {
	t.Helper()
	cert, key, err := certutil.GenerateSelfSignedCertKey("hook.default.svc", nil, nil)
	must.OK(t, err)
	pair, err := tls.X509KeyPair(cert, key)
	must.OK(t, err)
	s := &http.Server{
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			var review map[string]any
			if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			review["response"] = map[string]any{"uid": review["request"].(map[string]any)["uid"], "allowed": true}
			delete(review, "request")
			w.Header().Set("Content-Type", "application/json")
			json.NewEncoder(w).Encode(review)
		}),
	}
	go s.ServeTLS(l, "", "")
	t.Cleanup(func() { s.Close() })
	return base64.StdEncoding.EncodeToString(cert)
}

// TestTunnel: a webhook whose Service only a worker can reach is called by every node, through the tunnels
// that the worker has opened to each with a credential that may do nothing else. Without them it
// is not, and with them again it is.
func TestTunnel(t *testing.T) {
	namespace := worker(t)
	c := cluster.Start(t, 3)
	n := c.Nodes()[0]
	n.Kubectl(t, "create", "serviceaccount", "agent")
	n.Kubectl(t, "create", "clusterrole", "tunnels", "--verb=get", "--non-resource-url=/quorate/tunnels/networks")
	n.Kubectl(t, "create", "clusterrolebinding", "tunnels", "--clusterrole=tunnels", "--serviceaccount=default:agent")
	token := strings.TrimSpace(n.Kubectl(t, "create", "token", "agent"))
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	must.OK(t, os.WriteFile(kubeconfig, []byte(`{"apiVersion":"v1","kind":"Config","current-context":"x","contexts":[{"name":"x","context":{"cluster":"x","user":"x"}}],
		"clusters":[{"name":"x","cluster":{"server":"https://127.0.0.1:6443","certificate-authority":"`+c.CAFile+`"}}],"users":[{"name":"x","user":{"token":"`+token+`"}}]}`), 0o600))
	var servers []string
	for _, n := range c.Nodes() {
		servers = append(servers, relay(t, strings.TrimPrefix(n.API, "https://")))
	}

	var calls atomic.Int64
	ca := allowing(t, listenIn(t, namespace, hiddenAddress+":443"), &calls)
	made := n.TryKubectl(t, nil, `
apiVersion: v1
kind: Service
metadata: {name: hook, namespace: default}
spec: {clusterIP: `+hiddenAddress+`, ports: [{port: 443}]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: hook}
webhooks:
- name: hook.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  timeoutSeconds: 2
  clientConfig: {caBundle: `+ca+`, service: {namespace: default, name: hook}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
`, "create", "-f", "-")
	if made.Code != 0 {
		t.Fatal(made.Stderr)
	}

	write := func(n *cluster.Node) string {
		_, err := n.Typed(t).CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "c-"}}, metav1.CreateOptions{})
		if err != nil {
			return n.Name + ": " + err.Error()
		}
		return ""
	}
	cluster.Await(t, 15*time.Second, "the webhook cannot be called", func() string {
		if why := write(n); !strings.Contains(why, "failed calling webhook") {
			return "it was not: " + why
		}
		return ""
	})
	if n := calls.Load(); n != 0 {
		t.Fatalf("%d calls have reached the webhook without the worker", n)
	}
	for range 2 { // again after the agent has ended
		ctx, cancel := context.WithCancel(t.Context())
		agent := exec.CommandContext(ctx, "ip", "netns", "exec", namespace, c.Command(ctx).Path, "proxy", "--server", strings.Join(servers, ","),
			"--kubeconfig", kubeconfig, "--tunnel", "--node-name=-", "--tunnel-networks=10.0.0.0/24", "--log-format=text")
		agent.Env, agent.WaitDelay = cluster.CleanEnv(), time.Second
		var log strings.Builder
		agent.Stdout, agent.Stderr = &log, &log
		must.OK(t, agent.Start())
		t.Cleanup(func() {
			cancel()
			_ = agent.Wait() // it ends by a signal
			if t.Failed() {
				t.Log(log.String())
			}
		})
		before := calls.Load()
		for _, n := range c.Nodes() {
			cluster.Await(t, 20*time.Second, n.Name+" calls the webhook through the tunnel", func() string { return write(n) })
		}
		if calls.Load() < before+3 {
			t.Errorf("%d calls came", calls.Load()-before)
		}
		cancel()
		_ = agent.Wait()
		for _, n := range c.Nodes() {
			cluster.Await(t, 20*time.Second, n.Name+" has no tunnel", func() string {
				if write(n) == "" {
					return "it calls the webhook"
				}
				return ""
			})
		}
	}
}
