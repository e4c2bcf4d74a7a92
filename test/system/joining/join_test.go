package joining

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/client-go/util/keyutil"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

const patience = 30 * time.Second

// joiner is a machine that joins: what it was told, and what it has found out.
type joiner struct {
	t           *testing.T
	c           *cluster.Cluster
	node        *cluster.Node
	id, secret  string
	host        string
	pins        []string
	server      string
	authorities []byte
}

// told makes a bootstrap token and reads the command that an operator would copy.
func told(t *testing.T, c *cluster.Cluster) *joiner {
	t.Helper()
	var made struct{ Token, Command string }
	must.OK(t, json.Unmarshal([]byte(c.Admin(t, "token", "create", "--worker", "--note", "rack 7", "--output", "json")), &made))
	j := &joiner{t: t, c: c, node: c.Nodes()[0]}
	words := strings.Fields(made.Command)
	if len(words) < 7 || words[0] != "kubeadm" || words[1] != "join" || words[3] != "--token" || words[4] != made.Token {
		t.Fatalf("the command is %q", made.Command)
	}
	j.host = words[2]
	j.id, j.secret, _ = strings.Cut(made.Token, ".")
	for i := 5; i+1 < len(words); i += 2 {
		pin, ok := strings.CutPrefix(words[i+1], "sha256:")
		if words[i] != "--discovery-token-ca-cert-hash" || !ok {
			t.Fatalf("the command is %q", made.Command)
		}
		j.pins = append(j.pins, pin)
	}
	return j
}

func (j *joiner) client(config *rest.Config) kubernetes.Interface {
	j.t.Helper()
	client, err := kubernetes.NewForConfig(config)
	must.OK(j.t, err)
	return client
}

// discover does what kubeadm join does with a token and pins: it reads cluster-info as nobody from a server
// that it does not know, holds it against the token and the pins, and trusts what it says from then on.
func (j *joiner) discover() {
	j.t.Helper()
	nobody := j.client(&rest.Config{Host: "https://" + j.host, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	var kubeconfig string
	cluster.Await(j.t, patience, "cluster-info is signed for the token", func() string {
		info, err := nobody.CoreV1().ConfigMaps("kube-public").Get(j.t.Context(), "cluster-info", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		kubeconfig = info.Data["kubeconfig"]
		signature := info.Data["jws-kubeconfig-"+j.id]
		if signature == "" {
			return "there is no signature"
		}
		header, sum, _ := strings.Cut(signature, "..")
		mac := hmac.New(sha256.New, []byte(j.secret))
		mac.Write([]byte(header + "." + base64.RawURLEncoding.EncodeToString([]byte(kubeconfig))))
		if sum != base64.RawURLEncoding.EncodeToString(mac.Sum(nil)) {
			return "the signature is of another text or by another secret: " + signature
		}
		return ""
	})
	config, err := clientcmd.Load([]byte(kubeconfig))
	must.OK(j.t, err)
	for _, x := range config.Clusters {
		j.server, j.authorities = x.Server, x.CertificateAuthorityData
	}
	block, _ := pem.Decode(j.authorities)
	if block == nil {
		j.t.Fatalf("cluster-info has no authority: %s", kubeconfig)
	}
	ca, err := x509.ParseCertificate(block.Bytes)
	must.OK(j.t, err)
	sum := sha256.Sum256(ca.RawSubjectPublicKeyInfo)
	if pin := hex.EncodeToString(sum[:]); !slices.Contains(j.pins, pin) {
		j.t.Errorf("the authority's pin is %s, told %q", pin, j.pins)
	}
	if _, err := nobody.CoreV1().ConfigMaps("kube-system").Get(j.t.Context(), "kubeadm-config", metav1.GetOptions{}); !apierrors.IsForbidden(err) {
		j.t.Errorf("nobody reads kubeadm-config: %v", err)
	}
}

// withToken are clients with the bootstrap token.
func (j *joiner) withToken() *rest.Config {
	return &rest.Config{Host: j.server, BearerToken: j.id + "." + j.secret, TLSClientConfig: rest.TLSClientConfig{CAData: j.authorities}}
}

// whoami is who the server takes a client for.
func whoami(ctx context.Context, client kubernetes.Interface) (string, error) {
	r, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return r.Status.UserInfo.Username + " " + strings.Join(r.Status.UserInfo.Groups, " "), nil
}

// TestJoin: a machine that was given the printed command finds the cluster, reads its configuration, gets a
// certificate by the library that kubelets use, and is that node from then on. Its token can do nothing else,
// and ends when it is revoked.
func TestJoin(t *testing.T) {
	c := cluster.Start(t, 1)
	j := told(t, c)
	j.discover()
	token := j.client(j.withToken())
	if who, err := whoami(t.Context(), token); who != "system:bootstrap:"+j.id+" system:bootstrappers system:bootstrappers:kubeadm:default-node-token system:authenticated" {
		t.Errorf("the token is %s, %v", who, err)
	}
	for name, key := range map[string]string{"kubeadm-config": "ClusterConfiguration", "kubelet-config": "kubelet"} {
		m, err := token.CoreV1().ConfigMaps("kube-system").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || m.Data[key] == "" {
			t.Errorf("%s: %v, %v", name, m, err)
		}
	}
	if _, err := token.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the token reads Secrets: %v", err)
	}
	j.lies(token)

	// What a kubelet does with bootstrap-kubelet.conf.
	store, err := certificate.NewFileStore("kubelet-client", t.TempDir(), t.TempDir(), "", "")
	must.OK(t, err)
	manager, err := certificate.NewManager(&certificate.Config{
		ClientsetFn:      func(*tls.Certificate) (kubernetes.Interface, error) { return token, nil },
		Template:         &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:worker", Organization: []string{"system:nodes"}}},
		SignerName:       certificatesv1.KubeAPIServerClientKubeletSignerName,
		GetUsages:        certificate.DefaultKubeletClientGetUsages,
		CertificateStore: store,
	})
	must.OK(t, err)
	manager.Start()
	defer manager.Stop()
	cluster.Await(t, patience, "the kubelet has a certificate", func() string {
		if manager.Current() == nil {
			return "not yet"
		}
		return ""
	})
	kubelet := j.client(&rest.Config{Host: j.server, TLSClientConfig: rest.TLSClientConfig{CAData: j.authorities, CertFile: store.CurrentPath(), KeyFile: store.CurrentPath()}})
	if who, err := whoami(t.Context(), kubelet); who != "system:node:worker system:nodes system:authenticated" {
		t.Errorf("the certificate is of %s, %v", who, err)
	}
	// Whether or not nodes may ask by themselves is the authorizer's: this is about what is signed.
	j.node.Kubectl(t, "create", "clusterrolebinding", "nodes-ask", "--clusterrole=system:node-bootstrapper", "--group=system:nodes")
	j.serving(kubelet)

	list := c.Admin(t, "token", "list")
	if !strings.Contains(list, j.id) || !strings.Contains(list, "worker") || !strings.Contains(list, "rack 7") || strings.Contains(list, j.secret) {
		t.Errorf("the tokens are\n%s", list)
	}
	c.Admin(t, "token", "delete", j.id)
	if who, err := whoami(t.Context(), token); !apierrors.IsUnauthorized(err) {
		t.Errorf("a token that was revoked is %s, %v", who, err)
	}
}

// lies are requests for certificates that a holder of a bootstrap token should not get.
func (j *joiner) lies(token kubernetes.Interface) {
	j.t.Helper()
	key, err := keyutil.MakeEllipticPrivateKeyPEM()
	must.OK(j.t, err)
	private, err := keyutil.ParsePrivateKeyPEM(key)
	must.OK(j.t, err)
	for _, x := range []struct {
		name, signer, cn, org string
		ips                   []net.IP
		refused               bool
	}{
		{"masters", certificatesv1.KubeAPIServerClientSignerName, "admin", "system:masters", nil, true},
		{"node-masters", certificatesv1.KubeAPIServerClientKubeletSignerName, "system:node:x", "system:masters", nil, false},
		{"controller", certificatesv1.KubeAPIServerClientSignerName, "system:kube-controller-manager", "", nil, false},
		{"addresses", certificatesv1.KubeAPIServerClientKubeletSignerName, "system:node:x", "system:nodes", []net.IP{net.IPv4(192, 0, 2, 1)}, false},
	} {
		template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: x.cn}, IPAddresses: x.ips}
		if x.org != "" {
			template.Subject.Organization = []string{x.org}
		}
		pemRequest, err := certutil.MakeCSRFromTemplate(private, template)
		must.OK(j.t, err)
		name, _, err := csr.RequestCertificateWithContext(j.t.Context(), token, pemRequest, x.name, x.signer, nil, []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}, private)
		if (err != nil) != x.refused {
			j.t.Errorf("%s: %v", x.name, err)
		}
		if err == nil {
			defer j.pending(name)
		}
	}
}

// pending sees to it that nobody has approved a request. What came later was approved long ago.
func (j *joiner) pending(name string) {
	j.t.Helper()
	r, err := j.node.Typed(j.t).CertificatesV1().CertificateSigningRequests().Get(j.t.Context(), name, metav1.GetOptions{})
	if err != nil || len(r.Status.Conditions) > 0 || len(r.Status.Certificate) > 0 {
		j.t.Errorf("%s: %+v, %v", name, r.Status, err)
	}
}

// serving has a kubelet ask for a serving certificate: it waits until somebody approves it.
func (j *joiner) serving(kubelet kubernetes.Interface) {
	j.t.Helper()
	key, err := keyutil.MakeEllipticPrivateKeyPEM()
	must.OK(j.t, err)
	private, err := keyutil.ParsePrivateKeyPEM(key)
	must.OK(j.t, err)
	pemRequest, err := certutil.MakeCSRFromTemplate(private, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:worker", Organization: []string{"system:nodes"}}, DNSNames: []string{"worker"}, IPAddresses: []net.IP{net.IPv4(192, 0, 2, 9)},
	})
	must.OK(j.t, err)
	name, uid, err := csr.RequestCertificateWithContext(j.t.Context(), kubelet, pemRequest, "", certificatesv1.KubeletServingSignerName, nil, []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}, private)
	must.OK(j.t, err)
	j.pending(name)
	j.node.Kubectl(j.t, "certificate", "approve", name)
	ctx, cancel := context.WithTimeout(j.t.Context(), patience)
	defer cancel()
	signed, err := csr.WaitForCertificate(ctx, kubelet, name, uid)
	must.OK(j.t, err)
	block, _ := pem.Decode(signed)
	cert, err := x509.ParseCertificate(block.Bytes)
	must.OK(j.t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(j.authorities)
	for _, host := range []string{"worker", "192.0.2.9"} {
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: host}); err != nil {
			j.t.Errorf("the serving certificate: %v", err)
		}
	}
}

// TestUsers: quorate kubeconfig --user makes credentials of the control plane's programs, of nodes and of
// people, and none of system:masters.
func TestUsers(t *testing.T) {
	c := cluster.Start(t, 1)
	for _, x := range []struct {
		args []string
		who  string
	}{
		{[]string{"--user", "system:kube-controller-manager"}, "system:kube-controller-manager system:authenticated"},
		{[]string{"--user", "system:kube-scheduler"}, "system:kube-scheduler system:authenticated"},
		{[]string{"--user", "system:node:worker-2"}, "system:node:worker-2 system:nodes system:authenticated"},
		{[]string{"--user", "alice", "--group", "developers", "--group", "on call", "--expires-in", "1h"}, "alice on call developers system:authenticated"},
	} {
		file := filepath.Join(t.TempDir(), "kubeconfig")
		c.Admin(t, append([]string{"kubeconfig", "--to", file}, x.args...)...)
		if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%v: %v, %v", x.args, st, err)
		}
		config, err := clientcmd.BuildConfigFromFlags("", file)
		must.OK(t, err)
		client, err := kubernetes.NewForConfig(config)
		must.OK(t, err)
		if who, err := whoami(t.Context(), client); who != x.who {
			t.Errorf("%v: %s, %v", x.args, who, err)
		}
		block, _ := pem.Decode(config.CertData)
		cert, err := x509.ParseCertificate(block.Bytes)
		must.OK(t, err)
		if valid := time.Until(cert.NotAfter); slices.Contains(x.args, "1h") && (valid > time.Hour || valid < 58*time.Minute) {
			t.Errorf("%v: it is valid for %s", x.args, valid)
		}
	}
	for _, args := range [][]string{
		{"--user", "eve", "--group", "system:masters"}, {"--user", "system:node:"}, {"--user", "system:node:../x"}, {"--user", "system:node:x", "--group", "other"},
		{"--user", "system:anonymous"}, {"--user", "system:serviceaccount:default:default"}, {"--user", "a\nb"}, {"--group", "x"}, {"--user", "x", "--expires-in", "1s"},
	} {
		if out, err := c.TryQuorate(t, append([]string{"kubeconfig", "--kubeconfig", c.Kubeconfig}, args...)...); err == nil || strings.Contains(out, "client-key") {
			t.Errorf("%q gives %s", args, out)
		}
	}
	requests, err := c.Nodes()[0].Typed(t).CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(requests.Items) != 4 {
		t.Errorf("the cluster was asked: %s", fmt.Sprint(len(requests.Items), err))
	}
}
