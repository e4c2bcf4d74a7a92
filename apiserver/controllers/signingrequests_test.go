package controllers

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/internal/must"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/controller/certificates/authority"
)

// newAuthority is an authority that signs for a test.
func newAuthority(t *testing.T) *authority.CertificateAuthority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.OK(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must.OK(t, err)
	cert, err := x509.ParseCertificate(der)
	must.OK(t, err)
	return &authority.CertificateAuthority{Certificate: cert, PrivateKey: key}
}

// kubelets may have their requests approved: tokens for any node, nodes for themselves.
func kubelets(_ context.Context, a auth.Attributes) (auth.Decision, string, error) {
	if a.Verb != "create" || a.APIGroup != "certificates.k8s.io" || a.Resource != "certificatesigningrequests" || a.APIVersion != "*" {
		return auth.NoOpinion, "", nil
	}
	if a.Subresource == "nodeclient" && a.User.InGroup("system:bootstrappers") || a.Subresource == "selfnodeclient" && a.User.InGroup("system:nodes") {
		return auth.Allow, "", nil
	}
	return auth.NoOpinion, "", nil
}

// asks is a request for a certificate, and who makes it.
type asks struct {
	signer, user, group string
	cn, org             string
	dns                 []string
	ips                 []net.IP
	uris                []*url.URL
	usages              []certificatesv1.KeyUsage
	seconds             *int32
}

// ask makes a request in the name of a user.
func (e *env) ask(name string, a asks) {
	e.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.OK(e.t, err)
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: a.cn}, DNSNames: a.dns, IPAddresses: a.ips, URIs: a.uris}
	if a.org != "" {
		template.Subject.Organization = strings.Split(a.org, ",")
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	must.OK(e.t, err)
	csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certificatesv1.CertificateSigningRequestSpec{
		Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
		SignerName: a.signer, Usages: a.usages, ExpirationSeconds: a.seconds,
	}}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(csr)
	must.OK(e.t, err)
	res := e.objects.Kinds().Lookup(requestsGVR)
	tree["kind"], tree["apiVersion"] = res.Kind, res.GroupVersion().String()
	model, err := objects.ModelOf(res)
	if err == nil {
		_, err = model.Fit(tree)
	}
	must.OK(e.t, err)
	o := e.objects.System(e.t.Context(), res, "", name, "create")
	o.User = &auth.User{Name: a.user, Groups: []string{a.group}}
	if _, err := o.Create(tree); err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) request(name string) *certificatesv1.CertificateSigningRequest {
	e.t.Helper()
	csr := new(certificatesv1.CertificateSigningRequest)
	must.OK(e.t, e.client.Get(e.t.Context(), requestsGVR, "", name, csr))
	return csr
}

// setCondition writes a condition as an administrator does.
func (e *env) setCondition(name string, kind certificatesv1.RequestConditionType) {
	e.t.Helper()
	q := &requests{base: e.base, res: e.objects.Kinds().Lookup(requestsGVR), subresource: "approval",
		decide: func(_ context.Context, csr *certificatesv1.CertificateSigningRequest) (bool, bool) {
			condition(csr, kind, "Test", "", time.Now())
			return true, false
		},
		decided: func(*certificatesv1.CertificateSigningRequest) {},
	}
	must.OK(e.t, q.write(e.t.Context(), name))
}

// stateOf says what has become of a request: its conditions, and whether it is signed.
func stateOf(csr *certificatesv1.CertificateSigningRequest) string {
	var out []string
	for _, c := range csr.Status.Conditions {
		out = append(out, string(c.Type))
	}
	if len(csr.Status.Certificate) > 0 {
		out = append(out, "signed")
	}
	return strings.Join(out, " ")
}

var (
	clientUse  = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
	servingUse = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}
)

// TestRequests: which requests are approved by themselves, and which are signed once they are approved.
// Kubelets that lie get nothing.
func TestRequests(t *testing.T) {
	const (
		kubelet = certificatesv1.KubeAPIServerClientKubeletSignerName
		serving = certificatesv1.KubeletServingSignerName
		client  = certificatesv1.KubeAPIServerClientSignerName
	)
	ip := []net.IP{net.IPv4(192, 0, 2, 7)}
	token := asks{signer: kubelet, user: "system:bootstrap:abcdef", group: "system:bootstrappers", cn: "system:node:a", org: "system:nodes", usages: clientUse}
	node := asks{signer: kubelet, user: "system:node:a", group: "system:nodes", cn: "system:node:a", org: "system:nodes", usages: clientUse}
	server := asks{signer: serving, user: "system:node:a", group: "system:nodes", cn: "system:node:a", org: "system:nodes", usages: servingUse, ips: ip}
	person := asks{signer: client, user: "alice", group: "people", cn: "alice", org: "people", usages: clientUse}
	with := func(a asks, change func(*asks)) asks { change(&a); return a }
	for _, x := range []struct {
		name            string
		asks            asks
		alone, approved string // what comes of it by itself, and once somebody has approved it
	}{
		{"token", token, "Approved signed", ""},
		{"node", node, "Approved signed", ""},
		{"rsa", with(token, func(a *asks) { a.usages = append(slices.Clone(clientUse), certificatesv1.UsageKeyEncipherment) }), "Approved signed", ""},
		{"another node", with(node, func(a *asks) { a.cn = "system:node:b" }), "", "Approved signed"},
		{"nobody", with(token, func(a *asks) { a.group = "people" }), "", "Approved signed"},
		{"masters", with(token, func(a *asks) { a.org = "system:masters" }), "", "Approved Failed"},
		{"masters too", with(token, func(a *asks) { a.org = "system:nodes,system:masters" }), "", "Approved Failed"},
		{"no node", with(token, func(a *asks) { a.cn = "system:kube-controller-manager" }), "", "Approved Failed"},
		{"names", with(token, func(a *asks) { a.dns = []string{"kubernetes.default.svc"} }), "", "Approved Failed"},
		{"addresses", with(token, func(a *asks) { a.ips = ip }), "", "Approved Failed"},
		{"uri", with(token, func(a *asks) { a.uris = []*url.URL{{Scheme: "quorate", Host: "node", Path: "/x"}} }), "", "Approved Failed"},
		{"server's use", with(token, func(a *asks) { a.usages = append(slices.Clone(clientUse), certificatesv1.UsageServerAuth) }), "", "Approved Failed"},
		{"authority's use", with(token, func(a *asks) { a.usages = append(slices.Clone(clientUse), certificatesv1.UsageCertSign) }), "", "Approved Failed"},
		{"serving", server, "", "Approved signed"},
		{"serving nobody", with(server, func(a *asks) { a.ips = nil }), "", "Approved Failed"},
		{"serving for a client", with(server, func(a *asks) { a.usages = clientUse }), "", "Approved Failed"},
		{"person", person, "", "Approved signed"},
		{"person's server", with(person, func(a *asks) { a.usages = servingUse }), "", "Approved Failed"},
		{"another signer", with(person, func(a *asks) { a.signer = "example.org/signer" }), "", "Approved"},
	} {
		t.Run(x.name, func(t *testing.T) {
			e := newEnv(t, Config{
				Controllers: []Name{RequestSigningController, RequestApprovingController},
				Authorizer:  auth.AuthorizerFunc(kubelets), Signing: Signing{Authority: newAuthority(t), Duration: 24 * time.Hour},
			})
			name := strings.NewReplacer(" ", "-", "'", "").Replace(x.name)
			e.ask(name, x.asks)
			e.ask("last", token)
			e.run()
			settled := func(name, want string) {
				e.await("requests", func() string {
					if got := stateOf(e.request(name)); got != want {
						return name + ": " + got + ", want " + want
					}
					return ""
				})
			}
			settled("last", "Approved signed") // it comes behind in the order of names
			settled(name, x.alone)
			if x.approved != "" {
				e.setCondition(name, certificatesv1.CertificateApproved)
				settled(name, x.approved)
			}
			if csr := e.request(name); len(csr.Status.Certificate) > 0 {
				e.checkSigned(csr, x.asks)
			}
		})
	}
}

// checkSigned holds a certificate against its request.
func (e *env) checkSigned(csr *certificatesv1.CertificateSigningRequest, a asks) {
	e.t.Helper()
	block, _ := pem.Decode(csr.Status.Certificate)
	cert, err := x509.ParseCertificate(block.Bytes)
	must.OK(e.t, err)
	authority := e.manager.cfg.Signing.Authority.Certificate
	if err := cert.CheckSignatureFrom(authority); err != nil {
		e.t.Error(err)
	}
	if cert.IsCA || cert.KeyUsage&x509.KeyUsageCertSign != 0 || cert.Subject.CommonName != a.cn || strings.Join(cert.Subject.Organization, ",") != a.org {
		e.t.Errorf("it is for %s, CA %t", cert.Subject, cert.IsCA)
	}
	if valid := cert.NotAfter.Sub(cert.NotBefore); valid != 24*time.Hour {
		e.t.Errorf("it is valid for %s", valid)
	}
}

// TestDenied: what is denied is not signed, even if somebody approves it as well; what is signed stays.
func TestDenied(t *testing.T) {
	e := newEnv(t, Config{Controllers: []Name{RequestSigningController}, Signing: Signing{Authority: newAuthority(t), Duration: time.Hour}})
	person := asks{signer: certificatesv1.KubeAPIServerClientSignerName, user: "alice", group: "people", cn: "alice", usages: clientUse}
	e.ask("denied", person)
	e.ask("yes", person)
	e.setCondition("denied", certificatesv1.CertificateDenied)
	e.run()
	e.setCondition("yes", certificatesv1.CertificateApproved)
	e.await("requests", func() string {
		if got := stateOf(e.request("denied")) + ", " + stateOf(e.request("yes")); got != "Denied, Approved signed" {
			return got
		}
		return ""
	})
}

// TestValidFor: nobody gets more than there is, nor too little to be of use.
func TestValidFor(t *testing.T) {
	seconds := func(n int32) *int32 { return &n }
	for _, x := range []struct {
		asked *int32
		want  time.Duration
	}{
		{nil, time.Hour}, {seconds(3600), time.Hour}, {seconds(1 << 30), time.Hour}, {seconds(1200), 20 * time.Minute}, {seconds(1), 10 * time.Minute}, {seconds(-1 << 31), 10 * time.Minute},
	} {
		if got := validFor(x.asked, time.Hour); got != x.want {
			t.Errorf("%v: %s, want %s", x.asked, got, x.want)
		}
	}
}

// TestOutdated: upstream's times.
func TestOutdated(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	ca := newAuthority(t).Certificate
	current := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw})
	for _, x := range []struct {
		name      string
		created   time.Duration
		condition certificatesv1.RequestConditionType
		at        time.Duration
		cert      []byte
		now       time.Time
		want      bool
	}{
		{name: "pending", created: 23 * time.Hour},
		{name: "long pending", created: 25 * time.Hour, want: true},
		{name: "denied", created: 30 * time.Hour, condition: certificatesv1.CertificateDenied, at: 50 * time.Minute},
		{name: "long denied", condition: certificatesv1.CertificateDenied, at: 70 * time.Minute, want: true},
		{name: "long failed", condition: certificatesv1.CertificateFailed, at: 70 * time.Minute, want: true},
		{name: "approved", condition: certificatesv1.CertificateApproved, at: 23 * time.Hour},
		{name: "long approved", condition: certificatesv1.CertificateApproved, at: 25 * time.Hour, want: true},
		{name: "signed", condition: certificatesv1.CertificateApproved, at: 50 * time.Minute, cert: current},
		{name: "long signed", condition: certificatesv1.CertificateApproved, at: 70 * time.Minute, cert: current, want: true},
		{name: "ended", condition: certificatesv1.CertificateApproved, cert: current, now: now.AddDate(11, 0, 0), want: true},
	} {
		csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: ago(x.created)}}
		csr.Status.Certificate = x.cert
		if x.condition != "" {
			csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: x.condition, Status: corev1.ConditionTrue, LastUpdateTime: ago(x.at)}}
		}
		at := now
		if !x.now.IsZero() {
			at = x.now
			csr.Status.Conditions[0].LastUpdateTime = metav1.NewTime(at)
		}
		if got := outdated(csr, at); got != x.want {
			t.Errorf("%s: %t", x.name, got)
		}
	}
}
