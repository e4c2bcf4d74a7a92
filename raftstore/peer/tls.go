package peer

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/quorate/quorate/proto"
)

const (
	alpnRaft = "quorate-raft/1"
	alpnGRPC = "h2"
)

// ErrWrongNode is returned when the node at an address is not the one that was
// asked for.
var ErrWrongNode = errors.New("another node answers at this address")

// Session tickets stay off on both sides: a resumed session carries the
// certificates of the first handshake, so it would outlive their rotation.
// Connections are long-lived; there is nothing to win.
//
// Records are always full-sized: the ramp that crypto/tls starts with is made
// for browsers and costs one write per 1.2 KiB.

func (h *Host) serverTLS() *tls.Config {
	return &tls.Config{
		MinVersion:                  tls.VersionTLS13,
		NextProtos:                  []string{alpnRaft, alpnGRPC, alpnReverse},
		ClientAuth:                  tls.RequireAnyClientCert, // VerifyConnection verifies it
		SessionTicketsDisabled:      true,
		DynamicRecordSizingDisabled: true,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return h.certificate()
		},
		VerifyConnection: func(s tls.ConnectionState) error {
			if s.NegotiatedProtocol == "" {
				return errors.New("no application protocol agreed")
			}
			_, err := h.verify(s, x509.ExtKeyUsageClientAuth)
			return err
		},
	}
}

// clientTLS returns the configuration to dial the node want, or any peer if
// want is empty.
func (h *Host) clientTLS(alpn string, want proto.NodeID) *tls.Config {
	return &tls.Config{
		MinVersion:                  tls.VersionTLS13,
		NextProtos:                  []string{alpn},
		SessionTicketsDisabled:      true,
		DynamicRecordSizingDisabled: true,
		// Peers are named by node id, not by host; VerifyConnection does all
		// that is skipped here.
		InsecureSkipVerify: true,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return h.certificate()
		},
		VerifyConnection: func(s tls.ConnectionState) error {
			if s.NegotiatedProtocol != alpn {
				return fmt.Errorf("the server does not speak %s", alpn)
			}
			id, err := h.verify(s, x509.ExtKeyUsageServerAuth)
			if err != nil {
				return err
			}
			if want != "" && id != want {
				return fmt.Errorf("%w: want %s, got %s", ErrWrongNode, want, id)
			}
			return nil
		},
	}
}

func (h *Host) certificate() (*tls.Certificate, error) {
	if c := h.cfg.Credentials.Certificate(); c != nil {
		return c, nil
	}
	return nil, errors.New("this node has no certificate")
}

// verify checks the other side's certificate against the current CAs and
// returns the node that it names.
func (h *Host) verify(s tls.ConnectionState, usage x509.ExtKeyUsage) (proto.NodeID, error) {
	if len(s.PeerCertificates) == 0 {
		return "", errors.New("no certificate")
	}
	opts := x509.VerifyOptions{
		Roots:         h.cfg.Credentials.Roots(),
		Intermediates: x509.NewCertPool(),
		KeyUsages:     []x509.ExtKeyUsage{usage},
	}
	if opts.Roots == nil { // nil would mean the system's
		opts.Roots = x509.NewCertPool()
	}
	for _, c := range s.PeerCertificates[1:] {
		opts.Intermediates.AddCert(c)
	}
	leaf := s.PeerCertificates[0]
	if _, err := leaf.Verify(opts); err != nil {
		return "", err
	}
	return nodeIDOf(leaf)
}
