package printers

import (
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/quorate/quorate/apiserver/types/tree"
)

// balancerAddresses of a loadBalancer status: addresses, or names where there
// are none.
func balancerAddresses(v any) string {
	var out []string
	for _, i := range items(v, "ingress") {
		if ip := tree.Scalar(get(i, "ip")); ip != "" {
			out = append(out, ip)
		} else if host := tree.Scalar(get(i, "hostname")); host != "" {
			out = append(out, host)
		}
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), ",")
}

func serviceExternalIP(v any) any {
	external := texts(get(v, "spec", "externalIPs"))
	switch tree.Scalar(get(v, "spec", "type")) {
	case "ClusterIP", "NodePort":
		if len(external) > 0 {
			return strings.Join(external, ",")
		}
		return none
	case "LoadBalancer":
		if ips := balancerAddresses(get(v, "status", "loadBalancer")); ips != "" {
			external = append(strings.Split(ips, ","), external...)
		}
		if len(external) > 0 {
			return strings.Join(external, ",")
		}
		return "<pending>"
	case "ExternalName":
		return tree.Scalar(get(v, "spec", "externalName"))
	}
	return unknown
}

func servicePorts(v any) any {
	var out []string
	for _, p := range items(v) {
		s := tree.Scalar(get(p, "port"))
		if node := integer(get(p, "nodePort")); node > 0 {
			s += ":" + strconv.FormatInt(node, 10)
		}
		out = append(out, s+"/"+tree.Scalar(get(p, "protocol")))
	}
	if len(out) == 0 {
		return none
	}
	return strings.Join(out, ",")
}

func endpointAddresses(v any) any {
	subsets := items(v)
	if len(subsets) == 0 {
		return none
	}
	var out []string
	for _, s := range subsets {
		addresses, ports := items(s, "addresses"), items(s, "ports")
		for _, p := range ports {
			for _, a := range addresses {
				out = append(out, net.JoinHostPort(tree.Scalar(get(a, "ip")), tree.Scalar(get(p, "port"))))
			}
		}
		if len(ports) == 0 {
			for _, a := range addresses {
				out = append(out, tree.Scalar(get(a, "ip")))
			}
		}
	}
	return shorten(out, 3)
}

func slicePorts(v any) any {
	var out []string
	for _, p := range items(v) {
		port := get(p, "port")
		if port == nil {
			port = get(p, "name")
		}
		if port == nil {
			port = "*"
		}
		out = append(out, tree.Scalar(port))
	}
	return textElse(shorten(out, 3), unset)
}

func sliceAddresses(v any) any {
	var out []string
	for _, e := range items(v) {
		out = append(out, texts(get(e, "addresses"))...)
	}
	return textElse(shorten(out, 3), unset)
}

func ingressClass(v any) any {
	if name := get(v, "spec", "ingressClassName"); name != nil {
		return tree.Scalar(name)
	}
	return none
}

func ingressHosts(v any) any {
	var out []string
	for _, r := range items(v) {
		if host := tree.Scalar(get(r, "host")); host != "" {
			out = append(out, host)
		}
	}
	if len(out) == 0 {
		return "*"
	}
	return shorten(out, 3)
}

func ingressParameters(v any) any {
	if v == nil {
		return none
	}
	kind := tree.Scalar(get(v, "kind"))
	if group := get(v, "apiGroup"); group != nil {
		kind += "." + tree.Scalar(group)
	}
	return kind + "/" + tree.Scalar(get(v, "name"))
}

func parentOf(v any) any {
	if v == nil {
		return none
	}
	s := tree.Scalar(get(v, "resource"))
	if group := tree.Scalar(get(v, "group")); group != "" {
		s += "." + group
	}
	s = strings.ToLower(s)
	if namespace := tree.Scalar(get(v, "namespace")); namespace != "" {
		s += "/" + namespace
	}
	return s + "/" + tree.Scalar(get(v, "name"))
}
