package ecosystem

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// keepers is Gatekeeper's namespace, and keeperService where its webhooks are.
const (
	keepers          = "gatekeeper-system"
	keeperService    = "gatekeeper-webhook-service"
	keeperValidating = "validatingwebhookconfiguration/gatekeeper-validating-webhook-configuration"
	keeperMutating   = "mutatingwebhookconfiguration/gatekeeper-mutating-webhook-configuration"
)

// gatekeeper is Gatekeeper as its manifest installs it, with the containers of both
// Deployments as processes of this machine. The test does what a cluster with machines
// has others for: it makes Pods of the Deployments' templates, mounts the certificate,
// and writes the EndpointSlice of the Service when a process is ready.
type gatekeeper struct {
	*judge
	binary string
	module string
	host   string // an address of this machine, which endpoints may have
	port   int    // the first of two times keeperPorts, used in turns, and the audit's
	turn   int
	certs  string // the directory of the mounted certificate
	// at is the port where the webhooks are.
	at      int
	manager *exec.Cmd
	audit   *exec.Cmd
	liar    *httptest.Server
	rules   []json.RawMessage // of its role, while it has not all of them
}

// keeperPorts are those of one process: webhooks, health, metrics.
const keeperPorts = 3

// startGatekeeper installs the manifest, starts both processes and waits until the
// webhooks are called.
func startGatekeeper(t *testing.T) *gatekeeper {
	t.Helper()
	g := &gatekeeper{module: moduleDir(t, "gatekeeper"), host: ownAddress(t)}
	g.judge = &judge{
		// The nodes have no way to the Service's cluster IP.
		foreign: startForeign(t, "enable-aggregator-routing=true"),
		webhook: "validation.gatekeeper.sh", url: `https://gatekeeper-webhook-service.gatekeeper-system.svc:443/v1/admit`,
		configurations: []string{keeperValidating},
		opens:          2, within: 4 * time.Second, elsewhere: keepers, objects: configMapsOf, object: ownedConfigMap,
	}
	g.binary = g.program(t, "GATEKEEPER", func(t *testing.T) (dir, pkg string) { return copyOf(t, "gatekeeper"), "." })
	g.certs = filepath.Join(g.dir, "certs")
	noError(t, os.Mkdir(g.certs, 0o700))
	var err error
	g.port, err = cluster.FreePorts(3 * keeperPorts)
	noError(t, err)
	g.install(t)
	g.start(t)
	noError(t, os.Mkdir(g.volume(), 0o700))
	g.auditEvery(t, 2)
	return g
}

// volume is a directory in the place of the audit's.
func (g *gatekeeper) volume() string { return filepath.Join(g.dir, "audit") }

// auditEvery starts the process of the audit, again if it runs, with an interval in seconds.
func (g *gatekeeper) auditEvery(t *testing.T, seconds int) {
	t.Helper()
	if g.audit != nil {
		end(g.audit)
	}
	port := g.port + 2*keeperPorts
	g.audit = g.container(t, "gatekeeper-audit", port, fmt.Sprintf("--audit-interval=%d", seconds), "--api-cache-dir="+g.volume(), "--default-wait-for-vapb-generation=1")
	g.awaitReady(t, port)
}

// ownAddress is an address of this machine that is not of the loopback range: endpoints
// may not have such a one. The connections never leave the machine.
func ownAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	noError(t, err)
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	t.Fatalf("this machine has no IPv4 address but loopback, which endpoints may not have: %v", addresses)
	return ""
}

// install applies the manifest as Gatekeeper's handbook says, twice: without a warning,
// and the second time without a change.
func (g *gatekeeper) install(t *testing.T) {
	t.Helper()
	manifest := filepath.Join(g.module, "deploy", "gatekeeper.yaml")
	g.quiet(t, manifest)
	versions := func() string {
		return g.kubectl(t, "get", "-f", manifest, "-o", `jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.resourceVersion}{"\n"}{end}`)
	}
	// Definitions have written their conditions when they are Established.
	g.kubectl(t, "wait", "--for=condition=Established", "--timeout=30s", "crd", "-l", "gatekeeper.sh/system=yes")
	before := versions()
	g.quiet(t, manifest)
	if after := versions(); after != before {
		t.Errorf("the same manifest again writes:\n%s\nbefore:\n%s", after, before)
	}
	t.Logf("%d objects installed", strings.Count(before, "\n"))
}

// start starts the controller-manager at ports of its own, and lets the Service have it
// as its endpoint when it is ready: it knows all constraints then.
func (g *gatekeeper) start(t *testing.T) {
	t.Helper()
	at := g.port + g.turn*keeperPorts
	g.turn = 1 - g.turn
	g.manager = g.container(t, "gatekeeper-controller-manager", at, fmt.Sprintf("--port=%d", at), "--host="+g.host)
	g.mount(t)
	g.awaitReady(t, at)
	g.endpoint(t, at, true)
	g.at = at
}

// container starts the container of a Deployment for a Pod of it, whose name the process
// has, with the arguments and the variables of the manifest. What comes after them counts.
func (g *gatekeeper) container(t *testing.T, deployment string, port int, more ...string) *exec.Cmd {
	t.Helper()
	var d struct {
		Spec struct {
			Template struct {
				Metadata map[string]any
				Spec     map[string]any
			}
		}
	}
	noError(t, json.Unmarshal([]byte(g.kubectl(t, "-n", keepers, "get", "deployment", deployment, "-o", "json")), &d))
	template := d.Spec.Template
	pod := fmt.Sprintf("%s-%d", deployment, port)
	template.Metadata["name"] = pod
	body, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": template.Metadata, "spec": template.Spec})
	noError(t, err)
	if out := g.node().TryKubectl(t, nil, string(body), "-n", keepers, "apply", "-f", "-"); out.Code != 0 || out.Stderr != "" {
		t.Fatalf("the Pod %s: exit code %d\n%s%s", pod, out.Code, out.Stdout, out.Stderr)
	}
	var c struct {
		Containers []struct {
			Args []string
			Env  []struct{ Name, Value string }
		}
		ServiceAccountName string
	}
	spec, err := json.Marshal(template.Spec)
	noError(t, err)
	noError(t, json.Unmarshal(spec, &c))
	kubeconfig := g.credentials(t, keepers, c.ServiceAccountName, "--bound-object-kind=Pod", "--bound-object-name="+pod)
	args := append(c.Containers[0].Args, fmt.Sprintf("--health-addr=127.0.0.1:%d", port+1), fmt.Sprintf("--prometheus-port=%d", port+2), "--cert-dir="+g.certs)
	cmd := exec.Command(g.binary, append(args, more...)...)
	cmd.Env = cluster.CleanEnv("KUBECONFIG="+kubeconfig, "HOME="+g.dir, "POD_NAME="+pod, "POD_NAMESPACE="+keepers, "NAMESPACE="+keepers)
	for _, v := range c.Containers[0].Env {
		if v.Value != "" && !strings.Contains(v.Value, "$(") {
			cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
		}
	}
	g.run(t, deployment, cmd)
	return cmd
}

// mount writes the certificate of the Secret into the directory of the volume, when
// Gatekeeper has made one.
func (g *gatekeeper) mount(t *testing.T) {
	t.Helper()
	var data map[string]string
	cluster.Await(t, time.Minute, "Gatekeeper's certificate in its Secret", func() string {
		raw := g.kubectl(t, "-n", keepers, "get", "secret", "gatekeeper-webhook-server-cert", "-o", "jsonpath={.data}")
		if err := json.Unmarshal([]byte(raw), &data); err != nil || data["tls.crt"] == "" {
			return fmt.Sprintf("%q: %v", raw, err)
		}
		return ""
	})
	for name, value := range data {
		b, err := base64.StdEncoding.DecodeString(value)
		noError(t, err)
		path := filepath.Join(g.certs, name)
		noError(t, os.WriteFile(path+".new", b, 0o600))
		noError(t, os.Rename(path+".new", path))
	}
}

// certificate is what is mounted.
func (g *gatekeeper) certificate(t *testing.T) tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(g.certs, "tls.crt"), filepath.Join(g.certs, "tls.key"))
	noError(t, err)
	return pair
}

// awaitReady waits for the readiness probe of the manifest.
func (g *gatekeeper) awaitReady(t *testing.T, port int) {
	t.Helper()
	client := &http.Client{Timeout: 5 * time.Second}
	cluster.Await(t, 2*time.Minute, "Gatekeeper's readiness", func() string {
		answer, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/readyz", port+1))
		if err != nil {
			return err.Error()
		}
		defer answer.Body.Close()
		return strings.TrimPrefix(answer.Status, "200 OK")
	})
}

// endpoint makes a port of this machine the only endpoint of the Service, on every node: a
// node that lags would call where the Service was.
func (g *gatekeeper) endpoint(t *testing.T, port int, ready bool) {
	t.Helper()
	g.feed(t, fmt.Sprintf(`apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-1, namespace: %[2]s, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: https-webhook-server, protocol: TCP, port: %[3]d}]
endpoints: [{addresses: [%[4]q], conditions: {ready: %[5]v}}]`, keeperService, keepers, port, g.host, ready), "apply", "--server-side", "-f", "-")
	for _, node := range g.c.Nodes() {
		node.MustGet(t, "/apis/discovery.k8s.io/v1/namespaces/"+keepers+"/endpointslices/"+keeperService+"-1")
	}
}

// kill ends the controller-manager as SIGKILL does, and deletes its Pod: with it goes what
// the process has said of constraints.
func (g *gatekeeper) kill(t *testing.T) {
	t.Helper()
	end(g.manager)
	g.kubectl(t, "-n", keepers, "delete", "pod", fmt.Sprintf("gatekeeper-controller-manager-%d", g.at))
}

func (g *gatekeeper) freeze(t *testing.T) { send(t, g.manager, syscall.SIGSTOP) }
func (g *gatekeeper) thaw(t *testing.T)   { send(t, g.manager, syscall.SIGCONT) }

// configMapsOf are the ConfigMaps of one node.
func configMapsOf(t *testing.T, n *cluster.Node) dynamic.ResourceInterface {
	t.Helper()
	return n.Dynamic(t).Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("default")
}

// ownedConfigMap is a ConfigMap that has an owner if it is good.
func ownedConfigMap(name string, good bool) map[string]any {
	labels := judgedLabels(good)
	if good {
		labels["owner"] = "mill"
	}
	return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "labels": labels}}
}

// enforced waits until both processes say that they enforce a constraint.
func (g *gatekeeper) enforced(t *testing.T, kind, name string) {
	t.Helper()
	cluster.Await(t, time.Minute, name+" is enforced", func() string {
		out := g.node().TryKubectl(t, nil, "", "get", kind, name, "-o", `jsonpath={range .status.byPod[*]}{.enforced} {end}`)
		if out.Stdout != "true true " {
			return out.Stdout + out.Stderr
		}
		return ""
	})
}

// template applies a ConstraintTemplate and waits until its constraints can be written.
func (g *gatekeeper) template(t *testing.T, path, kind string) {
	t.Helper()
	g.quiet(t, path)
	g.awaitDefined(t, kind)
}

func (g *gatekeeper) awaitDefined(t *testing.T, kind string) {
	t.Helper()
	cluster.Await(t, time.Minute, "the definition of "+kind, func() string {
		out := g.node().TryKubectl(t, nil, "", "wait", "--for=condition=Established", "--timeout=1s", "crd/"+kind+".constraints.gatekeeper.sh")
		return out.Stderr
	})
}

// quiet applies a file, without a warning.
func (g *gatekeeper) quiet(t *testing.T, path string) {
	t.Helper()
	if out := g.node().TryKubectl(t, nil, "", "apply", "-f", path); out.Code != 0 || out.Stderr != "" {
		t.Fatalf("kubectl apply -f %s: exit code %d\n%s%s", path, out.Code, out.Stdout, out.Stderr)
	}
}
