package builtin

import (
	"fmt"

	"github.com/quorate/quorate/apiserver/tree"
)

// containerPort is one with its place.
type containerPort struct {
	kind             string
	container, port  int
	name, hostIP     string
	hostPort, number int64
	protocol         string
}

func (p *containerPort) path(at string) string {
	return fmt.Sprintf("%sspec.%s[%d].ports[%d]", at, p.kind, p.container, p.port)
}

// portKey is what two ports have in common that may be in each other's way.
type portKey struct {
	number   int64
	protocol string
}

// maxPortsCompared bounds with how many others of the same number one port is compared: a Pod
// may have any number of them, and the time must not grow with its square.
const maxPortsCompared = 100

// ports finds ports that are the same, or half so, and names that two ports have.
func (w *podWarnings) ports() {
	var all []containerPort
	w.eachContainer(func(kind string, i int, c tree.Object) {
		for j, p := range tree.List(c["ports"]) {
			p := tree.As(p)
			port := containerPort{kind: kind, container: i, port: j, name: tree.Text(p, "name"), hostIP: tree.Text(p, "hostIP"), protocol: tree.Text(p, "protocol")}
			port.hostPort, _ = tree.Int(p["hostPort"])
			port.number, _ = tree.Int(p["containerPort"])
			all = append(all, port)
		}
	})
	if len(all) == 1 {
		w.hostIP(&all[0])
	}
	if len(all) < 2 {
		return
	}
	places := make(map[portKey][]*containerPort, len(all))
	for i := 0; i < len(all) && !w.full(); i++ {
		p := &all[i]
		w.hostIP(p)
		key := portKey{p.number, p.protocol}
		for _, other := range places[key][:min(len(places[key]), maxPortsCompared)] {
			if how := clash(p, other); how != "" && !w.full() {
				w.add("%s: %s port definition with %s", p.path(""), how, other.path(w.at))
			}
		}
		places[key] = append(places[key], p)
	}
	names := make(map[string]*containerPort, len(all))
	for i := 0; i < len(all) && !w.full(); i++ {
		p := &all[i]
		switch other := names[p.name]; {
		case p.name == "":
		case other != nil:
			first := other.path(w.at)
			w.add("%s: duplicate port name %q with %s, services and probes that select ports by name will use %s", p.path(""), p.name, first, first)
		default:
			names[p.name] = p
		}
	}
}

// hostIP finds an address of the node without a port.
func (w *podWarnings) hostIP(p *containerPort) {
	if p.hostIP != "" && p.hostPort == 0 {
		w.add("%s: hostIP set without hostPort: {Name:%s HostPort:0 ContainerPort:%d Protocol:%s HostIP:%s}", p.path(""), p.name, p.number, p.protocol, p.hostIP)
	}
}

// clash says how two ports of the same number and protocol are in each other's way, if they are.
func clash(a, b *containerPort) string {
	switch {
	case a.hostIP == b.hostIP && a.hostPort == b.hostPort:
		return "duplicate"
	case a.hostPort == 0 || b.hostPort == 0:
		return "overlapping"
	case a.hostPort == b.hostPort && (a.hostIP == "") != (b.hostIP == ""):
		return "dangerously ambiguous"
	}
	return ""
}
