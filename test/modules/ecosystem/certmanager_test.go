package ecosystem

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// certManager is cert-manager's chart in a cluster, with its webhook and its
// cainjector as processes of this machine: the webhook at a URL on loopback, as the
// chart's value webhook.url.host has it, each with a token of its service account.
type certManager struct {
	*judge
	binary     string
	port       int
	kubeconfig string // of the webhook
	process    *exec.Cmd
}

// startCertManager installs the chart, starts both processes, and waits until
// cainjector has written the webhook's CA into both configurations.
func startCertManager(t *testing.T) *certManager {
	t.Helper()
	m := &certManager{judge: &judge{
		foreign: startForeign(t), webhook: "webhook.cert-manager.io", url: `https://localhost:\d+/validate`,
		configurations: []string{"mutatingwebhookconfiguration/cert-manager-webhook", "validatingwebhookconfiguration/cert-manager-webhook"},
		opens:          1, within: 2 * time.Second, elsewhere: "default", objects: issuers, object: issuer,
	}}
	m.binary = m.program(t, "CERTMANAGER", certManagerSource)
	var err error
	m.port, err = cluster.FreePorts(2)
	noError(t, err)

	h := &helm{turns: m.turns, binary: binary(t, "HELM", "helm"), home: t.TempDir(), ns: "cert-manager", release: "cert-manager"}
	h.run(t, "install", h.release, filepath.Join(moduleDir(t, "certmanager"), "deploy/charts/cert-manager"), "--create-namespace",
		"--set", "crds.enabled=true,startupapicheck.enabled=false", "--set", fmt.Sprintf("webhook.url.host=localhost:%d", m.port))
	m.kubectl(t, "wait", "--for=condition=Established", "--timeout=30s", "crd/issuers.cert-manager.io", "crd/certificaterequests.cert-manager.io", "crd/certificates.cert-manager.io")
	injector := exec.Command(m.binary, "cainjector")
	injector.Env = append(os.Environ(), "KUBECONFIG="+m.credentials(t, "cert-manager", "cert-manager-cainjector"))
	m.run(t, "cainjector", injector)
	m.kubeconfig = m.credentials(t, "cert-manager", "cert-manager-webhook")
	m.start(t)
	m.awaitCA(t)
	return m
}

// certManagerSource puts testdata/certmanager into a copy of cert-manager's module.
func certManagerSource(t *testing.T) (dir, pkg string) {
	t.Helper()
	dir = copyOf(t, "certmanager")
	main, err := os.ReadFile("testdata/certmanager/main.go")
	noError(t, err)
	noError(t, os.Mkdir(filepath.Join(dir, "quorate"), 0o700))
	noError(t, os.WriteFile(filepath.Join(dir, "quorate", "main.go"), main, 0o600))
	return dir, "./quorate"
}

// start starts the webhook and waits until it shows a certificate.
func (m *certManager) start(t *testing.T) {
	t.Helper()
	m.process = exec.Command(m.binary, "webhook", "--kubeconfig="+m.kubeconfig,
		fmt.Sprintf("--secure-port=%d", m.port), fmt.Sprintf("--healthz-port=%d", m.port+1), "--metrics-listen-address=0",
		"--dynamic-serving-ca-secret-namespace=cert-manager", "--dynamic-serving-ca-secret-name=cert-manager-webhook-ca", "--dynamic-serving-dns-names=localhost")
	m.run(t, "webhook", m.process)
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
func (m *certManager) kill(*testing.T)     { end(m.process) }
func (m *certManager) freeze(t *testing.T) { send(t, m.process, syscall.SIGSTOP) }
func (m *certManager) thaw(t *testing.T)   { send(t, m.process, syscall.SIGCONT) }

// awaitCA waits until both configurations have the CA of the webhook's secret, beside
// which cainjector leaves others.
func (m *certManager) awaitCA(t *testing.T) {
	t.Helper()
	cluster.Await(t, time.Minute, "the CA in the configurations", func() string {
		want := m.node().TryKubectl(t, nil, "", "-n", "cert-manager", "get", "secret", "cert-manager-webhook-ca", "-o", `jsonpath={.data.ca\.crt}`).Stdout
		for _, name := range m.configurations {
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

// otherCA takes the configurations from cainjector and gives them a CA that has not
// signed the webhook's certificate: the cluster's own.
func (m *certManager) otherCA(t *testing.T) {
	t.Helper()
	ca, err := os.ReadFile(m.c.CAFile)
	noError(t, err)
	for _, name := range m.configurations {
		m.kubectl(t, "annotate", name, "cert-manager.io/inject-ca-from-secret-")
	}
	m.configure(t, "clientConfig/caBundle", `"`+base64.StdEncoding.EncodeToString(ca)+`"`)
}

// rightCA gives the configurations back to cainjector.
func (m *certManager) rightCA(t *testing.T) {
	t.Helper()
	for _, name := range m.configurations {
		m.kubectl(t, "annotate", name, "cert-manager.io/inject-ca-from-secret=cert-manager/cert-manager-webhook-ca")
	}
	m.awaitCA(t)
}

// issuers are Issuers of one node.
func issuers(t *testing.T, n *cluster.Node) dynamic.ResourceInterface {
	t.Helper()
	return n.Dynamic(t).Resource(schema.GroupVersionResource{Group: "cert-manager.io", Version: "v1", Resource: "issuers"}).Namespace("default")
}

// issuer is an Issuer, which the definition's schema allows in any case and the
// webhook only if it is good.
func issuer(name string, good bool) map[string]any {
	spec := map[string]any{}
	if good {
		spec["selfSigned"] = map[string]any{}
	}
	return map[string]any{
		"apiVersion": "cert-manager.io/v1", "kind": "Issuer", "metadata": map[string]any{"name": name, "labels": judgedLabels(good)}, "spec": spec,
	}
}
