package ecosystem

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quorate/quorate/test/cluster"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// certManager is cert-manager's chart in a cluster, with its webhook and its
// cainjector as processes of this machine: the webhook at a URL on loopback, as the
// chart's value webhook.url.host has it, each with a token of its service account.
type certManager struct {
	*turns
	whole   *testing.T // at whose end the processes end
	program string
	dir     string
	port    int
	webhook *exec.Cmd
}

// startCertManager installs the chart, starts both processes, and waits until
// cainjector has written the webhook's CA into both configurations.
func startCertManager(t *testing.T) *certManager {
	t.Helper()
	m := &certManager{turns: &turns{c: cluster.Start(t, 3)}, whole: t}
	m.dir = m.c.Dir
	m.program = buildCertManager(t, m.dir)
	var err error
	m.port, err = cluster.FreePorts(2)
	noError(t, err)

	h := &helm{turns: m.turns, binary: binary(t, "HELM", "helm"), home: t.TempDir(), ns: "cert-manager", release: "cert-manager"}
	h.run(t, "install", h.release, filepath.Join(moduleDir(t, "certmanager"), "deploy/charts/cert-manager"), "--create-namespace",
		"--set", "crds.enabled=true,startupapicheck.enabled=false", "--set", fmt.Sprintf("webhook.url.host=localhost:%d", m.port))
	m.kubectl(t, "wait", "--for=condition=Established", "--timeout=30s", "crd/issuers.cert-manager.io", "crd/certificaterequests.cert-manager.io", "crd/certificates.cert-manager.io")
	injector := exec.Command(m.program, "cainjector", m.credentials(t, "cert-manager-cainjector"))
	injector.Env = append(os.Environ(), "KUBECONFIG="+injector.Args[2])
	m.run(t, injector)
	m.start(t)
	m.awaitCA(t)
	return m
}

// buildCertManager builds testdata/certmanager within a copy of cert-manager's module,
// or takes the program that CERTMANAGER names. It lies in a directory of the run.
func buildCertManager(t *testing.T, dir string) string {
	t.Helper()
	program := filepath.Join(dir, "certmanager")
	if built := os.Getenv("CERTMANAGER"); built != "" {
		noError(t, os.Symlink(built, program))
		return program
	}
	source := copyOf(t, "certmanager")
	main, err := os.ReadFile("testdata/certmanager/main.go")
	noError(t, err)
	noError(t, os.Mkdir(filepath.Join(source, "quorate"), 0o700))
	noError(t, os.WriteFile(filepath.Join(source, "quorate", "main.go"), main, 0o600))
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./quorate")
	build.Dir = source
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build cert-manager: %v\n%s", err, out)
	}
	return program
}

// credentials is the path of a kubeconfig with a token of a service account, for
// one node.
func (m *certManager) credentials(t *testing.T, account string) string {
	t.Helper()
	n := m.node()
	token := strings.TrimSpace(m.kubectl(t, "-n", "cert-manager", "create", "token", account))
	path := filepath.Join(m.dir, account+".kubeconfig")
	noError(t, os.WriteFile(path, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: c,
clusters: [{name: c, cluster: {server: %q, certificate-authority: %q}}],
contexts: [{name: c, context: {cluster: c, user: u}}],
users: [{name: u, user: {token: %s}}]}`, n.API, m.c.CAFile, token), 0o600))
	return path
}

// run starts a process that ends with the whole test, and whose output goes to a file
// that is shown when the test failed.
func (m *certManager) run(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	log, err := os.CreateTemp(m.dir, cmd.Args[1]+"-*.log")
	noError(t, err)
	cmd.Stdout, cmd.Stderr = log, log
	noError(t, cmd.Start())
	noError(t, log.Close())
	m.whole.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if out, err := os.ReadFile(log.Name()); m.whole.Failed() && err == nil {
			m.whole.Logf("%s:\n%s", cmd.Args[1], tail(string(out), 3000))
		}
	})
}

// start starts the webhook and waits until it shows a certificate.
func (m *certManager) start(t *testing.T) {
	t.Helper()
	kubeconfig := filepath.Join(m.dir, "cert-manager-webhook.kubeconfig")
	if _, err := os.Stat(kubeconfig); err != nil {
		m.credentials(t, "cert-manager-webhook")
	}
	m.webhook = exec.Command(m.program, "webhook", "--kubeconfig="+kubeconfig,
		fmt.Sprintf("--secure-port=%d", m.port), fmt.Sprintf("--healthz-port=%d", m.port+1), "--metrics-listen-address=0",
		"--dynamic-serving-ca-secret-namespace=cert-manager", "--dynamic-serving-ca-secret-name=cert-manager-webhook-ca", "--dynamic-serving-dns-names=localhost")
	m.run(t, m.webhook)
	cluster.Await(t, time.Minute, "the webhook's certificate", func() string {
		d := tls.Dialer{NetDialer: &net.Dialer{Timeout: time.Second}, Config: &tls.Config{InsecureSkipVerify: true}}
		conn, err := d.DialContext(t.Context(), "tcp", fmt.Sprintf("localhost:%d", m.port))
		if err != nil {
			return err.Error()
		}
		_ = conn.Close()
		return ""
	})
}

// kill ends the webhook as SIGKILL does.
func (m *certManager) kill(t *testing.T) {
	t.Helper()
	noError(t, m.webhook.Process.Kill())
	_ = m.webhook.Wait()
}

func (m *certManager) signal(s syscall.Signal) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		noError(t, m.webhook.Process.Signal(s))
	}
}

// configurations are what the chart has installed.
var configurations = []string{"mutatingwebhookconfiguration/cert-manager-webhook", "validatingwebhookconfiguration/cert-manager-webhook"}

// awaitCA waits until both configurations have the CA of the webhook's secret, beside
// which cainjector leaves others.
func (m *certManager) awaitCA(t *testing.T) {
	t.Helper()
	cluster.Await(t, time.Minute, "the CA in the configurations", func() string {
		want := m.node().TryKubectl(t, nil, "", "-n", "cert-manager", "get", "secret", "cert-manager-webhook-ca", "-o", `jsonpath={.data.ca\.crt}`).Stdout
		for _, name := range configurations {
			got := m.kubectl(t, "get", name, "-o", "jsonpath={.webhooks[0].clientConfig.caBundle}")
			bundle, _ := base64.StdEncoding.DecodeString(got)
			ca, err := base64.StdEncoding.DecodeString(want)
			if err != nil || len(ca) == 0 || !bytes.Contains(bundle, bytes.TrimSpace(ca)) {
				return fmt.Sprintf("%s has CAs of %d bytes, the secret one of %d: %v", name, len(bundle), len(ca), err)
			}
		}
		return ""
	})
}

// configure sets a field of the webhook in both configurations.
func (m *certManager) configure(t *testing.T, field, value string) {
	t.Helper()
	for _, name := range configurations {
		m.kubectl(t, "patch", name, "--type=json", fmt.Sprintf(`-p=[{"op":"add","path":"/webhooks/0/%s","value":%s}]`, field, value))
	}
}

// otherCA takes the configurations from cainjector and gives them a CA that has not
// signed the webhook's certificate: the cluster's own.
func (m *certManager) otherCA(t *testing.T) {
	t.Helper()
	ca, err := os.ReadFile(m.c.CAFile)
	noError(t, err)
	for _, name := range configurations {
		m.kubectl(t, "annotate", name, "cert-manager.io/inject-ca-from-secret-")
	}
	m.configure(t, "clientConfig/caBundle", `"`+base64.StdEncoding.EncodeToString(ca)+`"`)
}

// rightCA gives the configurations back to cainjector.
func (m *certManager) rightCA(t *testing.T) {
	t.Helper()
	for _, name := range configurations {
		m.kubectl(t, "annotate", name, "cert-manager.io/inject-ca-from-secret=cert-manager/cert-manager-webhook-ca")
	}
	m.awaitCA(t)
}

// issuers are Issuers of one node.
func issuers(t *testing.T, n *cluster.Node) dynamic.ResourceInterface {
	t.Helper()
	return n.Dynamic(t).Resource(schema.GroupVersionResource{Group: "cert-manager.io", Version: "v1", Resource: "issuers"}).Namespace("default")
}

// create makes an Issuer, which the definition's schema allows in any case and the
// webhook only if it is good. The node is another one each time.
func (m *certManager) create(t *testing.T, name string, good bool) error {
	t.Helper()
	return createIssuer(t.Context(), issuers(t, m.node()), name, good)
}

func createIssuer(ctx context.Context, client dynamic.ResourceInterface, name string, good bool) error {
	spec := map[string]any{}
	if good {
		spec["selfSigned"] = map[string]any{}
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	_, err := client.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cert-manager.io/v1", "kind": "Issuer", "metadata": map[string]any{"name": name, "labels": map[string]any{"good": fmt.Sprint(good)}}, "spec": spec,
	}}, metav1.CreateOptions{})
	return err
}

// storedNames are the Issuers on a node that are good, or are not.
func storedNames(t *testing.T, n *cluster.Node, good bool) map[string]bool {
	t.Helper()
	list, err := issuers(t, n).List(t.Context(), metav1.ListOptions{LabelSelector: fmt.Sprintf("good=%v", good)})
	noError(t, err)
	all := map[string]bool{}
	for _, o := range list.Items {
		all[o.GetName()] = true
	}
	return all
}
