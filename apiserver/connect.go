package apiserver

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/quorate/quorate/apiserver/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// connects are the subresources that lead to a node or a Pod, by the kind of the options that
// plugins are asked about, and what reads these from a query. Logs are read, and nobody is asked.
var connects = map[string]struct {
	kind    string
	options func(q query) (runtime.Object, error)
}{
	"pods/attach": {"PodAttachOptions", func(q query) (runtime.Object, error) {
		return &corev1.PodAttachOptions{Stdin: q.is("stdin"), Stdout: q.is("stdout"), Stderr: q.is("stderr"), TTY: q.is("tty"), Container: q.Get("container")}, nil
	}},
	"pods/exec": {"PodExecOptions", func(q query) (runtime.Object, error) {
		return &corev1.PodExecOptions{Stdin: q.is("stdin"), Stdout: q.is("stdout"), Stderr: q.is("stderr"), TTY: q.is("tty"), Container: q.Get("container"), Command: q.Values["command"]}, nil
	}},
	"pods/portforward": {"PodPortForwardOptions", func(q query) (runtime.Object, error) {
		ports, err := q.ports()
		return &corev1.PodPortForwardOptions{Ports: ports}, err
	}},
	"pods/proxy":     {"PodProxyOptions", func(q query) (runtime.Object, error) { return &corev1.PodProxyOptions{Path: q.Get("path")}, nil }},
	"nodes/proxy":    {"NodeProxyOptions", func(q query) (runtime.Object, error) { return &corev1.NodeProxyOptions{Path: q.Get("path")}, nil }},
	"services/proxy": {"ServiceProxyOptions", func(q query) (runtime.Object, error) { return &corev1.ServiceProxyOptions{Path: q.Get("path")}, nil }},
}

// query are the parameters of a connection.
type query struct{ url.Values }

// is reads a flag as upstream does: it is set if it is there and neither 0 nor false.
func (q query) is(name string) bool {
	v, ok := q.Values[name]
	return ok && len(v) > 0 && v[0] != "0" && !strings.EqualFold(v[0], "false")
}

// ports reads numbers, several of them in one value as well.
func (q query) ports() (out []int32, err error) {
	for _, v := range q.Values["ports"] {
		for one := range strings.SplitSeq(v, ",") {
			n, err := strconv.ParseInt(one, 10, 32)
			if err != nil {
				return nil, status.BadRequest("ports: %.40q is no number", one)
			}
			out = append(out, int32(n))
		}
	}
	return out, nil
}

// connect refuses what leads to a node, to which this server makes no connection. Plugins are
// asked before, as upstream asks them before it connects: what a webhook denies is denied.
func (c *call) connect(sub string) error {
	if to, ok := connects[c.Resource.CodeName()+"/"+sub]; ok {
		options, err := to.options(query{c.r.URL.Query()})
		if err != nil {
			return err
		}
		c.Info.ObjectNamespace = c.Info.Namespace
		if err := c.AdmitConnect(corev1.SchemeGroupVersion.WithKind(to.kind), options); err != nil {
			return err
		}
	}
	return withoutKubelet(c.Resource.GroupResource(), sub)
}
