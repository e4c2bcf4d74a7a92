package members

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/peer"
	"github.com/quorate/quorate/test/harness/cluster"
)

// disk is what somebody has who has the data directory of a node.
type disk struct {
	id    proto.NodeID
	dir   string
	admin *http.Client
	peer  tls.Certificate
	roots *x509.CertPool
}

func (d *disk) Certificate() *tls.Certificate { return &d.peer }
func (d *disk) Roots() *x509.CertPool         { return d.roots }

// stolen copies the keys out of a node's directory.
func stolen(t *testing.T, n *cluster.Node) *disk {
	t.Helper()
	d := &disk{dir: filepath.Join(n.Cluster.Dir, n.Name), roots: x509.NewCertPool()}
	read := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join(d.dir, name))
		must.OK(t, err)
		return b
	}
	var who struct {
		NodeID proto.NodeID `json:"nodeID"`
	}
	must.OK(t, json.Unmarshal(read("node.json"), &who))
	d.id = who.NodeID
	var err error
	if d.peer, err = tls.X509KeyPair(read("pki/peer.crt"), read("pki/peer.key")); err != nil {
		t.Fatal(err)
	}
	d.roots.AppendCertsFromPEM(read("pki/peer-ca.crt"))
	admin, err := tls.X509KeyPair(read("pki/admin.crt"), read("pki/admin.key"))
	must.OK(t, err)
	api := x509.NewCertPool()
	api.AppendCertsFromPEM(read("pki/api-ca.crt"))
	d.admin = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		ForceAttemptHTTP2: true,
		TLSClientConfig:   &tls.Config{RootCAs: api, Certificates: []tls.Certificate{admin}},
	}}
	t.Cleanup(d.admin.CloseIdleConnections)
	return d
}

// host is a peer port with the stolen certificate.
func (d *disk) host(t *testing.T, cluster proto.ClusterID) *peer.Host {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	h, err := peer.New(peer.Config{
		NodeID: d.id, Credentials: d, Listener: l, Cluster: func() proto.ClusterID { return cluster },
		Logger: slog.New(slog.DiscardHandler),
	})
	must.OK(t, err)
	t.Cleanup(func() { _ = h.Close() })
	return h
}

// grant proposes a binding to a node's Exchange, as a member would.
func grant(ctx context.Context, c proto.PeerClient) error {
	frame, err := proto.Encode(proto.KindWrite, &proto.Write{
		Table: "stolen", Key: "k", Op: proto.Op_OP_PUT, Value: []byte("v"),
	})
	if err != nil {
		return err
	}
	st, err := c.Status(ctx, &proto.StatusRequest{})
	if err != nil {
		return err
	}
	x, err := c.Exchange(ctx)
	if err != nil {
		return err
	}
	if err := x.Send(&proto.PeerRequest{Id: 1, Term: st.Term, Request: &proto.PeerRequest_Propose{Propose: frame}}); err != nil && err != io.EOF {
		return err
	}
	resp, err := x.Recv()
	if err != nil {
		return err
	}
	if p := resp.GetPropose(); p.GetError() != proto.ProposeError_PROPOSE_OK {
		return fmt.Errorf("%v", p)
	}
	return nil
}

// TestRemovedKeys: with everything that lies in the directory of a node, somebody does on
// both ports what the node may, and after its removal nothing.
func TestRemovedKeys(t *testing.T) {
	c := cluster.Start(t, 3)
	n3 := c.Nodes()[2]
	if c.Leader(t) == n3 {
		cluster.Members(t, c, "transfer-leader", "n1")
	}
	leader := c.Leader(t)
	d := stolen(t, n3)
	var list struct{ ClusterID proto.ClusterID }
	must.OK(t, json.Unmarshal([]byte(c.Admin(t, "member", "list", "-o", "json")), &list))
	h := d.host(t, list.ClusterID)
	conn, err := h.Conn("", leader.Peer)
	must.OK(t, err)
	calls := proto.NewPeerClient(conn)
	if err := grant(t.Context(), calls); err != nil {
		t.Fatalf("a member's proposal: %v", err)
	}
	get := func(path string) (int, error) {
		resp, err := d.admin.Get(leader.API + path)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, err
	}
	if code, err := get("/api/v1/secrets"); code != http.StatusOK || err != nil {
		t.Fatalf("the node's administrator reads secrets: %d %v", code, err)
	}
	watch, err := d.admin.Get(leader.API + "/api/v1/secrets?watch=1&timeoutSeconds=600")
	must.OK(t, err)
	defer watch.Body.Close()

	cluster.Members(t, c, "remove", "n3")

	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, watch.Body)
		ended <- err
	}()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("a watch that was open before the removal goes on")
	}
	for _, n := range c.Others(n3) {
		cluster.Await(t, 10*time.Second, n.Name+" refuses the administrator of the removed node", func() string {
			resp, err := d.admin.Get(n.API + "/api/v1/secrets?resourceVersion=0")
			if err != nil {
				return err.Error()
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusUnauthorized {
				return resp.Status
			}
			return ""
		})
		conn, err := h.Conn("", n.Peer)
		must.OK(t, err)
		if _, err := proto.NewPeerClient(conn).Status(t.Context(), &proto.StatusRequest{}); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s answers a removed node: %v", n.Name, err)
		}
	}
	if err := grant(t.Context(), calls); err == nil {
		t.Error("a removed node's proposal was taken")
	}
	if err := grant(t.Context(), proto.NewPeerClient(conn)); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a removed node's proposal on the connection from before: %v", err)
	}
	stream, err := h.Layer().DialNode("", leader.Peer, 5*time.Second)
	if err == nil {
		_ = stream.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := stream.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
			t.Errorf("a Raft stream of a removed node stays open: %v", err)
		}
		stream.Close()
	}
	// The others go on.
	leader.Kubectl(t, "create", "configmap", "after")
}

// TestRemovedNodeServesNothing: a node that was removed refuses, ends what is open, and
// ends; started again it says why it does not start. So does one that was away when it
// was removed.
func TestRemovedNodeServesNothing(t *testing.T) {
	c := cluster.Start(t, 3)
	n1, n2, n3 := c.Nodes()[0], c.Nodes()[1], c.Nodes()[2]
	n1.Kubectl(t, "create", "secret", "generic", "s", "--from-literal=a=b")
	c.Kill(t, n3)
	cluster.Members(t, c, "remove", "n3")
	for _, when := range []string{"after it was away", "once it knows"} {
		out, err := c.TryQuorate(t, "dev", "start", "n3", "--data-dir", c.Dir)
		if err == nil {
			// It was ready before it was told.
			cluster.Await(t, 20*time.Second, "n3 ends", func() string {
				if c.Node(t, "n3").Running() {
					return "it runs"
				}
				return ""
			})
		} else if !strings.Contains(out, "was removed from the cluster") {
			t.Errorf("%s: %s", when, out)
		}
		if n3.Running() {
			t.Errorf("%s: it runs", when)
		}
	}
	log, err := os.ReadFile(n3.Log)
	must.OK(t, err)
	if n := strings.Count(string(log), "THIS NODE WAS REMOVED FROM THE CLUSTER"); n != 1 {
		t.Errorf("its log says it %d times", n)
	}

	if c.Leader(t, n1, n2) == n2 {
		cluster.Members(t, c, "transfer-leader", "n1")
	}
	watch, err := n2.HTTP(t).Get(n2.API + "/api/v1/secrets?watch=1&timeoutSeconds=600")
	must.OK(t, err)
	defer watch.Body.Close()
	cluster.Members(t, c, "remove", "n2")
	began := time.Now()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, watch.Body)
	}()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("a watch of the removed node goes on")
	}
	cluster.Await(t, 20*time.Second, "n2 ends", func() string {
		if body, resp, err := n2.Get(t, "/api/v1/secrets?resourceVersion=0"); err == nil && resp.StatusCode != http.StatusServiceUnavailable {
			return fmt.Sprintf("it answers %s %s", resp.Status, body)
		}
		if n2.Running() {
			return "it runs"
		}
		return ""
	})
	t.Logf("the removed node had ended after %v", time.Since(began))
	n1.Kubectl(t, "create", "configmap", "after")
}
