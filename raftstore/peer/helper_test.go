package peer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

// Addr returns the address that other nodes dial.
func (h *Host) Addr() string { return h.cfg.Advertise }

// authority is a CA for tests.
type authority struct {
	tb   testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(tb testing.TB) *authority {
	tb.Helper()
	key := newKey(tb)
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "peers"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must.OK(tb, err)
	cert, err := x509.ParseCertificate(der)
	must.OK(tb, err)
	return &authority{tb: tb, cert: cert, key: key}
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.OK(tb, err)
	return key
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// issue makes a leaf for a peer; change may spoil it first.
func (a *authority) issue(id proto.NodeID, change func(*x509.Certificate)) *tls.Certificate {
	a.tb.Helper()
	key := newKey(a.tb)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: string(id)},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		URIs:         []*url.URL{PeerURI(id)},
	}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	must.OK(a.tb, err)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// wallet is Credentials whose parts can be exchanged.
type wallet struct {
	leaf  atomic.Pointer[tls.Certificate]
	roots atomic.Pointer[x509.CertPool]
}

func newWallet(leaf *tls.Certificate, roots *x509.CertPool) *wallet {
	w := &wallet{}
	w.leaf.Store(leaf)
	w.roots.Store(roots)
	return w
}

func (w *wallet) Certificate() *tls.Certificate { return w.leaf.Load() }
func (w *wallet) Roots() *x509.CertPool         { return w.roots.Load() }

// echo is a Peer service that answers without a store behind it.
type echo struct {
	proto.UnimplementedPeerServer
	caller atomic.Value // of the last call
}

func (e *echo) LeaderLost(ctx context.Context, _ *proto.LeaderLostRequest) (*proto.LeaderLostResponse, error) {
	id, _ := CallerOf(ctx)
	e.caller.Store(id)
	return &proto.LeaderLostResponse{Term: 7}, nil
}

func (e *echo) Exchange(s grpc.BidiStreamingServer[proto.PeerRequest, proto.PeerResponse]) error {
	for {
		r, err := s.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.Send(&proto.PeerResponse{Id: r.Id}); err != nil {
			return err
		}
	}
}

type hello struct {
	proto.UnimplementedMembershipServer
}

func (hello) Hello(context.Context, *proto.HelloRequest) (*proto.HelloResponse, error) {
	return &proto.HelloResponse{ClusterId: "here"}, nil
}

func (hello) Join(context.Context, *proto.JoinRequest) (*proto.JoinResponse, error) {
	return &proto.JoinResponse{}, nil
}

func (hello) Change(context.Context, *proto.ChangeRequest) (*proto.ChangeResponse, error) {
	return &proto.ChangeResponse{}, nil
}

// startHost runs a host with the services above on a loopback port.
func startHost(tb testing.TB, a *authority, id proto.NodeID, change func(*Config)) (*Host, *echo) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(tb, err)
	cfg := Config{
		NodeID:      id,
		Credentials: newWallet(a.issue(id, nil), a.pool()),
		Listener:    l,
		Logger:      slog.New(slog.NewTextHandler(tb.Output(), nil)),
	}
	if change != nil {
		change(&cfg)
	}
	h, err := New(cfg)
	must.OK(tb, err)
	tb.Cleanup(func() {
		if err := h.Close(); err != nil {
			tb.Errorf("close %s: %v", id, err)
		}
	})
	e := &echo{}
	proto.RegisterPeerServer(h.GRPC(), e)
	proto.RegisterMembershipServer(h.GRPC(), hello{})
	h.Serve()
	return h, e
}

// peerOf returns a client of the node id at addr.
func peerOf(tb testing.TB, h *Host, id proto.NodeID, addr string) proto.PeerClient {
	tb.Helper()
	conn, err := h.Conn(id, addr)
	must.OK(tb, err)
	return proto.NewPeerClient(conn)
}

func inTime(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	tb.Cleanup(cancel)
	return ctx
}

// await polls until f holds.
func await(tb testing.TB, what string, f func() bool) {
	tb.Helper()
	for end := time.Now().Add(10 * time.Second); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("timeout waiting for: %s", what)
		}
	}
}
