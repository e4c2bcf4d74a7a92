package kubeapiserver

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// EtcdVersion is the version that a stub says it has: the one that kube-apiserver 1.36 comes with.
const EtcdVersion = "3.6.8"

// Stub is what stands where a tool insists on starting etcd: it is healthy, and has no keys. It names its directory
// to a server that has its address, which keeps its data there: then that is kept as etcd's would be.
type Stub struct {
	// ClientURLs are where it listens, MetricsURLs where only its health is served.
	ClientURLs, MetricsURLs []string
	// CertFile and KeyFile are for https URLs.
	CertFile, KeyFile string
	// DataDir is where servers keep their data.
	DataDir string

	keeps keeper
}

// keeper is how a stub shows that a directory is its own: the id is in the file keeperName there. A server
// that is told of a directory by anybody else does not find it.
type keeper struct {
	Dir string `json:"dir,omitempty"`
	ID  string `json:"id,omitempty"`
}

const (
	keeperName = "quorate-etcd-stub"
	// keptName is the directory of a server below that of a stub.
	keptName = "quorate-kube-apiserver"
)

// stubVersion is what a stub answers at /version.
type stubVersion struct {
	Server  string `json:"etcdserver"`
	Cluster string `json:"etcdcluster"`
	Quorate keeper `json:"quorate,omitzero"`
}

// stubAnswer is what all other paths are answered with.
const stubAnswer = "this is no etcd but a stub of it, 'quorate etcd-stub': the objects are in the log of 'quorate kube-apiserver'\n"

// ServeHTTP implements http.Handler.
func (s *Stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var answer any
	switch r.URL.Path {
	case "/health":
		answer = map[string]string{"health": "true", "reason": ""}
	case "/readyz", "/livez":
		fmt.Fprintln(w, "ok")
		return
	case "/version":
		answer = stubVersion{Server: EtcdVersion, Cluster: EtcdVersion[:strings.LastIndex(EtcdVersion, ".")] + ".0", Quorate: s.keeps}
	default:
		http.Error(w, stubAnswer, http.StatusNotImplemented)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

// Run serves until ctx ends or the process that started this one is gone, as [Run] does.
func (s *Stub) Run(ctx context.Context) (err error) {
	if look().ending() == orphan {
		return errors.New(parentGone)
	}
	for _, at := range s.ClientURLs {
		if err := checkURL(at); err != nil {
			return fmt.Errorf("--listen-client-urls: %w", err)
		}
	}
	for _, at := range s.MetricsURLs {
		if err := checkURL(at); err != nil {
			return fmt.Errorf("--listen-metrics-urls: %w", err)
		}
	}
	if len(s.ClientURLs) == 0 {
		return errors.New("--listen-client-urls: it is empty: where to listen?")
	}
	if s.DataDir != "" {
		if err := s.keep(); err != nil {
			return fmt.Errorf("--data-dir: %w", err)
		}
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	server := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second}
	defer server.Close()
	for _, at := range append(append([]string{}, s.ClientURLs...), s.MetricsURLs...) {
		l, err := s.listen(at)
		if err != nil {
			return err
		}
		go func() {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				end(err)
			}
		}()
	}
	if !outlives() && awaitOrphaned(ctx) {
		return s.forget()
	}
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// keep makes the directory, and the file that shows that it is the stub's.
func (s *Stub) keep() (err error) {
	if s.DataDir, err = filepath.Abs(s.DataDir); err != nil {
		return err
	}
	if err := os.MkdirAll(s.DataDir, 0o700); err != nil {
		return err
	}
	b := make([]byte, 16)
	rand.Read(b)
	s.keeps = keeper{Dir: s.DataDir, ID: hex.EncodeToString(b)}
	path := filepath.Join(s.DataDir, keeperName)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(s.keeps.ID)
	return errors.Join(err, f.Close())
}

// forgetWithin is how long a server may take to end before what it has kept stays.
const forgetWithin = 20 * time.Second

// forget removes what a server has kept here, when that has ended too: the process that started both is gone, and
// nobody else would. The directory itself was perhaps made by others, and stays.
func (s *Stub) forget() error {
	if s.DataDir == "" {
		return nil
	}
	dir := filepath.Join(s.DataDir, keptName)
	err := os.Remove(filepath.Join(s.DataDir, keeperName))
	lock, failed := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if errors.Is(failed, fs.ErrNotExist) {
		return err // no server was there
	}
	if failed != nil {
		return errors.Join(err, failed)
	}
	defer lock.Close()
	for end := time.Now().Add(forgetWithin); syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			return errors.Join(err, fmt.Errorf("%s is in use still", dir))
		}
	}
	return errors.Join(err, removeLocked(dir))
}

// checkURL refuses what would listen elsewhere than it says, or nowhere.
func checkURL(at string) error {
	u, err := url.Parse(at)
	switch {
	case err != nil:
		return err
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("%q: must begin with http:// or https://", at)
	case u.Hostname() == "" || u.Port() == "":
		return fmt.Errorf("%q: must name a host and a port", at)
	case u.Path != "" && u.Path != "/":
		return fmt.Errorf("%q: has a path", at)
	}
	return nil
}

func (s *Stub) listen(at string) (net.Listener, error) {
	u, err := url.Parse(at)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", u.Host)
	if err != nil || u.Scheme != "https" {
		return l, err
	}
	cert, err := keyPair(s.CertFile, s.KeyFile)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: --cert-file, --key-file: %w", at, err), l.Close())
	}
	return tls.NewListener(l, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}}), nil
}
