package apiserver_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/backends/kubelet"
	"k8s.io/client-go/rest"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// fakeKubelet serves exec, attach and port-forward by the library that container runtimes serve them with, and
// logs by itself. Its commands are few: see ExecInContainer.
type fakeKubelet struct {
	*httptest.Server
	asked atomic.Pointer[http.Request]
	// log answers what is asked of logs; handle all else that is not a stream.
	log, handle http.HandlerFunc
	conns       atomic.Int64 // open connections
	all         sync.Map     // of those
	running     atomic.Int64 // commands
	ended       chan struct{}
	over        chan struct{} // closed at the end of the test
}

func newFakeKubelet(t testing.TB) *fakeKubelet {
	k := &fakeKubelet{ended: make(chan struct{}, 4096), over: make(chan struct{}), handle: http.NotFound}
	k.log = func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "a line") }
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/", func(w http.ResponseWriter, r *http.Request) {
		options, err := remotecommand.NewOptions(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		remotecommand.ServeExec(w, r, k, "p", "", "c", r.URL.Query()["command"], options, time.Hour, time.Minute, protocols)
	})
	mux.HandleFunc("/attach/", func(w http.ResponseWriter, r *http.Request) {
		options, err := remotecommand.NewOptions(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		remotecommand.ServeAttach(w, r, k, "p", "", "c", options, time.Hour, time.Minute, protocols)
	})
	mux.HandleFunc("/portForward/", func(w http.ResponseWriter, r *http.Request) {
		portforward.ServePortForward(w, r, k, "p", "", &portforward.V4Options{}, time.Hour, time.Minute, []string{portforward.ProtocolV1Name})
	})
	mux.HandleFunc("/containerLogs/", func(w http.ResponseWriter, r *http.Request) { k.log(w, r) })
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { k.handle(w, r) })
	k.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k.asked.Store(r)
		mux.ServeHTTP(w, r)
	}))
	k.Listener = countedListener{k.Listener, k}
	k.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, NextProtos: []string{"h2", "http/1.1"}}
	k.StartTLS()
	t.Cleanup(func() {
		close(k.over)
		k.CloseClientConnections()
		k.Close()
	})
	return k
}

var protocols = []string{remotecommand.StreamProtocolV4Name, remotecommand.StreamProtocolV3Name, remotecommand.StreamProtocolV2Name, remotecommand.StreamProtocolV1Name}

// countedListener counts the connections that are open.
type countedListener struct {
	net.Listener
	of *fakeKubelet
}

func (l countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.of.conns.Add(1)
	counted := &countedConn{Conn: c, of: l.of}
	l.of.all.Store(counted, nil)
	return counted, nil
}

type countedConn struct {
	net.Conn
	once sync.Once
	of   *fakeKubelet
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.of.conns.Add(-1); c.of.all.Delete(c) })
	return c.Conn.Close()
}

// ExecInContainer implements remotecommand.Executor.
func (k *fakeKubelet) ExecInContainer(ctx context.Context, _, _, _ string, cmd []string, in io.Reader, out, errs io.WriteCloser, _ bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	k.running.Add(1)
	defer k.running.Add(-1)
	switch cmd[0] {
	case "echo":
		fmt.Fprint(out, strings.Join(cmd[1:], " "))
	case "complain":
		fmt.Fprint(errs, "a complaint")
	case "cat":
		_, _ = io.Copy(out, in)
	case "exit":
		return utilexec.CodeExitError{Err: fmt.Errorf("it exits"), Code: 7}
	case "size":
		size := <-resize
		fmt.Fprintf(out, "%dx%d", size.Width, size.Height)
	case "sleep": // until the connection ends, which the library tells the streams
		_, _ = io.Copy(io.Discard, in)
		k.ended <- struct{}{}
	case "test": // kubectl cp asks whether its target is a directory
		return utilexec.CodeExitError{Err: fmt.Errorf("it is none"), Code: 1}
	case "tar": // kubectl cp has the container run it
		c := exec.CommandContext(ctx, cmd[0], cmd[1:]...)
		c.Stdin, c.Stdout, c.Stderr = in, out, os.Stderr
		return c.Run()
	case "ignore": // never reads what comes
		<-k.over
	case "flood":
		for b := make([]byte, 32<<10); ; {
			if _, err := out.Write(b); err != nil {
				k.ended <- struct{}{}
				return nil
			}
		}
	}
	return nil
}

// AttachContainer implements remotecommand.Attacher.
func (k *fakeKubelet) AttachContainer(_ context.Context, _, _, _ string, in io.Reader, out, _ io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize) error {
	_, _ = io.Copy(out, in)
	return nil
}

// PortForward implements portforward.PortForwarder: the port answers a line with the line and its own number.
func (k *fakeKubelet) PortForward(_ context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	line, err := bufio.NewReader(stream).ReadString('\n')
	if err == nil {
		fmt.Fprintf(stream, "%d %s", port, line)
	}
	return nil
}

// address is the kubelet's.
func (k *fakeKubelet) address() (host string, port int) {
	at := k.Listener.Addr().(*net.TCPAddr)
	return at.IP.String(), at.Port
}

// withKubelets is a server with a way to kubelets, and a Pod p of one container on the node n whose kubelet is at an
// address.
func withKubelets(t testing.TB, cfg kubelet.Config, host string, port int, change func(*apiserver.Config)) *env {
	c := kubelet.New(cfg)
	t.Cleanup(c.Close)
	e := newEnv(t, func(a *apiserver.Config) {
		if a.Kubelets = c; change != nil {
			change(a)
		}
	})
	e.post("/api/v1/nodes", fmt.Sprintf(`{"metadata":{"name":"n"},"status":{"addresses":[{"type":"InternalIP","address":%q}],"daemonEndpoints":{"kubeletEndpoint":{"Port":%d}}}}`, host, port))
	e.post(podsPath, `{"metadata":{"name":"p"},"spec":{"nodeName":"n","containers":[{"name":"c","image":"i"}]}}`)
	return e
}

// post creates what must be created.
func (e *env) post(path, body string) {
	e.t.Helper()
	if w, answer := e.do("POST", path, nil, body); w.StatusCode != http.StatusCreated {
		e.t.Fatalf("POST %s: %d %s", path, w.StatusCode, answer)
	}
}

// config is a client's.
func (e *env) config() *rest.Config {
	return &rest.Config{Host: e.url, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

// within waits for a condition, as many polls as there are in limit: where the machine is busy, each comes
// later, as what is awaited does.
func within(t testing.TB, limit time.Duration, what string, done func() bool) {
	t.Helper()
	const pause = 2 * time.Millisecond
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for polls := limit / pause; !done(); polls-- {
		if polls <= 0 {
			t.Fatalf("not within %v: %s", limit, what)
		}
		<-tick.C
	}
}

// closeAll cuts all connections, those of streams too.
func (k *fakeKubelet) closeAll() {
	k.all.Range(func(c, _ any) bool {
		_ = c.(net.Conn).Close()
		return true
	})
}
