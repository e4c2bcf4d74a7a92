package controllers

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/pkg/apis/certificates"
	"k8s.io/kubernetes/pkg/controller/certificates/authority"
)

// Bounds of what is signed, upstream's.
const (
	signedBackdate = 5 * time.Minute  // clocks of others may be behind
	signedShort    = 8 * time.Hour    // what is valid for less is not cut by that at its end
	signedLeast    = 10 * time.Minute // given to those who ask for less
)

// Signing is what certificates are signed with.
type Signing struct {
	// Authority signs. Its key may be in another place: it is only asked to sign. Nil: nothing is signed.
	Authority *authority.CertificateAuthority
	// Duration is for how long a certificate is valid, at most.
	Duration time.Duration
}

// signer signs CertificateSigningRequests that are approved, by upstream's rules for upstream's signers.
type signer struct {
	base
	Signing
}

func (s *signer) run(ctx context.Context) error {
	q := &requests{
		base: s.base, subresource: "status",
		decide: func(_ context.Context, csr *certificatesv1.CertificateSigningRequest) (changed, look bool) {
			return s.sign(csr), false
		},
		decided: func(csr *certificatesv1.CertificateSigningRequest) {
			if len(csr.Status.Certificate) > 0 {
				s.reports.log.Info("a certificate is signed", "name", csr.Name, "signer", csr.Spec.SignerName, "user", csr.Spec.Username)
				return
			}
			why := csr.Status.Conditions[len(csr.Status.Conditions)-1].Message
			s.reports.log.Warn("a certificate signing request is approved and was not signed", "name", csr.Name, "signer", csr.Spec.SignerName, "user", csr.Spec.Username, "err", why)
		},
	}
	return q.follow(ctx, 0)
}

// sign signs a request if it is to be, or says in its status why it cannot be. It reports whether it
// has done either.
func (s *signer) sign(csr *certificatesv1.CertificateSigningRequest) bool {
	if len(csr.Status.Certificate) > 0 || !hasCondition(csr, certificatesv1.CertificateApproved) ||
		hasCondition(csr, certificatesv1.CertificateDenied) || hasCondition(csr, certificatesv1.CertificateFailed) {
		return false
	}
	rule := signerRules[csr.Spec.SignerName]
	if rule == nil {
		return false // somebody else's
	}
	cert, err := s.certificate(csr, rule)
	if err != nil {
		// It is the request that is wrong, and a request does not change.
		condition(csr, certificatesv1.CertificateFailed, "SignerValidationFailure", err.Error(), s.objects.Now())
		return true
	}
	csr.Status.Certificate = cert
	return true
}

// certificate signs a request whose signer has a rule.
func (s *signer) certificate(csr *certificatesv1.CertificateSigningRequest, rule signerRule) ([]byte, error) {
	request, err := certificates.ParseCSR(csr.Spec.Request)
	if err != nil {
		return nil, fmt.Errorf("parse the request: %w", err)
	}
	if err := rule(request, csr.Spec.Usages); err != nil {
		return nil, err
	}
	der, err := s.Authority.Sign(request.Raw, authority.PermissiveSigningPolicy{
		TTL: validFor(csr.Spec.ExpirationSeconds, s.Duration), Usages: csr.Spec.Usages,
		Backdate: signedBackdate, Short: signedShort, Now: s.objects.Now,
	})
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// validFor is for how long a certificate is valid that was asked for with an expiration.
func validFor(seconds *int32, most time.Duration) time.Duration {
	if seconds == nil {
		return most
	}
	return min(max(time.Duration(*seconds)*time.Second, signedLeast), most)
}

// signerRule is what a signer asks of a request. The error says why it is not signed.
type signerRule func(request *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error

// signerRules are the signers whose certificates the cluster's authority signs.
var signerRules = map[string]signerRule{
	certificatesv1.KubeAPIServerClientSignerName: func(_ *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
		return clientUsages(usages)
	},
	certificatesv1.KubeAPIServerClientKubeletSignerName: func(request *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
		return certificates.ValidateKubeletClientCSR(request, usageSet(usages))
	},
	certificatesv1.KubeletServingSignerName: func(request *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
		return certificates.ValidateKubeletServingCSR(request, usageSet(usages))
	},
	certificatesv1beta1.LegacyUnknownSignerName: func(*x509.CertificateRequest, []certificatesv1.KeyUsage) error { return nil },
}

// usageSet are usages as upstream's checks take them.
//
//lint:ignore SA1019 upstream's checks have this type
func usageSet(usages []certificatesv1.KeyUsage) sets.String {
	out := sets.String{} //lint:ignore SA1019 as above
	for _, u := range usages {
		out.Insert(string(u))
	}
	return out
}

// clientUsages refuses usages that a client's certificate does not have.
func clientUsages(usages []certificatesv1.KeyUsage) error {
	client := false
	for _, u := range usages {
		switch u {
		case certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment:
		case certificatesv1.UsageClientAuth:
			client = true
		default:
			return fmt.Errorf("invalid usage for client certificate: %s", u)
		}
	}
	if !client {
		return fmt.Errorf("missing required usage for client certificate: %s", certificatesv1.UsageClientAuth)
	}
	return nil
}
