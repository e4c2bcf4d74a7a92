package egress

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/internal/standins"
	"google.golang.org/grpc"
	"k8s.io/component-base/metrics/legacyregistry"
	konnect "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
)

// named returns a proxy whose targets lead to the addresses of a map.
func named(addresses map[string]string) *standins.Proxy {
	return &standins.Proxy{To: func(target string) string { return addresses[target] }}
}

// talk sends a line to what was dialled, and wants it back.
func talk(t *testing.T, conn net.Conn, err error) {
	t.Helper()
	must.OK(t, err)
	defer conn.Close()
	if conn.LocalAddr() == nil || conn.RemoteAddr() == nil {
		t.Error("the connection has no addresses")
	}
	if _, err := io.WriteString(conn, "hello\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(conn).ReadString('\n'); line != "hello\n" {
		t.Fatalf("came back: %q, %v", line, err)
	}
}

// authority signs certificates into files.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T, dir, name string) *authority {
	t.Helper()
	a := &authority{dir: dir}
	a.file, _ = a.sign(t, name, true)
	return a
}

func (a *authority) sign(t *testing.T, name string, ca bool) (cert, key string) {
	t.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.OK(t, err)
	x := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: ca, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	parent, signer := x, own
	if !ca {
		parent, signer = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, x, parent, &own.PublicKey, signer)
	must.OK(t, err)
	if ca {
		a.key = own
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := x509.MarshalPKCS8PrivateKey(own)
	must.OK(t, err)
	cert, key = filepath.Join(a.dir, name+".crt"), filepath.Join(a.dir, name+".key")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: raw}} {
		must.OK(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	}
	return cert, key
}

// config writes an EgressSelectorConfiguration.
func config(t *testing.T, dir, selections string) string {
	t.Helper()
	file := filepath.Join(dir, "egress.yaml")
	must.OK(t, os.WriteFile(file, []byte("apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n"+selections), 0o600))
	return file
}

// connectTLS is a proxy that wants a certificate of an authority. It returns its address.
func connectTLS(t *testing.T, a *authority, p http.Handler) string {
	t.Helper()
	cert, key := a.sign(t, "proxy.example", false)
	pair, err := tls.LoadX509KeyPair(cert, key)
	must.OK(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	s := httptest.NewUnstartedServer(p)
	s.Config.ErrorLog = nil
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

const tlsSelection = `- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport: {tcp: {url: "https://%s", tlsConfig: {caBundle: %q, clientCert: %q, clientKey: %q%s}}}
`

// TestConnectOverTLS: a dial leads through a proxy that knows this server by its certificate, to an
// address that only the proxy can resolve. The certificate is read again, and what is not
// configured is dialled directly.
func TestConnectOverTLS(t *testing.T) {
	dir := t.TempDir()
	ca, other := newAuthority(t, dir, "ca"), newAuthority(t, dir, "other")
	hook := standins.Echo(t)
	p := named(map[string]string{"webhook.cluster.example:443": hook})
	at := connectTLS(t, ca, p)
	cert, key := ca.sign(t, "apiserver", false)
	d, err := New(Config{File: config(t, dir, fmt.Sprintf(tlsSelection, at, ca.file, cert, key, ""))})
	must.OK(t, err)
	if !d.Configured(Cluster) || d.Configured(ControlPlane) {
		t.Error("the file says how the cluster is dialled, and nothing of the control plane")
	}
	before := dials(t, "http_connect", "tcp")
	conn, err := d.Dial(Cluster)(t.Context(), "tcp", "webhook.cluster.example:443")
	talk(t, conn, err)
	if n := dials(t, "http_connect", "tcp") - before; n != 1 {
		t.Errorf("%v dials were counted", n)
	}
	conn, err = d.Dial(ControlPlane)(t.Context(), "tcp", hook)
	talk(t, conn, err)
	if n := len(p.Asked()); n != 1 {
		t.Errorf("the proxy was asked %d times", n)
	}

	if _, err := d.Dial(Cluster)(t.Context(), "tcp", "elsewhere.example:443"); err == nil || !strings.Contains(err.Error(), `the proxy answered "403 Forbidden"`) {
		t.Errorf("a target that the proxy refuses: %v", err)
	}
	// A certificate of another authority: the proxy does not know us.
	strange, strangeKey := other.sign(t, "apiserver", false)
	if strange != cert || strangeKey != key {
		t.Fatal("the files are others")
	}
	if conn, err := d.Dial(Cluster)(t.Context(), "tcp", "webhook.cluster.example:443"); err == nil {
		conn.Close()
		t.Error("the certificate was not read again, or the proxy does not ask for it")
	}
	ca.sign(t, "apiserver", false)
	conn, err = d.Dial(Cluster)(t.Context(), "tcp", "webhook.cluster.example:443")
	talk(t, conn, err)

	// A proxy that is not who it should be.
	d, err = New(Config{File: config(t, dir, fmt.Sprintf(tlsSelection, at, ca.file, cert, key, `, tlsServerName: elsewhere.example`))})
	must.OK(t, err)
	if _, err := d.Dial(Cluster)(t.Context(), "tcp", "webhook.cluster.example:443"); err == nil || !strings.Contains(err.Error(), "elsewhere.example") {
		t.Errorf("a proxy with another name: %v", err)
	}
}

// dials is how many dials were counted.
func dials(t *testing.T, protocol, transport string) float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	must.OK(t, err)
	for _, f := range families {
		if f.GetName() != "apiserver_egress_dialer_dial_start_total" {
			continue
		}
		for _, m := range f.Metric {
			if m.Label[0].GetValue() == protocol && m.Label[1].GetValue() == transport {
				return m.Counter.GetValue()
			}
		}
	}
	return 0
}

func TestConnectOverSocket(t *testing.T) {
	p := named(map[string]string{"10.0.0.7:10250": standins.Echo(t)})
	path := p.Serve(t)
	d, err := New(Config{File: config(t, t.TempDir(), "- name: cluster\n  connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: "+path+"}}}\n")})
	must.OK(t, err)
	conn, err := d.Dial(Cluster)(t.Context(), "tcp", "10.0.0.7:10250")
	talk(t, conn, err)
	for _, bad := range []string{"10.0.0.7", "a b:443", "a\r\nX-Evil: 1:443", "a:443\r\n\r\nGET / HTTP/1.1"} {
		if _, err := d.Dial(Cluster)(t.Context(), "tcp", bad); err == nil || len(p.Asked()) != 1 {
			t.Errorf("%q: %v, the proxy was asked for %q", bad, err, p.Asked())
		}
	}
}

// TestHostileProxies: a proxy that says nothing, too much or nonsense costs one dial, as long as its context.
func TestHostileProxies(t *testing.T) {
	for name, x := range map[string]struct {
		answer string
		want   string
		wait   bool
		more   bool // text without an end
	}{
		"silence":       {wait: true, want: context.DeadlineExceeded.Error()},
		"closes":        {want: "EOF"},
		"nonsense":      {answer: "SSH-2.0-OpenSSH_9.2\r\n", want: "malformed HTTP"},
		"without end":   {answer: "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("a", 2*maxAnswer), want: "EOF"},
		"never ends":    {answer: "HTTP/1.1 200 OK\r\nX: ", want: "EOF", more: true},
		"more":          {answer: "HTTP/1.1 200 OK\r\n\r\nmore", want: "behind the proxy's answer"},
		"refuses":       {answer: "HTTP/1.1 502 " + strings.Repeat("x", 2000) + "\r\nContent-Length: 0\r\n\r\n", want: "the proxy answered"},
		"interim, ends": {answer: "HTTP/1.1 100 Continue\r\n\r\n", want: "100"},
	} {
		t.Run(name, func(t *testing.T) {
			l := standins.Socket(t)
			ended := make(chan struct{})
			var endless standins.Endless
			go func() {
				defer close(ended)
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				http.ReadRequest(bufio.NewReader(c))
				io.WriteString(c, x.answer)
				if x.more {
					io.Copy(c, &endless)
				}
				if x.wait {
					io.Copy(io.Discard, c) // until the client gives up
				}
			}()
			d := &connect{network: "unix", address: l.Addr().String()}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if x.wait {
				cancel()
				ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
			}
			defer cancel()
			conn, err := d.dial(ctx, "tcp", "10.0.0.7:10250")
			if err == nil {
				conn.Close()
				t.Fatal("it gave a connection")
			}
			if !strings.Contains(err.Error(), x.want) || len(err.Error()) > 500 {
				t.Errorf("%v, want %q", err, x.want)
			}
			<-ended
			if n := endless.Taken(); n > 32<<20 {
				t.Errorf("%d bytes were taken", n)
			}
		})
	}
}

// konnectivityServer speaks Konnectivity's protocol, with one agent: itself.
type konnectivityServer struct {
	konnect.UnimplementedProxyServiceServer
	names map[string]string
	mute  bool
}

func (k *konnectivityServer) Proxy(stream konnect.ProxyService_ProxyServer) error {
	var there net.Conn
	for {
		p, err := stream.Recv()
		if err != nil {
			return err
		}
		switch p.Type {
		case konnect.PacketType_DIAL_REQ:
			if k.mute {
				continue
			}
			req := p.GetDialRequest()
			answer := &konnect.DialResponse{Random: req.Random, ConnectID: 7}
			if there, err = net.Dial("tcp", k.names[req.Address]); err != nil {
				answer.Error = err.Error()
			}
			if err := stream.Send(&konnect.Packet{Type: konnect.PacketType_DIAL_RSP, Payload: &konnect.Packet_DialResponse{DialResponse: answer}}); err != nil || there == nil {
				return err
			}
			defer there.Close()
			go func() {
				piece := make([]byte, 1<<10)
				for {
					n, err := there.Read(piece)
					if err != nil {
						return
					}
					stream.Send(&konnect.Packet{Type: konnect.PacketType_DATA, Payload: &konnect.Packet_Data{Data: &konnect.Data{ConnectID: 7, Data: piece[:n]}}})
				}
			}()
		case konnect.PacketType_DATA:
			there.Write(p.GetData().Data)
		case konnect.PacketType_CLOSE_REQ:
			there.Close()
			return stream.Send(&konnect.Packet{Type: konnect.PacketType_CLOSE_RSP, Payload: &konnect.Packet_CloseResponse{CloseResponse: &konnect.CloseResponse{ConnectID: 7}}})
		}
	}
}

// TestKonnectivity: the library's client against a server of its protocol.
func TestKonnectivity(t *testing.T) {
	k := &konnectivityServer{names: map[string]string{"10.0.0.7:10250": standins.Echo(t)}}
	start := func(k *konnectivityServer) string {
		l := standins.Socket(t)
		s := grpc.NewServer()
		konnect.RegisterProxyServiceServer(s, k)
		go s.Serve(l)
		t.Cleanup(s.Stop)
		return l.Addr().String()
	}
	d, err := New(Config{File: config(t, t.TempDir(), "- name: cluster\n  connection: {proxyProtocol: GRPC, transport: {uds: {udsName: "+start(k)+"}}}\n")})
	must.OK(t, err)
	conn, err := d.Dial(Cluster)(t.Context(), "tcp", "10.0.0.7:10250")
	talk(t, conn, err)
	if _, err := d.Dial(Cluster)(t.Context(), "tcp", "10.0.0.8:10250"); err == nil {
		t.Error("an address that the server cannot dial gave a connection")
	}
	mute := &konnectivity{socket: start(&konnectivityServer{mute: true})}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := mute.dial(ctx, "tcp", "10.0.0.7:10250"); err == nil || ctx.Err() == nil {
		t.Errorf("a server that does not answer: %v", err)
	}
	gone := &konnectivity{socket: filepath.Join(t.TempDir(), "none")}
	if _, err := gone.dial(t.Context(), "tcp", "10.0.0.7:10250"); err == nil || !strings.Contains(err.Error(), gone.socket) {
		t.Errorf("a server that is not there: %v", err)
	}
}

// TestMistakes: what is wrong with a configuration is said with the file and the field.
func TestMistakes(t *testing.T) {
	dir := t.TempDir()
	ca := newAuthority(t, dir, "ca")
	cert, key := ca.sign(t, "apiserver", false)
	none := filepath.Join(dir, "none")
	tlsOf := func(caBundle, cert, key string) string {
		return fmt.Sprintf("{name: cluster, connection: {proxyProtocol: HTTPConnect, transport: {tcp: {url: 'https://a:1', tlsConfig: {caBundle: %s, clientCert: %s, clientKey: %s}}}}}", caBundle, cert, key)
	}
	for selection, want := range map[string]string{
		"{name: nodes, connection: {proxyProtocol: Direct}}":                                                `egressSelections[0].name: Unsupported value: "nodes"`,
		"{name: cluster, connection: {proxyProtocol: Socks}}":                                               `egressSelections[0].connection.proxyProtocol: Unsupported value: "Socks"`,
		"{name: cluster, connection: {proxyProtocol: Direct, transport: {}}}":                               "egressSelections[0].connection.transport: Invalid value",
		"{name: cluster, connection: {proxyProtocol: HTTPConnect}}":                                         "egressSelections[0].connection.transport: Required value",
		"{name: cluster, connection: {proxyProtocol: HTTPConnect, transport: {}}}":                          "egressSelections[0].connection.transport.tcp: Required value",
		"{name: cluster, connection: {proxyProtocol: GRPC, transport: {tcp: {url: 'https://a:1'}}}}":        "egressSelections[0].connection.transport.uds: Required value",
		"{name: cluster, connection: {proxyProtocol: GRPC, transport: {uds: {}}}}":                          "egressSelections[0].connection.transport.uds.udsName: Invalid value",
		"{name: cluster, connection: {proxyProtocol: HTTPConnect, transport: {tcp: {url: 'ftp://a:1'}}}}":   `egressSelections[0].connection.transport.tcp.url: Invalid value: "ftp://a:1"`,
		"{name: cluster, connection: {proxyProtocol: HTTPConnect, transport: {tcp: {url: 'http://a'}}}}":    `egressSelections[0].connection.transport.tcp.url: Invalid value: "http://a" has no host or no port`,
		"{name: cluster, connection: {proxyProtocol: HTTPConnect, transport: {tcp: {url: 'https://a:1'}}}}": "egressSelections[0].connection.transport.tcp.tlsConfig: Required value",
		tlsOf(ca.file, none, key): `egressSelections[0].connection.transport.tcp.tlsConfig.clientCert: Invalid value: "` + none,
		tlsOf(none, cert, key):    `egressSelections[0].connection.transport.tcp.tlsConfig.caBundle: Invalid value: "` + none,
		tlsOf(key, cert, key):     "egressSelections[0].connection.transport.tcp.tlsConfig: Invalid value: caBundle: " + key + " has no certificate",
		tlsOf(ca.file, key, cert): "egressSelections[0].connection.transport.tcp.tlsConfig: Invalid value: " + key + " and " + cert,
		"{name: cluster, connection: {proxyProtocol: Direct}}\n- {name: Cluster, connection: {proxyProtocol: Direct}}": `egressSelections[1].name: Duplicate value: "Cluster"`,
		"{name: cluster, nonsense: 1}": `unknown field "egressSelections[0].nonsense"`,
	} {
		file := config(t, dir, "- "+selection+"\n")
		err := Check(file)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), file+": ") {
			t.Errorf("%s:\n%v\nwant %s", selection, err, want)
		}
	}
	for _, text := range []string{"", "hi", "- a\n- b\n", "apiVersion: v1\nkind: ConfigMap\n", "egressSelections: []\n"} {
		file := filepath.Join(dir, "other.yaml")
		must.OK(t, os.WriteFile(file, []byte(text), 0o600))
		if err := Check(file); err == nil || err.Error() != file+": must be an EgressSelectorConfiguration of apiserver.k8s.io/v1beta1" {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := Check(none); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if err := Check(config(t, dir, "- {name: etcd, connection: {proxyProtocol: Direct}}\n- {name: controlplane, connection: {proxyProtocol: HTTPConnect, transport: {tcp: {url: 'http://127.0.0.1:1'}}}}\n")); err != nil {
		t.Errorf("a configuration of kube-apiserver's: %v", err)
	}
}

// TestDefaults: without a file the cluster is dialled as the server says, and everything else directly.
func TestDefaults(t *testing.T) {
	at := standins.Echo(t)
	own := errors.New("the server's own way")
	d, err := New(Config{Cluster: func(context.Context, string, string) (net.Conn, error) { return nil, own }})
	must.OK(t, err)
	if _, err := d.Dial(Cluster)(t.Context(), "tcp", at); !errors.Is(err, own) {
		t.Error(err)
	}
	conn, err := d.Dial(ControlPlane)(t.Context(), "tcp", at)
	talk(t, conn, err)
	// A file that says Direct means it.
	d, err = New(Config{File: config(t, t.TempDir(), "- {name: cluster, connection: {proxyProtocol: Direct}}\n"), Cluster: d.Dial(Cluster)})
	must.OK(t, err)
	conn, err = d.Dial(Cluster)(t.Context(), "tcp", at)
	talk(t, conn, err)
}
