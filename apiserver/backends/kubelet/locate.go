package kubelet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/quorate/quorate/apiserver/backends/egress"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	netutils "k8s.io/utils/net"
)

// Kubelet is where one is.
type Kubelet struct {
	Host, Port string
	node       string
	// webSockets says that it takes WebSockets itself, as its Node declares.
	webSockets bool
}

// extendWebSockets is the feature by which a Node says that its kubelet translates WebSockets.
const extendWebSockets = "ExtendWebSocketsToKubelet"

// Of says where the kubelet of a Node is. Errors: upstream's, for a Node without a fitting address; one of our
// own for an address that is none: the kubelet has written it, and upstream's library panics by some.
func (c *Client) Of(node *corev1.Node) (Kubelet, error) {
	host := ""
	for _, wanted := range c.types {
		at := slices.IndexFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return string(a.Type) == wanted })
		if at >= 0 {
			host = node.Status.Addresses[at].Address
			break
		}
	}
	if host == "" {
		return Kubelet{}, fmt.Errorf("no preferred addresses found; known addresses: %v", node.Status.Addresses)
	}
	port := int(node.Status.DaemonEndpoints.KubeletEndpoint.Port)
	if port <= 0 {
		port = DefaultPort
	}
	if !isHost(host) {
		return Kubelet{}, fmt.Errorf("address %.100q in the status of node %q is neither an IP address nor the name of a host", host, node.Name)
	}
	return Kubelet{Host: host, Port: strconv.Itoa(port), node: node.Name, webSockets: slices.Contains(node.Status.DeclaredFeatures, extendWebSockets)}, nil
}

// isHost reports whether a URL can have a host.
func isHost(host string) bool {
	u := url.URL{Scheme: "https", Host: net.JoinHostPort(host, "1")}
	read, err := url.Parse(u.String())
	return err == nil && read.Hostname() == host && read.Port() == "1"
}

// Location is where a request goes, and by what.
type Location struct {
	URL *url.URL
	way way
	// node is the Node whose tunnel leads there; empty: none does.
	node string
	// webSockets: what is there takes WebSockets itself.
	webSockets bool
}

// RoundTrip implements http.RoundTripper.
func (l Location) RoundTrip(r *http.Request) (*http.Response, error) {
	return l.transport().RoundTrip(r.WithContext(l.named(r.Context())))
}

func (l Location) transport() *http.Transport {
	if l.node != "" {
		return l.way.once
	}
	return l.way.kept
}

// named tells the dialer whose tunnel to take.
func (l Location) named(ctx context.Context) context.Context {
	if l.node == "" {
		return ctx
	}
	return egress.WithNode(ctx, l.node)
}

// through is the Node of a kubelet if it has opened a tunnel.
func (c *Client) through(k Kubelet) string {
	if k.node == "" || !c.tunneled(k.node) {
		return ""
	}
	return k.node
}

// Container chooses the container that a request is for, as upstream does. Errors: upstream's.
func Container(pod *corev1.Pod, name string) (string, error) {
	all := containers(pod)
	switch {
	case name != "":
		if !slices.Contains(all, name) {
			return "", apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", name, pod.Name))
		}
		return name, nil
	case len(pod.Spec.Containers) == 1:
		return pod.Spec.Containers[0].Name, nil
	case len(pod.Spec.Containers) == 0:
		return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s", pod.Name))
	}
	return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s, choose one of: %s", pod.Name, all))
}

// containers are all names, in upstream's order.
func containers(pod *corev1.Pod) (names []string) {
	for i := range pod.Spec.InitContainers {
		names = append(names, pod.Spec.InitContainers[i].Name)
	}
	for i := range pod.Spec.Containers {
		names = append(names, pod.Spec.Containers[i].Name)
	}
	for i := range pod.Spec.EphemeralContainers {
		names = append(names, pod.Spec.EphemeralContainers[i].Name)
	}
	return names
}

// Assigned refuses a Pod that is on no node, in upstream's words.
func Assigned(pod *corev1.Pod) error {
	if pod.Spec.NodeName == "" {
		return apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", pod.Name))
	}
	return nil
}

// At is a path of a kubelet's own API.
func (c *Client) At(k Kubelet, query url.Values, path ...string) Location {
	return Location{way: c.kubelets, node: c.through(k), webSockets: k.webSockets, URL: &url.URL{
		Scheme: "https", Host: net.JoinHostPort(k.Host, k.Port), Path: "/" + strings.Join(path, "/"), RawQuery: query.Encode(),
	}}
}

// Unverified is the same without a look at the kubelet's certificate.
func (c *Client) Unverified(l Location) Location {
	l.way = c.unverified
	return l
}

// ID is what a path names that proxies: NAME, NAME:PORT or SCHEME:NAME:PORT.
type ID struct{ Scheme, Name, Port string }

// ParseID reads one. what is for the error.
func ParseID(what, id string) (ID, error) {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(id)
	if !ok {
		return ID{}, apierrors.NewBadRequest(fmt.Sprintf("invalid %s request %q", what, id))
	}
	return ID{scheme, name, port}, nil
}

// Pod is where a request to a Pod goes: to the port that it names, or to the Pod's first.
func (c *Client) Pod(pod *corev1.Pod, id ID) (Location, error) {
	port := id.Port
	for i := 0; port == "" && i < len(pod.Spec.Containers); i++ {
		if ports := pod.Spec.Containers[i].Ports; len(ports) > 0 {
			port = strconv.Itoa(int(ports[0].ContainerPort))
		}
	}
	address := ""
	if len(pod.Status.PodIPs) > 0 {
		address = pod.Status.PodIPs[0].IP
	}
	if !allowed(address) {
		return Location{}, apierrors.NewBadRequest(errNotAllowed.Error())
	}
	return c.toPod(id.Scheme, address, port), nil
}

// toPod is a port of an address; "": that of the scheme.
func (c *Client) toPod(scheme, address, port string) Location {
	host := net.JoinHostPort(address, port)
	if port == "" {
		host = strings.TrimSuffix(host, ":")
	}
	return Location{way: c.pods, URL: &url.URL{Scheme: scheme, Host: host}}
}

// allowed reports whether an address may be proxied to: loopback, link-local and the like are this
// machine's own.
func allowed(address string) bool {
	ip := netutils.ParseIPSloppy(address)
	return ip != nil && ip.IsGlobalUnicast()
}

// Node is where a request to a Node goes: to its kubelet, unless it names another port.
func (c *Client) Node(ctx context.Context, k Kubelet, id ID) (Location, error) {
	kubelet := id.Port == "" || id.Port == k.Port
	at := Location{way: c.nodes, URL: &url.URL{Scheme: "https", Host: net.JoinHostPort(k.Host, k.Port)}}
	if at.node = c.through(k); kubelet && at.node != "" {
		return at, nil // the other end of the tunnel knows its name, and dials nothing but itself
	}
	addresses, err := net.DefaultResolver.LookupIPAddr(ctx, k.Host)
	switch {
	case err != nil:
		return Location{}, apierrors.NewBadRequest(err.Error())
	case len(addresses) == 0:
		return Location{}, apierrors.NewBadRequest("no addresses for hostname")
	}
	for _, a := range addresses {
		if !a.IP.IsGlobalUnicast() {
			return Location{}, apierrors.NewBadRequest(errNotAllowed.Error())
		}
	}
	if kubelet {
		return at, nil
	}
	return c.toPod(id.Scheme, k.Host, id.Port), nil
}

// ServicePort finds the name of the port that a request to a Service names by its number.
func ServicePort(svc *corev1.Service, number int64) (string, error) {
	for i := range svc.Spec.Ports {
		if int64(svc.Spec.Ports[i].Port) == number {
			return svc.Spec.Ports[i].Name, nil
		}
	}
	return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %d found for service %q", number, svc.Name))
}

// Service is where a request to a Service goes: to an address, chosen at random, of one of its Pods.
// port is the name of the port, and pod reads a Pod of the Service's namespace, nil if there is none:
// those who write Endpoints must not reach more than Pods.
//
//lint:ignore SA1019 upstream chooses by Endpoints, and services without selectors have nothing else
func (c *Client) Service(id, scheme, port string, endpoints *corev1.Endpoints, pod func(name string) (*corev1.Pod, error)) (Location, error) {
	subsets := endpoints.Subsets
	if len(subsets) == 0 {
		return Location{}, apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", endpoints.Name))
	}
	for s, first := 0, rand.IntN(len(subsets)); s < len(subsets); s++ {
		subset := &subsets[(first+s)%len(subsets)]
		at := slices.IndexFunc(subset.Ports, func(p corev1.EndpointPort) bool { return p.Name == port })
		if at < 0 || len(subset.Addresses) == 0 {
			continue
		}
		for a, first := 0, rand.IntN(len(subset.Addresses)); a < min(len(subset.Addresses), maxTries); a++ {
			address := &subset.Addresses[(first+a)%len(subset.Addresses)]
			ok, err := ofPod(address, endpoints.Namespace, pod)
			if err != nil {
				return Location{}, err
			}
			if ok {
				return c.toPod(scheme, address.IP, strconv.Itoa(int(subset.Ports[at].Port))), nil
			}
		}
	}
	return Location{}, apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", id))
}

// maxTries bounds the Pods that are read for one request: Endpoints may name a thousand that
// are not there.
const maxTries = 100

// ofPod reports whether an address is that of the Pod that it names.
func ofPod(address *corev1.EndpointAddress, namespace string, pod func(name string) (*corev1.Pod, error)) (bool, error) {
	if address.TargetRef == nil || address.TargetRef.Namespace != namespace || !allowed(address.IP) {
		return false, nil
	}
	p, err := pod(address.TargetRef.Name)
	if err != nil || p == nil {
		return false, err
	}
	return slices.ContainsFunc(p.Status.PodIPs, func(ip corev1.PodIP) bool { return ip.IP == address.IP }), nil
}
