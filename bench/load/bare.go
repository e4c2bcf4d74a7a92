package load

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"time"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/host"
)

// BareArguments make quorate-bench a bare server, which [ServeBare] is.
var BareArguments = []string{"bare-server"}

// ServeBare is the least that a Go HTTPS server can do: it answers every request
// with the same object. What it costs is the floor of every row, and its cost
// here compared with the peer's machine tells how slow this machine is now.
// It writes its address and certificate to out, and ends when in does.
func ServeBare(in io.Reader, out io.Writer) error {
	body := object("bench", 0, 0, "1000000")
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body)
	}))
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert}
	s.StartTLS()
	defer s.Close()
	fmt.Fprintln(out, s.Listener.Addr())
	if err := pem.Encode(out, &pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}); err != nil {
		return fmt.Errorf("bare server: %w", err)
	}
	if c, ok := out.(io.Closer); ok {
		_ = c.Close() // the parent reads to the end
	}
	_, err := io.Copy(io.Discard, in)
	return err
}

// bareConnections are those of a cluster's load.
const bareConnections = 8

// bareServer is the running child.
type bareServer struct {
	child *exec.Cmd
	stdin io.Closer
	conns []*client.Conn
}

func startBare(ctx context.Context) (s *bareServer, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("start the bare server: %w", err)
		}
	}()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s = &bareServer{child: exec.CommandContext(ctx, self, BareArguments...)}
	s.child.Stderr = os.Stderr
	if s.stdin, err = s.child.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := s.child.StdoutPipe()
	if err == nil {
		err = s.child.Start()
	}
	if err != nil {
		return nil, err
	}
	if err := s.connect(ctx, stdout); err != nil {
		s.stop()
		return nil, err
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

// calibrationTime is how long the bare server is measured, before and after the rows.
const calibrationTime = 3 * time.Second

// bareCost measures the bare server with the load of a get, and returns its CPU
// time per operation in microseconds.
func (b *bench) bareCost(ctx context.Context) (float64, error) {
	s, err := startBare(ctx)
	if err != nil {
		return 0, err
	}
	defer s.stop()
	bare := &bench{Options: b.Options, namespace: b.namespace, target: &Target{}, conns: s.conns}
	pid := []int{s.child.Process.Pid}
	before, err := host.CPUTimes(pid)
	if err != nil {
		return 0, err
	}
	t := newTally(1)
	closedLoop(ctx, b.Workers, calibrationTime, t, bare.closed(&row{verb: get}, b.Workers))
	if err := errors.Join(t.first, ctx.Err()); err != nil {
		return 0, fmt.Errorf("calibrate: %w", err)
	}
	after, err := host.CPUTimes(pid)
	if err != nil {
		return 0, err
	}
	return float64((after[0] - before[0]).Microseconds()) / float64(t.all().TotalCount()), nil
}
