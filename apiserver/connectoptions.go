package apiserver

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/quorate/quorate/apiserver/backends/kubelet"
	"github.com/quorate/quorate/apiserver/types/validation"
	"github.com/quorate/quorate/apiserver/wire/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// query are the parameters of a connection.
type query struct{ url.Values }

func logOptions(q query, pod string) (runtime.Object, error) {
	return validation.PodLogOptions(q.Values, pod)
}

func execOptions(q query, _ string) (runtime.Object, error) {
	return &corev1.PodExecOptions{Stdin: q.is("stdin"), Stdout: q.is("stdout"), Stderr: q.is("stderr"), TTY: q.is("tty"), Container: q.Get("container"), Command: q.Values["command"]}, nil
}

func attachOptions(q query, _ string) (runtime.Object, error) {
	return &corev1.PodAttachOptions{Stdin: q.is("stdin"), Stdout: q.is("stdout"), Stderr: q.is("stderr"), TTY: q.is("tty"), Container: q.Get("container")}, nil
}

func portForwardOptions(q query, _ string) (runtime.Object, error) {
	ports, err := q.ports()
	return &corev1.PodPortForwardOptions{Ports: ports}, err
}

func podProxyOptions(q query, _ string) (runtime.Object, error) {
	return &corev1.PodProxyOptions{Path: q.Get("path")}, nil
}

func nodeProxyOptions(q query, _ string) (runtime.Object, error) {
	return &corev1.NodeProxyOptions{Path: q.Get("path")}, nil
}

func serviceProxyOptions(q query, _ string) (runtime.Object, error) {
	return &corev1.ServiceProxyOptions{Path: q.Get("path")}, nil
}

// is reads a flag as upstream does: it is set if it is there and neither 0 nor false.
func (q query) is(name string) bool {
	v, ok := q.Values[name]
	return ok && len(v) > 0 && v[0] != "0" && !strings.EqualFold(v[0], "false")
}

// ports reads numbers, several of them in one value as well.
func (q query) ports() (out []int32, err error) {
	for _, v := range q.Values["ports"] {
		for one := range strings.SplitSeq(v, ",") {
			n, err := strconv.ParseUint(one, 10, 16)
			if err != nil {
				return nil, status.BadRequest("cannot convert to []int32: %.200s", err.Error())
			}
			out = append(out, int32(n))
		}
	}
	return out, nil
}

// streamParameters are those by which a kubelet knows which streams are wanted.
func streamParameters(wanted kubelet.Streams, command []string) url.Values {
	q := url.Values{}
	for name, set := range map[string]bool{
		corev1.ExecStdinParam: wanted.Stdin, corev1.ExecStdoutParam: wanted.Stdout, corev1.ExecStderrParam: wanted.Stderr, corev1.ExecTTYParam: wanted.Tty,
	} {
		if set {
			q.Set(name, "1")
		}
	}
	if len(command) > 0 {
		q["command"] = command
	}
	return q
}
