package load

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"time"

	"github.com/quorate/quorate/bench/client"
)

// BareArguments make quorate-bench a bare server, which [ServeBare] is.
var BareArguments = []string{"bare-server"}

// ServeBare is the least that a Go HTTPS server can do: it answers every request
// with the same object. What it costs is the floor of every row, and its cost
// here compared with the peer's machine tells how slow this machine is now.
// It writes its address and certificate to out, and ends when in does.
func ServeBare(in io.Reader, out io.Writer) error {
	certificate, err := selfSigned()
	if err != nil {
		return fmt.Errorf("bare server: %w", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("bare server: %w", err)
	}
	body := object("bench", 0, 0, "1000000")
	s := &http.Server{
		ReadHeaderTimeout: time.Minute,
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequestClientCert},
		ErrorLog:          log.New(os.Stderr, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(body)
		}),
	}
	fmt.Fprintln(out, l.Addr())
	if err := pem.Encode(out, &pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}); err != nil {
		return fmt.Errorf("bare server: %w", err)
	}
	if c, ok := out.(io.Closer); ok {
		_ = c.Close() // the parent reads to the end
	}
	go func() {
		_, _ = io.Copy(io.Discard, in)
		_ = s.Close()
	}()
	if err := s.ServeTLS(l, "", ""); err != http.ErrServerClosed {
		return fmt.Errorf("bare server: %w", err)
	}
	return nil
}

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	t := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bare"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// bareConnections are those of a cluster's load.
const bareConnections = 8

// bareServer is the running child.
type bareServer struct {
	child *exec.Cmd
	stdin io.Closer
	conns []*client.Conn
}

func startBare(ctx context.Context) (*bareServer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start the bare server: %w", err)
	}
	s := &bareServer{child: exec.CommandContext(ctx, self, BareArguments...)}
	s.child.Stderr = os.Stderr
	if s.stdin, err = s.child.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start the bare server: %w", err)
	}
	stdout, err := s.child.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start the bare server: %w", err)
	}
	if err := s.child.Start(); err != nil {
		return nil, fmt.Errorf("start the bare server: %w", err)
	}
	if err := s.connect(ctx, stdout); err != nil {
		s.stop()
		return nil, fmt.Errorf("start the bare server: %w", err)
	}
	return s, nil
}

func (s *bareServer) connect(ctx context.Context, stdout io.Reader) error {
	said, err := io.ReadAll(stdout)
	if err != nil {
		return err
	}
	var addr string
	if _, err := fmt.Sscanln(string(said), &addr); err != nil {
		return fmt.Errorf("it said %q: %w", said, err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(said[len(addr):]) {
		return fmt.Errorf("it said %q: no certificate", said)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, NextProtos: []string{"h2"}}
	for range bareConnections {
		c, err := client.Dial(ctx, &url.URL{Scheme: "https", Host: addr}, config)
		if err != nil {
			return err
		}
		s.conns = append(s.conns, c)
	}
	return nil
}

func (s *bareServer) stop() {
	_ = client.CloseAll(s.conns)
	_ = s.stdin.Close()
	_ = s.child.Wait()
}
