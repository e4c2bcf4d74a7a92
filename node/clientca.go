package node

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/internal/settingfile"
)

const (
	// clientCALook is how often the file is looked at. Who changes it waits for that long.
	clientCALook = 5 * time.Second
	// maxClientCAs bounds the file, in bytes: some 500 certificates.
	maxClientCAs = 1 << 20
)

// clientCAs are the authorities whose certificates make users: the cluster's own, and those of a
// file (Config.ClientCA), as it is now. A file that cannot be used any more is as it was: else
// a slip of the hand would lock everybody out. Safe for concurrent use.
type clientCAs struct {
	own  *x509.CertPool
	file string // "": none
	log  *slog.Logger
	tls  *tls.Config // whose ClientCAs change; set before the first handshake
	now  atomic.Pointer[clientCAsAt]

	mu   sync.Mutex // held while the file is read
	text []byte     // of the file; guarded by mu
}

// clientCAsAt are all of them at a time.
type clientCAsAt struct {
	pool *x509.CertPool
	// hello is the server's configuration that names them to clients, which choose their certificate by
	// them; made at the first handshake.
	hello atomic.Pointer[tls.Config]
}

// newClientCAs reads the file, if there is one.
func newClientCAs(own *x509.CertPool, file string, log *slog.Logger) (*clientCAs, error) {
	c := &clientCAs{own: own, file: file, log: log}
	if file == "" {
		c.now.Store(&clientCAsAt{pool: own})
		return c, nil
	}
	_, err := c.read()
	return c, err
}

// read reads the file again. changed: the authorities are others than before.
func (c *clientCAs) read() (changed bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	text, certs, err := readClientCAs(c.file)
	if err != nil || bytes.Equal(text, c.text) {
		return false, err
	}
	pool := c.own.Clone()
	for _, cert := range certs {
		pool.AddCert(cert)
	}
	c.text = text
	c.now.Store(&clientCAsAt{pool: pool})
	return true, nil
}

// follow looks at the file until ctx ends. Users of an authority that is gone are refused at their
// next request; watches that have begun go on, as upstream's do.
func (c *clientCAs) follow(ctx context.Context) {
	t := time.NewTicker(clientCALook)
	defer t.Stop()
	failed := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		changed, err := c.read()
		switch {
		case err != nil && err.Error() != failed:
			c.log.Error("client-ca-file cannot be used: the authorities of clients stay as they were", "err", err)
		case changed:
			c.log.Info("the authorities of clients have changed", "file", c.file)
		}
		if failed = ""; err != nil {
			failed = err.Error()
		}
	}
}

// roots is auth.Certificates.Roots.
func (c *clientCAs) roots() *x509.CertPool { return c.now.Load().pool }

// serve has a server name the authorities to its clients. Clients of Go send no certificate to a server that
// does not name its authority.
func (c *clientCAs) serve(config *tls.Config) {
	config.ClientCAs = c.roots()
	if c.file == "" {
		return
	}
	c.tls, config.GetConfigForClient = config, c.configForClient
}

// configForClient is tls.Config.GetConfigForClient. Sessions are resumed with the keys of the
// server's own configuration, whichever this returns.
func (c *clientCAs) configForClient(*tls.ClientHelloInfo) (*tls.Config, error) {
	now := c.now.Load()
	if hello := now.hello.Load(); hello != nil {
		return hello, nil
	}
	hello := c.tls.Clone()
	hello.ClientCAs, hello.GetConfigForClient = now.pool, nil
	now.hello.CompareAndSwap(nil, hello)
	return now.hello.Load(), nil
}

// checkClientCA checks what names authorities of clients.
func (c *Config) checkClientCA(bad *mistakes) {
	if c.ClientCA == "" {
		return
	}
	if _, _, err := readClientCAs(c.ClientCA); err != nil {
		bad.add("client-ca-file: %w", err)
	}
}

// readClientCAs reads certificates in PEM.
func readClientCAs(file string) (text []byte, certs []*x509.Certificate, err error) {
	if text, err = settingfile.Read(file, maxClientCAs); err != nil {
		return nil, nil, err
	}
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", file, err)
		}
		certs = append(certs, cert)
	}
	if len(certs) == 0 {
		return nil, nil, errors.New(file + ": no certificate in PEM")
	}
	return text, certs, nil
}
