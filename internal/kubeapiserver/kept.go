package kubeapiserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/quorate/quorate/internal/settingfile"
)

const (
	// askWithin bounds the question to one server of --etcd-servers, maxAsked how many are asked.
	askWithin = time.Second
	maxAsked  = 5
	// No answer may be that of a stub which is being started: kwokctl starts both programs at once. A
	// server whose data is to be kept waits for it as long as kube-apiserver does for etcd; another one
	// hardly, because it can do without.
	awaitKeeper = 20 * time.Second
	awaitStub   = time.Second
	askPause    = 50 * time.Millisecond
)

// askStubs asks the servers of --etcd-servers whether one of them is a stub that keeps data, and takes the place
// there. It is nil if none is: whatever else answers there is not used.
func (o *Options) askStubs(ctx context.Context) (*place, error) {
	servers := elements(o.set.Lookup("etcd-servers"))
	if len(servers) == 0 {
		return nil, nil
	}
	client, err := o.etcdClient()
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	wait := awaitStub
	if outlives() {
		wait = awaitKeeper
	}
	for end := time.Now().Add(wait); ; {
		p, silent, err := o.askAll(ctx, client, servers[:min(len(servers), maxAsked)])
		if p != nil || err != nil || !silent || time.Now().After(end) {
			return p, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(askPause):
		}
	}
}

// askAll asks each server once. silent: one has not answered.
func (o *Options) askAll(ctx context.Context, client *http.Client, servers []string) (_ *place, silent bool, _ error) {
	for _, server := range servers {
		k, err := askStub(ctx, client, server)
		if silent = silent || err != nil; err != nil || k.Dir == "" {
			continue // an etcd, which is not used
		}
		if err := k.check(); err != nil {
			return nil, false, fmt.Errorf("the stub of etcd at %s keeps data in %s, but: %w; name a directory of this server: --quorate-data-dir DIR", server, k.Dir, err)
		}
		p, err := take(&place{dir: filepath.Join(k.Dir, keptName), keptBy: server})
		return p, false, err
	}
	return nil, silent, nil
}

// etcdClient has the certificates of the flags for etcd.
func (o *Options) etcdClient() (*http.Client, error) {
	file := func(name string) string { return o.set.Lookup(name).Value.String() }
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if path := file("etcd-cafile"); path != "" {
		pem, err := settingfile.Read(path, settingfile.MaxBytes)
		if err != nil {
			return nil, fmt.Errorf("--etcd-cafile: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		c.RootCAs.AppendCertsFromPEM(pem)
	}
	if path := file("etcd-certfile"); path != "" {
		cert, err := keyPair(path, file("etcd-keyfile"))
		if err != nil {
			return nil, fmt.Errorf("--etcd-certfile: %w", err)
		}
		c.Certificates = []tls.Certificate{cert}
	}
	return &http.Client{Timeout: askWithin, Transport: &http.Transport{TLSClientConfig: c, MaxResponseHeaderBytes: 64 << 10}}, nil
}

// keyPair reads a certificate and its key.
func keyPair(certFile, keyFile string) (tls.Certificate, error) {
	cert, err := settingfile.Read(certFile, settingfile.MaxBytes)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := settingfile.Read(keyFile, settingfile.MaxBytes)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key)
}

func askStub(ctx context.Context, client *http.Client, server string) (keeper, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(server, "/")+"/version", nil)
	if err != nil {
		return keeper{}, err
	}
	w, err := client.Do(r)
	if err != nil {
		return keeper{}, err
	}
	defer w.Body.Close()
	var v stubVersion
	err = json.NewDecoder(io.LimitReader(w.Body, 64<<10)).Decode(&v)
	return v.Quorate, err
}

// check makes sure that the directory is that of the stub, on this machine, and of this user: anybody may
// listen where --etcd-servers points to.
func (k keeper) check() error {
	f, err := os.OpenFile(filepath.Join(k.Dir, keeperName), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); !ok || int(sys.Uid) != os.Geteuid() || !st.Mode().IsRegular() {
		return errors.New("it is another user's")
	}
	id, err := io.ReadAll(io.LimitReader(f, 64))
	if err != nil || string(id) != k.ID {
		return errors.New("it is not the same directory here")
	}
	return nil
}
