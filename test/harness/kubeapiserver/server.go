package kubeapiserver

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Version is that of the kube-apiserver which tools/peers pins.
const Version = "1.36.3"

// Server is a kube-apiserver with its etcd, in a directory of its own. It can be used by several
// goroutines.
type Server struct {
	URL    string
	Client *http.Client // with an administrator's certificate; its requests end after 40 s

	dir       string
	processes []*process
	running   sync.WaitGroup
	end       context.CancelFunc
}

// process is one that was started.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// Start starts etcd and kube-apiserver from the directory of their programs, in a new directory
// below one that is there, or below that for temporary files if it is "". It calls flags with
// the new directory for flags of kube-apiserver beside the usual ones, NAME=VALUE, and returns
// when requests are served. Stop must be called.
func Start(ctx context.Context, programs, below string, flags func(dir string) ([]string, error)) (*Server, error) {
	s := &Server{}
	err := s.start(ctx, programs, below, flags)
	if err == nil {
		return s, nil
	}
	return nil, errors.Join(fmt.Errorf("start kube-apiserver: %w", err), s.Stop())
}

func (s *Server) start(ctx context.Context, programs, below string, flags func(dir string) ([]string, error)) (err error) {
	if s.dir, err = os.MkdirTemp(below, "kube-apiserver-"); err != nil {
		return err
	}
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	if err := s.writePKI(); err != nil {
		return err
	}
	more, err := flags(s.dir)
	if err != nil {
		return err
	}
	etcd, peer := fmt.Sprintf("http://127.0.0.1:%d", ports[0]), fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	if err := s.launch(filepath.Join(programs, "etcd"), "--data-dir="+s.path("etcd"), "--unsafe-no-fsync", "--log-level=error",
		"--listen-client-urls="+etcd, "--advertise-client-urls="+etcd, "--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer,
		"--initial-cluster=default="+peer); err != nil {
		return err
	}
	args := []string{
		"--etcd-servers=" + etcd, "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", ports[2]),
		"--tls-cert-file=" + s.path("server.crt"), "--tls-private-key-file=" + s.path("server.key"), "--client-ca-file=" + s.path("ca.crt"),
		"--authorization-mode=Node,RBAC", "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-signing-key-file=" + s.path("sa.key"), "--service-account-key-file=" + s.path("sa.key"),
		"--service-cluster-ip-range=10.0.0.0/24", "--cert-dir=" + s.path("certs"),
		"--allow-privileged", // as every installation has it; Quorate has no such flag
	}
	for _, f := range more {
		args = append(args, "--"+f)
	}
	if err := s.launch(filepath.Join(programs, "kube-apiserver"), args...); err != nil {
		return err
	}
	s.URL = fmt.Sprintf("https://127.0.0.1:%d", ports[2])
	if err := s.awaitReady(ctx); err != nil {
		return fmt.Errorf("%w\n%s", err, s.Logs())
	}
	life, end := context.WithCancel(ctx)
	s.end = end
	s.running.Go(func() { s.makeServiceAccounts(life) })
	return s.awaitDefaults(ctx)
}

func (s *Server) awaitReady(ctx context.Context) error {
	return await(ctx, 2*time.Minute, func(ctx context.Context) (bool, error) {
		for _, p := range s.processes {
			select {
			case <-p.ended:
				return false, fmt.Errorf("%s has ended", filepath.Base(p.cmd.Path))
			default:
			}
		}
		code, _, err := s.do(ctx, http.MethodGet, "/readyz", "")
		return err == nil && code == http.StatusOK, nil
	})
}

func (s *Server) path(name string) string { return filepath.Join(s.dir, name) }

// launch starts a program whose output goes to a file in the directory.
func (s *Server) launch(program string, args ...string) error {
	log, err := os.Create(s.path(filepath.Base(program) + ".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%w: run 'make peers'", err)
	}
	p := &process{cmd: cmd, ended: make(chan struct{})}
	s.processes = append(s.processes, p)
	go func() {
		defer close(p.ended)
		_ = cmd.Wait() // it is killed
	}()
	return nil
}

// Logs is the end of what the processes wrote.
func (s *Server) Logs() string {
	var all strings.Builder
	for _, p := range s.processes {
		log, _ := os.ReadFile(s.path(filepath.Base(p.cmd.Path) + ".log"))
		fmt.Fprintf(&all, "%s:\n%s\n", filepath.Base(p.cmd.Path), log[max(0, len(log)-3000):])
	}
	return all.String()
}

// Stop ends both and removes what they wrote.
func (s *Server) Stop() error {
	if s.end != nil {
		s.end()
		s.running.Wait()
	}
	for _, p := range s.processes {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.ended
	}
	if s.Client != nil {
		s.Client.CloseIdleConnections()
	}
	return os.RemoveAll(s.dir)
}

// writePKI makes the certificates and keys of the servers and of the client.
func (s *Server) writePKI() error {
	ca, err := NewAuthority()
	if err != nil {
		return err
	}
	serving, err := ca.ServerCertificate()
	if err != nil {
		return err
	}
	admin, err := ca.ClientCertificate("admin", "system:masters")
	if err != nil {
		return err
	}
	certificate, key, err := pemOf(serving)
	if err != nil {
		return err
	}
	signing, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"ca.crt": ca.PEM(), "server.crt": certificate, "server.key": key,
		"sa.key": pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(signing)}),
	} {
		if err := os.WriteFile(s.path(name), content, 0o600); err != nil {
			return err
		}
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.certificate)
	s.Client = &http.Client{Timeout: 40 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{admin}}, ForceAttemptHTTP2: true,
	}}
	return nil
}

const namespaces = "/api/v1/namespaces"

// makeServiceAccounts makes the service account "default" of every namespace, as
// kube-controller-manager does, until ctx ends.
func (s *Server) makeServiceAccounts(ctx context.Context) {
	made := map[string]bool{} // by the uids of namespaces
	for ctx.Err() == nil {
		_, body, err := s.do(ctx, http.MethodGet, namespaces, "")
		var list struct {
			Items []struct {
				Metadata struct{ Name, UID, DeletionTimestamp string }
			}
		}
		if err == nil && json.Unmarshal(body, &list) == nil {
			for _, ns := range list.Items {
				if made[ns.Metadata.UID] || ns.Metadata.DeletionTimestamp != "" {
					continue
				}
				code, _, err := s.do(ctx, http.MethodPost, namespaces+"/"+ns.Metadata.Name+"/serviceaccounts", `{"metadata":{"name":"default"}}`)
				made[ns.Metadata.UID] = err == nil && (code == http.StatusCreated || code == http.StatusConflict)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// awaitDefaults awaits what clients may rely on.
func (s *Server) awaitDefaults(ctx context.Context) error {
	return await(ctx, 30*time.Second, func(ctx context.Context) (bool, error) {
		for _, path := range []string{namespaces + "/default/serviceaccounts/default", "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical"} {
			if code, _, err := s.do(ctx, http.MethodGet, path, ""); err != nil || code != http.StatusOK {
				return false, err
			}
		}
		return true, nil
	})
}

// freePorts are ports of loopback that nobody listens on.
func freePorts(n int) (ports []int, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // all at the end, so that they differ
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// do sends a request with a body of JSON, or with none.
func (s *Server) do(ctx context.Context, method, path, body string) (code int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, s.URL+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := s.Client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// await repeats until a condition holds or cannot be found out.
func await(ctx context.Context, within time.Duration, holds func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		ok, err := holds(ctx)
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s", within)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
