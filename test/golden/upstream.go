package main

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
	"maps"
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

// kubeAPIServer is a real one, with its etcd, in a directory of its own.
type kubeAPIServer struct {
	server
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

// startUpstream starts etcd and kube-apiserver from the directory of their programs, for a
// story. Its stop ends them and removes what they wrote.
func startUpstream(ctx context.Context, programs string, s *story, vars map[string]string) (*kubeAPIServer, error) {
	k := &kubeAPIServer{}
	err := k.start(ctx, programs, s, vars)
	if err == nil {
		return k, nil
	}
	return nil, errors.Join(fmt.Errorf("start kube-apiserver: %w", err), k.stop())
}

func (k *kubeAPIServer) start(ctx context.Context, programs string, s *story, vars map[string]string) (err error) {
	if k.dir, err = os.MkdirTemp("", "quorate-golden-"); err != nil {
		return err
	}
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	if err := k.writePKI(); err != nil {
		return err
	}
	flags, err := s.serverFlags(k.dir, vars)
	if err != nil {
		return err
	}
	etcd, api := fmt.Sprintf("http://127.0.0.1:%d", ports[0]), fmt.Sprintf("https://127.0.0.1:%d", ports[2])
	peer := fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	if err := k.launch(filepath.Join(programs, "etcd"), "--data-dir="+k.path("etcd"), "--unsafe-no-fsync", "--log-level=error",
		"--listen-client-urls="+etcd, "--advertise-client-urls="+etcd, "--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer,
		"--initial-cluster=default="+peer); err != nil {
		return err
	}
	args := []string{
		"--etcd-servers=" + etcd, "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", ports[2]),
		"--tls-cert-file=" + k.path("server.crt"), "--tls-private-key-file=" + k.path("server.key"), "--client-ca-file=" + k.path("ca.crt"),
		"--authorization-mode=RBAC", "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-signing-key-file=" + k.path("sa.key"), "--service-account-key-file=" + k.path("sa.key"),
		"--service-cluster-ip-range=10.0.0.0/24", "--cert-dir=" + k.path("certs"),
		"--allow-privileged", // as every installation has it; Quorate has no such flag
	}
	for _, f := range flags {
		args = append(args, "--"+f)
	}
	if err := k.launch(filepath.Join(programs, "kube-apiserver"), args...); err != nil {
		return err
	}
	k.url, k.upstream, k.audit = api, true, &auditLog{path: auditPath(k.dir)}
	err = await(ctx, 2*time.Minute, func(ctx context.Context) (bool, error) {
		for _, p := range k.processes {
			select {
			case <-p.ended:
				return false, fmt.Errorf("%s has ended:\n%s", filepath.Base(p.cmd.Path), k.logs())
			default:
			}
		}
		a, err := k.do(ctx, http.MethodGet, "/readyz", nil, nil)
		return err == nil && a.code == http.StatusOK, nil
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, k.logs())
	}
	life, end := context.WithCancel(ctx)
	k.end = end
	k.running.Go(func() { k.makeServiceAccounts(life) })
	return k.awaitDefaults(ctx)
}

func (k *kubeAPIServer) path(name string) string { return filepath.Join(k.dir, name) }

// launch starts a program whose output goes to a file in the directory.
func (k *kubeAPIServer) launch(program string, args ...string) error {
	log, err := os.Create(k.path(filepath.Base(program) + ".log"))
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
	k.processes = append(k.processes, p)
	go func() {
		defer close(p.ended)
		_ = cmd.Wait() // it is killed
	}()
	return nil
}

// logs is the end of what the processes wrote.
func (k *kubeAPIServer) logs() string {
	var all strings.Builder
	for _, p := range k.processes {
		log, _ := os.ReadFile(k.path(filepath.Base(p.cmd.Path) + ".log"))
		fmt.Fprintf(&all, "%s:\n%s\n", filepath.Base(p.cmd.Path), log[max(0, len(log)-3000):])
	}
	return all.String()
}

func (k *kubeAPIServer) stop() error {
	if k.end != nil {
		k.end()
		k.running.Wait()
	}
	for _, p := range k.processes {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.ended
	}
	if k.client != nil {
		k.client.CloseIdleConnections()
	}
	return os.RemoveAll(k.dir)
}

// writePKI makes the certificates and keys of the servers and of the client.
func (k *kubeAPIServer) writePKI() error {
	ca, err := newAuthority()
	if err != nil {
		return err
	}
	serving, err := ca.serverCertificate()
	if err != nil {
		return err
	}
	admin, err := ca.clientCertificate("admin", "system:masters")
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
		"ca.crt": ca.pem(), "server.crt": certificate, "server.key": key,
		"sa.key": pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(signing)}),
	} {
		if err := os.WriteFile(k.path(name), content, 0o600); err != nil {
			return err
		}
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.certificate)
	k.client = &http.Client{Timeout: 40 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{admin}}, ForceAttemptHTTP2: true,
	}}
	return nil
}

const namespaces = "/api/v1/namespaces"

// makeServiceAccounts makes the service account "default" of every namespace, as
// kube-controller-manager does, until ctx ends.
func (k *kubeAPIServer) makeServiceAccounts(ctx context.Context) {
	made := map[string]bool{} // by the uids of namespaces
	for ctx.Err() == nil {
		a, err := k.do(ctx, http.MethodGet, namespaces, nil, nil)
		var list struct {
			Items []struct {
				Metadata struct{ Name, UID, DeletionTimestamp string }
			}
		}
		if err == nil && json.Unmarshal(a.body, &list) == nil {
			for _, ns := range list.Items {
				if made[ns.Metadata.UID] || ns.Metadata.DeletionTimestamp != "" {
					continue
				}
				a, err := k.do(ctx, http.MethodPost, namespaces+"/"+ns.Metadata.Name+"/serviceaccounts",
					http.Header{"Content-Type": {"application/json"}}, []byte(`{"metadata":{"name":"default"}}`))
				made[ns.Metadata.UID] = err == nil && (a.code == http.StatusCreated || a.code == http.StatusConflict)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// awaitDefaults awaits what a story may rely on.
func (k *kubeAPIServer) awaitDefaults(ctx context.Context) error {
	return await(ctx, upstreamPatience, func(ctx context.Context) (bool, error) {
		for _, path := range []string{namespaces + "/default/serviceaccounts/default", "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical"} {
			if a, err := k.do(ctx, http.MethodGet, path, nil, nil); err != nil || a.code != http.StatusOK {
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

func auditPath(dir string) string { return filepath.Join(dir, "audit.log") }

// serverFlags are the flags of either server for a story, NAME=VALUE, and writes the files
// that they name.
func (s *story) serverFlags(dir string, vars map[string]string) ([]string, error) {
	policy := filepath.Join(dir, "audit-policy.json")
	vars = maps.Clone(vars)
	contents := map[string]string{policy: auditPolicy}
	for name, content := range s.files {
		vars[name] = filepath.Join(dir, name+".yaml")
		contents[vars[name]] = content
	}
	for path, content := range contents {
		content, err := fill(content, vars)
		if err != nil {
			return nil, fmt.Errorf("%s: @file: %w", s.file, err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return nil, err
		}
	}
	flags := []string{"audit-policy-file=" + policy, "audit-log-path=" + auditPath(dir)}
	for _, f := range s.flags {
		filled, err := fill(f, vars)
		if err != nil {
			return nil, fmt.Errorf("%s: --%w", s.file, err)
		}
		flags = append(flags, filled)
	}
	return flags, nil
}
