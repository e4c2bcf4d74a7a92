package peer

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/quorate/quorate/proto"
)

const (
	uriScheme = "quorate"
	uriRole   = "peer"
	// maxNodeIDBytes bounds a node id wherever it crosses the wire.
	maxNodeIDBytes = 128
)

// ErrNotPeer is returned for a certificate that does not name a peer: signed
// by the right CA perhaps, but made for something else.
var ErrNotPeer = errors.New("certificate does not have the role of a peer")

// PeerURI returns the URI name of a peer's certificate, which states both the
// role and the node: quorate://peer/<node-id>.
func PeerURI(id proto.NodeID) *url.URL {
	return &url.URL{Scheme: uriScheme, Host: uriRole, Path: "/" + string(id)}
}

// nodeIDOf returns the node that a certificate was made for. It fails with
// ErrNotPeer unless the certificate has exactly one URI name of the scheme
// quorate, and that one is a PeerURI.
//
// It reads the certificate only; whether to trust it is for the caller to check.
func nodeIDOf(cert *x509.Certificate) (proto.NodeID, error) {
	var id proto.NodeID
	for _, u := range cert.URIs {
		if u.Scheme != uriScheme {
			continue
		}
		if id != "" {
			return "", fmt.Errorf("%w: more than one quorate name", ErrNotPeer)
		}
		name := strings.TrimPrefix(u.Path, "/")
		if u.Host != uriRole || !validNodeID(name) || *u != *PeerURI(proto.NodeID(name)) {
			return "", fmt.Errorf("%w: %.200q", ErrNotPeer, u.String())
		}
		id = proto.NodeID(name)
	}
	if id == "" {
		return "", fmt.Errorf("%w: no name quorate://peer/<node-id>", ErrNotPeer)
	}
	return id, nil
}

// validNodeID accepts what needs no escaping in a URI, in metadata or in a log.
func validNodeID(s string) bool {
	if s == "" || len(s) > maxNodeIDBytes {
		return false
	}
	for _, c := range []byte(s) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return true
}
