package peer

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/quorate/quorate/proto"
)

// Credentials are a node's own certificate and the CAs that it accepts. Both
// are asked for at each handshake and may change at any time; the results must
// not be modified. Methods are called concurrently and must not block.
type Credentials interface {
	// Certificate returns the current leaf with its chain and key.
	Certificate() *tls.Certificate
	// Roots returns the CAs of peers: more than one while a CA rotates.
	Roots() *x509.CertPool
}

// Config describes a Host. NodeID, Credentials and Listener are required.
type Config struct {
	NodeID      proto.NodeID
	Credentials Credentials
	// Listener accepts plain TCP connections; the Host closes it.
	Listener net.Listener
	// Advertise is the address that other nodes dial, host:port. Default: the
	// address of the Listener.
	Advertise string
	// Cluster returns the id of the cluster that this node belongs to, or ""
	// before there is one. It is called for each call and must not block.
	// Default: always "".
	Cluster func() proto.ClusterID
	// Removed says whether a node was removed from the cluster, as far as this node's
	// state knows. Such a node is refused everything but Hello and Join. It is called for
	// each call and each connection, concurrently, and must not block. What it says may
	// only change from false to true; then call Expel. Default: always false.
	Removed func(proto.NodeID) bool
	// Logger gets refused connections and the like, at most one line per second
	// and reason. Default: slog.Default().
	Logger *slog.Logger
	// Traffic, if set, returns who counts the traffic with a node. It is called once
	// per connection and for each failed message.
	Traffic func(proto.NodeID) Traffic
	// Fatal is called at most once, when the port can accept nothing any more
	// although Close was not called. Default: the error is logged.
	Fatal func(error)

	// MaxConns bounds the authenticated inbound connections. Default 1024.
	MaxConns int
	// MaxConnsPerIP bounds those of one remote address. Default MaxConns/4.
	MaxConnsPerIP int
	// MaxPendingHandshakes bounds the connections that are not authenticated
	// yet; one more pushes out the oldest. Default 256, half of it per address.
	MaxPendingHandshakes int
	// HandshakeTimeout ends a handshake, inbound or outbound, and a connection
	// that nobody takes after it. Default 5 s.
	HandshakeTimeout time.Duration
}

func (c Config) withDefaults() (Config, error) {
	if !validNodeID(string(c.NodeID)) {
		return c, fmt.Errorf("peer: node id %q is not valid", c.NodeID)
	}
	if c.Credentials == nil || c.Listener == nil {
		return c, errors.New("peer: credentials and a listener are required")
	}
	if c.Advertise == "" {
		c.Advertise = c.Listener.Addr().String()
	}
	if c.Cluster == nil {
		c.Cluster = func() proto.ClusterID { return "" }
	}
	if c.Removed == nil {
		c.Removed = func(proto.NodeID) bool { return false }
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Fatal == nil {
		logger := c.Logger
		c.Fatal = func(err error) { logger.Error("peer port failed", "err", err) }
	}
	if c.MaxConns <= 0 {
		c.MaxConns = 1024
	}
	if c.MaxConnsPerIP <= 0 {
		c.MaxConnsPerIP = max(c.MaxConns/4, 1)
	}
	if c.MaxPendingHandshakes <= 0 {
		c.MaxPendingHandshakes = 256
	}
	if c.HandshakeTimeout <= 0 {
		c.HandshakeTimeout = 5 * time.Second
	}
	return c, nil
}
