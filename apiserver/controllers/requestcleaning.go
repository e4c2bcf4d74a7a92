package controllers

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// For how long requests stay, and how often they are looked at: upstream's.
const (
	decidedRequests = time.Hour // signed, denied or failed
	pendingRequests = 24 * time.Hour
	cleaningPeriod  = time.Hour
)

// requestCleaner deletes CertificateSigningRequests that nobody waits for any more.
type requestCleaner struct{ base }

func (c requestCleaner) run(ctx context.Context) error {
	res := c.objects.Kinds().Lookup(requestsGVR)
	if res == nil {
		return errors.New("the registry has no certificate signing requests")
	}
	for {
		versions, err := c.objects.Range(res.Table(), "")
		if err != nil {
			return fmt.Errorf("list certificate signing requests: %w", err)
		}
		for _, v := range versions {
			csr, err := requestOf(v)
			if err != nil || !outdated(csr, c.objects.Now()) {
				continue
			}
			err = c.api.Delete(ctx, requestsGVR, "", csr.Name, csr.UID)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				c.reports.failed("cannot delete an old certificate signing request, retrying", "name", csr.Name, "err", err)
			}
		}
		if !pause(ctx, cleaningPeriod) {
			return context.Cause(ctx)
		}
	}
}

// outdated reports whether a request may go.
func outdated(csr *certificatesv1.CertificateSigningRequest, now time.Time) bool {
	older := func(at time.Time, age time.Duration) bool { return !at.IsZero() && now.Sub(at) > age }
	if len(csr.Status.Conditions) == 0 {
		return older(csr.CreationTimestamp.Time, pendingRequests)
	}
	signed := len(csr.Status.Certificate) > 0
	for i := range csr.Status.Conditions {
		at := csr.Status.Conditions[i].LastUpdateTime.Time
		switch csr.Status.Conditions[i].Type {
		case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			if older(at, decidedRequests) {
				return true
			}
		case certificatesv1.CertificateApproved:
			if signed && (older(at, decidedRequests) || ended(csr.Status.Certificate, now)) || !signed && older(at, pendingRequests) {
				return true
			}
		}
	}
	return false
}

// ended reports whether a certificate is no longer valid.
func ended(certPEM []byte, now time.Time) bool {
	block, _ := pem.Decode(certPEM)
	if block == nil {
		return false
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	return err == nil && now.After(cert.NotAfter)
}
