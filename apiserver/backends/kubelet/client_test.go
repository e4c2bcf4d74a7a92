package kubelet

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"testing"

	"github.com/quorate/quorate/apiserver/backends/egress"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/internal/standins"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestTunneledNodes: a Node that has opened a tunnel is asked through it, also if it says that it has the
// address of another, and no connection to it is ever used for that other.
func TestTunneledNodes(t *testing.T) {
	at := map[string]string{}
	for _, name := range []string{"honest", "liar"} {
		s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) }))
		t.Cleanup(s.Close)
		at[name] = s.Listener.Addr().String()
	}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		if named := egress.NodeFrom(ctx); named != "" {
			address = at[named]
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	tunneled := map[string]bool{"liar": true}
	c := New(Config{Dial: dial, DialAllowed: dial, AddressTypes: []string{"InternalIP"}, Tunneled: func(node string) bool { return tunneled[node] }})
	t.Cleanup(c.Close)
	host, port, _ := net.SplitHostPort(at["honest"])
	number, _ := strconv.Atoi(port)
	kubelet := func(name string) Kubelet {
		t.Helper()
		k, err := c.Of(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: corev1.NodeStatus{
				Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: host}},
				DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(number)}},
			},
		})
		must.OK(t, err)
		return k
	}
	for _, name := range []string{"honest", "liar", "honest", "liar", "liar", "honest"} {
		l := c.At(kubelet(name), nil, "x")
		for what, l := range map[string]Location{"verified": l, "unverified": c.Unverified(l)} {
			body, err := c.Get(t.Context(), l, schema.GroupResource{}, "")
			must.OK(t, err)
			text, _ := io.ReadAll(body)
			_ = body.Close()
			if string(text) != name {
				t.Errorf("%s, %s: %q has answered", name, what, text)
			}
		}
		to, over := c.upgrading(l)
		conn, err := over.DialContext(t.Context(), "tcp", to.Host)
		must.OK(t, err)
		if conn.RemoteAddr().String() != at[name] {
			t.Errorf("%s: an upgrade goes to %s", name, conn.RemoteAddr())
		}
		_ = conn.Close()
	}
	// The other end of a tunnel dials itself only, so what a Node says of its address is not looked at.
	if l, err := c.Node(t.Context(), kubelet("liar"), ID{Name: "liar"}); err != nil || l.node != "liar" {
		t.Errorf("nodes/proxy through a tunnel: %+v, %v", l, err)
	}
	for _, id := range []ID{{Name: "honest"}, {Name: "liar", Port: "1"}} {
		if _, err := c.Node(t.Context(), kubelet(id.Name), id); err == nil {
			t.Errorf("nodes/proxy to port %q of %s at a loopback address: allowed", id.Port, id.Name)
		}
	}
}

// TestDialAllowed: a name that was allowed may be a forbidden address when it is dialled.
func TestDialAllowed(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	at, _ := url.Parse(s.URL)
	for _, host := range []string{"127.0.0.1", "localhost"} {
		if conn, err := DialAllowed(t.Context(), "tcp", net.JoinHostPort(host, at.Port())); err == nil {
			_ = conn.Close()
			t.Errorf("%s was dialled", host)
		}
	}
}

// TestAddressesOfNodes: what a kubelet writes as its address is one, or is refused.
func TestAddressesOfNodes(t *testing.T) {
	c := New(Config{})
	for address, good := range map[string]bool{
		"10.1.2.3": true, "fd00::1": true, "worker-1.example.com": true, "worker_1": true,
		"bad host/": false, "[::1": false, "a@b": false, "127.0.0.1:10250": false, "127.0.0.1?x": false, "127.0.0.1/../x": false, "a#b": false, "\n": false,
	} {
		n := &corev1.Node{Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}}}
		k, err := c.Of(n)
		if (err == nil) != good || good && k.Host != address {
			t.Errorf("%q: %v, %v", address, k, err)
		}
	}
}

// TestEndlessRefusal: what is held of a kubelet's refusal does not grow with it.
func TestEndlessRefusal(t *testing.T) {
	var endless standins.Endless
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.Copy(w, &endless)
	}))
	t.Cleanup(s.Close)
	at, err := url.Parse(s.URL)
	must.OK(t, err)
	l := Location{URL: at, way: way{kept: new(http.Transport)}}
	if _, err := new(Client).Get(t.Context(), l, schema.GroupResource{}, "x"); err == nil || endless.Taken() > 32<<20 || len(err.Error()) > maxErrorText+1000 {
		t.Errorf("%d bytes were taken: %.200v", endless.Taken(), err)
	}
}
