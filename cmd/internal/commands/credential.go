package commands

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/membership/pki"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	requestsPath = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	nodeUser     = "system:node:"
	nodesGroup   = "system:nodes"
	// signedWithin is how long a certificate is waited for.
	signedWithin = 30 * time.Second
	// withdrawnWithin bounds the time that a request which came to nothing takes to be deleted.
	withdrawnWithin = 5 * time.Second
	// minExpiresIn is the least that a CertificateSigningRequest may ask for.
	minExpiresIn = 10 * time.Minute
	// maxUserName bounds a user's name and a group's.
	maxUserName = 253
)

// credential is whom a kubeconfig is to be for.
type credential struct {
	user    string
	groups  []string
	expires *time.Duration // nil: as long as the cluster signs for
}

// checkName refuses what is no name of a user or a group, or looks like another one.
func checkName(flag, name string) error {
	unseen := func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == utf8.RuneError }
	if name == "" || len(name) > maxUserName || strings.TrimSpace(name) != name || strings.ContainsFunc(name, unseen) {
		return fmt.Errorf("--%s %q: a name has 1 to %d bytes, no space at its beginning or end, and no control character", flag, name, maxUserName)
	}
	return nil
}

// complete adds the groups that follow from the user, as upstream's authorizers want them, and refuses
// whom nobody should be by a certificate.
func (c *credential) complete() error {
	if err := checkName("user", c.user); err != nil {
		return err
	}
	for _, group := range c.groups {
		if err := checkName("group", group); err != nil {
			return err
		}
	}
	switch {
	case slices.Contains(c.groups, "system:masters"):
		return errors.New("--group system:masters: no certificate request may ask for it; DATA-DIR/admin.kubeconfig of a node has it, or bind a group of your own to cluster-admin")
	case c.user == "system:anonymous" || slices.Contains(c.groups, "system:unauthenticated"):
		return errors.New("the anonymous user has no credential")
	case strings.HasPrefix(c.user, "system:serviceaccount:"):
		return fmt.Errorf("%s is a service account, which has tokens: kubectl create token", c.user)
	case c.expires != nil && *c.expires < minExpiresIn:
		return fmt.Errorf("--expires-in %s: must be 10m or more", *c.expires)
	}
	node, ok := strings.CutPrefix(c.user, nodeUser)
	if !ok {
		return nil
	}
	if errs := validation.IsDNS1123Subdomain(node); len(errs) > 0 {
		return fmt.Errorf("--user %s: %q is no name of a node: %s", c.user, node, errs[0])
	}
	if len(c.groups) > 0 && !slices.Equal(c.groups, []string{nodesGroup}) {
		return fmt.Errorf("--user %s: a node is in the group %s and in no other", c.user, nodesGroup)
	}
	c.groups = []string{nodesGroup}
	return nil
}

// parseCertificate reads the first certificate of a text in PEM.
func parseCertificate(text []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("it is not in PEM")
	}
	return x509.ParseCertificate(block.Bytes)
}

// isOf says whether a certificate is the same user's, in the same groups.
func (c *credential) isOf(cert *x509.Certificate) bool {
	return cert.Subject.CommonName == c.user && slices.Equal(slices.Sorted(slices.Values(cert.Subject.Organization)), slices.Sorted(slices.Values(c.groups)))
}

// issue has the cluster sign a certificate for a key that is made here and goes nowhere else. It is a
// CertificateSigningRequest as anybody could make, approved by the administrator who calls this: the
// roles and the audit log of the cluster are about it as about any other.
func (c *credential) issue(ctx context.Context, client *membership.AdminClient) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	csr, err := c.request(key)
	if err != nil {
		return nil, nil, err
	}
	if err := client.Kubernetes(ctx, http.MethodPost, requestsPath, csr, csr); err != nil {
		return nil, nil, fmt.Errorf("ask for a certificate: %w", err)
	}
	path := requestsPath + "/" + csr.Name
	csr.ResourceVersion = "" // the leader may have approved it by then: that says the same
	csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "QuorateKubeconfig", Message: "Approved by the user who made the request with quorate kubeconfig.",
	}}
	name := csr.Name
	if err := client.Kubernetes(ctx, http.MethodPut, path+"/approval", csr, csr); err != nil {
		return nil, nil, fmt.Errorf("approve the request %s%s: %w", name, withdraw(ctx, client, path), err)
	}
	if err := awaitSigned(ctx, client, path, csr); err != nil {
		return nil, nil, err
	}
	cert, err := parseCertificate(csr.Status.Certificate)
	if err != nil {
		return nil, nil, fmt.Errorf("the certificate of %s: %w", csr.Name, err)
	}
	if public, ok := cert.PublicKey.(*ecdsa.PublicKey); !ok || !public.Equal(&key.PublicKey) || cert.Subject.CommonName != c.user {
		return nil, nil, fmt.Errorf("the certificate of %s is for another key or user", csr.Name)
	}
	return csr.Status.Certificate, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), nil
}

// withdraw deletes a request that nobody is to approve any more: its key is given up. It says what has become of it.
func withdraw(ctx context.Context, client *membership.AdminClient, path string) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawnWithin)
	defer cancel()
	if err := client.Kubernetes(ctx, http.MethodDelete, path, nil, &metav1.Status{}); err != nil {
		return ", which is still there (kubectl delete csr)"
	}
	return ", which is deleted again"
}

// request is what the cluster is asked.
func (c *credential) request(key *ecdsa.PrivateKey) (*certificatesv1.CertificateSigningRequest, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: c.user, Organization: c.groups}}, key)
	if err != nil {
		return nil, err
	}
	suffix := make([]byte, 8)
	rand.Read(suffix)
	csr := &certificatesv1.CertificateSigningRequest{
		TypeMeta:   metav1.TypeMeta{APIVersion: certificatesv1.SchemeGroupVersion.String(), Kind: "CertificateSigningRequest"},
		ObjectMeta: metav1.ObjectMeta{Name: "quorate-kubeconfig-" + hex.EncodeToString(suffix)},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: certificatesv1.KubeAPIServerClientSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}
	if strings.HasPrefix(c.user, nodeUser) {
		csr.Spec.SignerName = certificatesv1.KubeAPIServerClientKubeletSignerName
	}
	if c.expires != nil {
		seconds := int32(min(*c.expires/time.Second, math.MaxInt32))
		csr.Spec.ExpirationSeconds = &seconds
	}
	return csr, nil
}

// awaitSigned waits until a request has its certificate.
func awaitSigned(ctx context.Context, client *membership.AdminClient, path string, csr *certificatesv1.CertificateSigningRequest) error {
	end := time.NewTimer(signedWithin)
	defer end.Stop()
	look := time.NewTicker(200 * time.Millisecond)
	defer look.Stop()
	for {
		*csr = certificatesv1.CertificateSigningRequest{}
		if err := client.Kubernetes(ctx, http.MethodGet, path, nil, csr); err != nil {
			return fmt.Errorf("wait for the certificate: %w", err)
		}
		for _, x := range csr.Status.Conditions {
			if x.Type == certificatesv1.CertificateFailed || x.Type == certificatesv1.CertificateDenied {
				return fmt.Errorf("the request %s is %s: %s", csr.Name, strings.ToLower(string(x.Type)), x.Message)
			}
		}
		if len(csr.Status.Certificate) > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end.C:
			return fmt.Errorf("nobody has signed the request %s in %s: a leader whose --controllers switch certificatesigningrequest-signing-controller off signs none", csr.Name, signedWithin)
		case <-look.C:
		}
	}
}

// validity says until when a credential is valid, and that it is not as long as asked for.
func (c *credential) validity(cert *x509.Certificate, asked time.Time) string {
	text := "valid until " + cert.NotAfter.Local().Format(time.DateTime)
	// The signer dates certificates back by five minutes, and the node's clock may be a little behind.
	if c.expires != nil && cert.NotAfter.Before(asked.Add(*c.expires-6*time.Minute)) {
		text += fmt.Sprintf(", not for %s: the cluster signs for no longer (--cluster-signing-duration of the nodes)", *c.expires)
	}
	return text
}

// into has a kubeconfig be the user's instead of the administrator's.
func (c *credential) into(ctx context.Context, client *membership.AdminClient, k *pki.Kubeconfig) (err error) {
	k.User, k.As = c.user, pki.Impersonation{}
	k.Cert, k.Key, err = c.issue(ctx, client)
	return err
}
