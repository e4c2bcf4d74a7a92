package joining

import (
	"bytes"
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/client-go/util/keyutil"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// stubKubelet is set for the process that plays kubelet: it is this program again.
const stubKubelet = "QUORATE_STUB_KUBELET"

// TestKubeadm runs kubeadm join as it is, of the name in KUBEADM, with a token and with a file, up to the end:
// what is not tested is the machine (preflight) and kubelet, in whose place this program asks for the
// certificate. /etc and /var/lib are in a mount namespace of their own; a kubelet that is a service of the
// machine would be restarted.
func TestKubeadm(t *testing.T) {
	kubeadm := os.Getenv("KUBEADM")
	if kubeadm == "" || os.Geteuid() != 0 {
		t.Skip("to have the proof, as root: make build bin/kubeadm && KUBEADM=bin/kubeadm go test ./test/system/joining -run TestKubeadm")
	}
	kubeadm, err := filepath.Abs(kubeadm)
	must.OK(t, err)
	if _, err := os.Stat(kubeadm); err != nil {
		kubeadm = filepath.Join("..", "..", "..", os.Getenv("KUBEADM")) // as the Makefile names it
		if kubeadm, err = filepath.Abs(kubeadm); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	must.OK(t, err)
	c := cluster.Start(t, 1)
	for _, by := range []string{"token", "file"} {
		t.Run(by, func(t *testing.T) {
			j := told(t, c)
			how := []string{j.host, "--token", j.id + "." + j.secret}
			for _, pin := range j.pins {
				how = append(how, "--discovery-token-ca-cert-hash", "sha256:"+pin)
			}
			if by == "file" {
				file := filepath.Join(t.TempDir(), "cluster.conf")
				text := c.Nodes()[0].Kubectl(t, "-n", "kube-public", "get", "configmap", "cluster-info", "-o", "jsonpath={.data.kubeconfig}")
				must.OK(t, os.WriteFile(file, []byte(text), 0o600))
				how = []string{"--discovery-file", file, "--tls-bootstrap-token", j.id + "." + j.secret}
			}
			name := "worker-" + by
			script := `set -e
mount --make-rprivate /
cp -a /etc/. "$1"
mount --bind "$1" /etc
mount -t tmpfs none /var/lib
mkdir -p /var/lib/kubelet
shift
` + stubKubelet + `="$1" "$2" & stub=$!
shift 2
"$@" && code=0 || code=$?
kill $stub 2>/dev/null || true
exit $code`
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			args := append([]string{"-m", "sh", "-c", script, "sh", t.TempDir(), name, self, kubeadm, "join"}, how...)
			args = append(args, "--node-name", name, "--ignore-preflight-errors=all")
			var out bytes.Buffer
			run := exec.CommandContext(ctx, "unshare", args...)
			run.Stdout, run.Stderr = &out, &out
			run.WaitDelay = 5 * time.Second
			err := run.Run()
			t.Logf("kubeadm join %s\n%s", strings.ReplaceAll(strings.Join(how, " "), j.secret, "..."), out.String())
			if err != nil || !strings.Contains(out.String(), "This node has joined the cluster") {
				t.Fatal(err)
			}
			if want := "the API takes it for system:node:" + name + " system:nodes"; !strings.Contains(out.String(), want) {
				t.Errorf("the output lacks %q", want)
			}
		})
	}
}

// playKubelet does what kubelet does with what kubeadm has left for it: it answers that it is well, and
// exchanges bootstrap-kubelet.conf for kubelet.conf.
func playKubelet(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	l, err := net.Listen("tcp", "127.0.0.1:10248")
	if err != nil {
		return err
	}
	defer l.Close()
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })) // until l is closed
	}()
	const bootstrap = "/etc/kubernetes/bootstrap-kubelet.conf"
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		if _, err := os.Stat("/var/lib/kubelet/config.yaml"); err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", bootstrap)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	keyPEM, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return err
	}
	key, err := keyutil.ParsePrivateKeyPEM(keyPEM)
	if err != nil {
		return err
	}
	request, err := certutil.MakeCSRFromTemplate(key, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + name, Organization: []string{"system:nodes"}}})
	if err != nil {
		return err
	}
	made, uid, err := csr.RequestCertificateWithContext(ctx, client, request, "", certificatesv1.KubeAPIServerClientKubeletSignerName, nil,
		[]certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}, key)
	if err != nil {
		return err
	}
	certPEM, err := csr.WaitForCertificate(ctx, client, made, uid)
	if err != nil {
		return err
	}
	config.BearerToken, config.CertData, config.KeyData = "", certPEM, keyPEM
	if client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	who, err := whoami(ctx, client)
	if err != nil {
		return err
	}
	fmt.Println("the API takes it for", who)
	if _, err := client.CoreV1().ConfigMaps("kube-system").Get(ctx, "kubelet-config", metav1.GetOptions{}); err != nil {
		return err
	}
	out := clientcmdapi.NewConfig()
	out.Clusters["c"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	out.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: certPEM, ClientKeyData: keyPEM}
	out.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	out.CurrentContext = "x"
	if err := clientcmd.WriteToFile(*out, "/etc/kubernetes/kubelet.conf"); err != nil {
		return err
	}
	<-ctx.Done() // its parent ends it
	return nil
}
