package auth

import (
	"crypto/x509"
	"errors"
	"fmt"
)

const (
	// maxCertificateBytes bounds what a client sends as its certificates.
	maxCertificateBytes = 16 << 10
	// maxCertificateParts bounds the names, attributes, extensions and the like in them.
	maxCertificateParts = 200
)

// ErrCertificateSize is returned for certificates of clients that no authority would sign.
var ErrCertificateSize = errors.New("client certificate: too large")

// BoundCertificates is for tls.Config.VerifyPeerCertificate where client certificates are
// verified behind the handshake: it refuses, with ErrCertificateSize, what takes a lot of
// memory. TLS allows a certificate 256 KiB; two bytes of it can be a name of a hundred in
// memory, and a connection holds its certificates from their arrival to its end, also within
// a handshake that does not go on.
func BoundCertificates(raw [][]byte, _ [][]*x509.Certificate) error {
	size, parts := 0, 0
	for _, der := range raw {
		size += len(der)
	}
	if size > maxCertificateBytes {
		return fmt.Errorf("%w: %d bytes of at most %d", ErrCertificateSize, size, maxCertificateBytes)
	}
	for _, der := range raw {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return fmt.Errorf("client certificate: %w", err)
		}
		parts += partsOf(c)
	}
	if parts > maxCertificateParts {
		return fmt.Errorf("%w: %d names and extensions of at most %d", ErrCertificateSize, parts, maxCertificateParts)
	}
	return nil
}

// partsOf counts what a certificate has lists of.
func partsOf(c *x509.Certificate) int {
	return len(c.Subject.Names) + len(c.Issuer.Names) + len(c.Extensions) +
		len(c.DNSNames) + len(c.EmailAddresses) + len(c.IPAddresses) + len(c.URIs) +
		len(c.ExtKeyUsage) + len(c.UnknownExtKeyUsage) + len(c.OCSPServer) + len(c.IssuingCertificateURL) +
		len(c.CRLDistributionPoints) + len(c.PolicyIdentifiers) + len(c.Policies) + len(c.PolicyMappings) +
		len(c.PermittedDNSDomains) + len(c.ExcludedDNSDomains) + len(c.PermittedIPRanges) + len(c.ExcludedIPRanges) +
		len(c.PermittedEmailAddresses) + len(c.ExcludedEmailAddresses) + len(c.PermittedURIDomains) + len(c.ExcludedURIDomains)
}
