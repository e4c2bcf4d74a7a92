package apiserver

import (
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/quorate/quorate/apiserver/backends/kubelet"
	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/apiserver/wire/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// pod reads the Pod that the path names.
func (s *stream) pod(name string) (*corev1.Pod, error) {
	p := new(corev1.Pod)
	return p, s.read("pods", s.Info.Namespace, name, p)
}

// log serves the log of a container.
func (s *stream) log(options runtime.Object) error {
	if _, err := s.format(s.Resource, codec.ShapeObject); err != nil {
		if strings.Contains(s.r.Header.Get("Accept"), "text/plain") {
			// It is what a log is, and upstream refuses it all the same, in other words.
			err = status.NotAcceptable([]string{codec.JSON, codec.YAML, codec.Protobuf})
		}
		return err
	}
	o := options.(*corev1.PodLogOptions)
	pod, err := s.pod(s.Info.Name)
	if err != nil {
		return err
	}
	container, err := kubelet.Container(pod, o.Container)
	if err != nil {
		return err
	}
	if pod.Spec.NodeName == "" {
		s.call.WriteHeader(http.StatusNoContent) // as upstream: there is no log yet
		return nil
	}
	k, err := s.kubeletOf(pod.Spec.NodeName)
	if err != nil {
		return err
	}
	at := s.cfg.Kubelets.At(k, logQuery(o), "containerLogs", pod.Namespace, pod.Name, container)
	if o.InsecureSkipTLSVerifyBackend {
		at = s.cfg.Kubelets.Unverified(at)
	}
	s.begin()
	body, err := s.cfg.Kubelets.Get(s.ctx, at, schema.GroupResource{Resource: "pods/log"}, s.Info.Name)
	if err != nil {
		return asUpstream(err)
	}
	defer body.Close()
	if wsstream.IsWebSocketRequest(s.r) && s.r.ProtoMajor == 1 && s.r.ContentLength == 0 {
		_ = wsstream.NewReader(body, true, wsstream.NewDefaultReaderProtocols()).Copy(s, s.r.WithContext(s.ctx)) // the client has gone
		return nil
	}
	return s.copyLog(body, o.Follow)
}

// logQuery is what the kubelet is asked for.
func logQuery(o *corev1.PodLogOptions) url.Values {
	q := url.Values{}
	for name, set := range map[string]bool{"follow": o.Follow, "previous": o.Previous, "timestamps": o.Timestamps} {
		if set {
			q.Set(name, "true")
		}
	}
	for name, n := range map[string]*int64{"sinceSeconds": o.SinceSeconds, "tailLines": o.TailLines, "limitBytes": o.LimitBytes} {
		if n != nil {
			q.Set(name, strconv.FormatInt(*n, 10))
		}
	}
	if o.SinceTime != nil {
		q.Set("sinceTime", o.SinceTime.Format(time.RFC3339))
	}
	return q
}

// logBuffer is how much of a log is on its way here, in bytes.
const logBuffer = 8 << 10

// copyLog sends a log as it comes. One that breaks off at the kubelet's side does so at the client's: what was left out
// must not look like the end.
func (s *stream) copyLog(body io.Reader, follow bool) error {
	s.Header().Set("Content-Type", "text/plain")
	s.call.WriteHeader(http.StatusOK)
	s.Flush()
	b := make([]byte, logBuffer)
	for {
		n, err := body.Read(b)
		if n > 0 {
			if _, err := s.Write(b[:n]); err != nil {
				return nil // the client has gone
			}
			if follow {
				s.Flush()
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			panic(http.ErrAbortHandler)
		}
	}
}

// exec runs a command in a container.
func (s *stream) exec(options runtime.Object) error {
	o := options.(*corev1.PodExecOptions)
	return s.inContainer("exec", o.Container, kubelet.Streams{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.TTY}, o.Command)
}

// attach joins the streams of a container.
func (s *stream) attach(options runtime.Object) error {
	o := options.(*corev1.PodAttachOptions)
	return s.inContainer("attach", o.Container, kubelet.Streams{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.TTY}, nil)
}

func (s *stream) inContainer(what, container string, wanted kubelet.Streams, command []string) error {
	pod, err := s.pod(s.Info.Name)
	if err != nil {
		return err
	}
	if container, err = kubelet.Container(pod, container); err != nil {
		return err
	}
	k, err := s.kubeletWith(pod)
	if err != nil {
		return err
	}
	at := s.cfg.Kubelets.At(k, streamParameters(wanted, command), what, pod.Namespace, pod.Name, container)
	return s.run(s.cfg.Kubelets.Exec(at, wanted, s))
}

// portForward carries connections to a Pod.
func (s *stream) portForward(options runtime.Object) error {
	pod, err := s.pod(s.Info.Name)
	if err != nil {
		return err
	}
	k, err := s.kubeletWith(pod)
	if err != nil {
		return err
	}
	q := url.Values{}
	if ports := options.(*corev1.PodPortForwardOptions).Ports; len(ports) > 0 {
		texts := make([]string, len(ports))
		for i, p := range ports {
			texts[i] = strconv.Itoa(int(p))
		}
		q.Set(corev1.PortHeader, strings.Join(texts, ","))
	}
	at := s.cfg.Kubelets.At(k, q, "portForward", pod.Namespace, pod.Name)
	return s.run(s.cfg.Kubelets.PortForward(at, s))
}

// toPod proxies to a port of a Pod.
func (s *stream) toPod(options runtime.Object) error {
	return s.proxy("pod", options.(*corev1.PodProxyOptions).Path, func(id kubelet.ID) (kubelet.Location, error) {
		pod, err := s.pod(id.Name)
		if err != nil {
			return kubelet.Location{}, err
		}
		return s.cfg.Kubelets.Pod(pod, id)
	})
}

// toNode proxies to a kubelet, or to another port of its node.
func (s *stream) toNode(options runtime.Object) error {
	return s.proxy("node", options.(*corev1.NodeProxyOptions).Path, func(id kubelet.ID) (kubelet.Location, error) {
		k, err := s.kubeletOf(id.Name)
		if err != nil {
			return kubelet.Location{}, err
		}
		return s.cfg.Kubelets.Node(s.Context, k, id)
	})
}

// toService proxies to one of a Service's Pods.
func (s *stream) toService(options runtime.Object) error {
	return s.proxy("service", options.(*corev1.ServiceProxyOptions).Path, s.service)
}

// service finds one of a Service's Pods.
func (s *stream) service(id kubelet.ID) (kubelet.Location, error) {
	port := id.Port
	if number, err := strconv.ParseInt(id.Port, 10, 64); err == nil {
		svc := new(corev1.Service)
		if err := s.read("services", s.Info.Namespace, id.Name, svc); err != nil {
			return kubelet.Location{}, err
		}
		if port, err = kubelet.ServicePort(svc, number); err != nil {
			return kubelet.Location{}, err
		}
	}
	endpoints := new(corev1.Endpoints) //lint:ignore SA1019 upstream chooses by them
	if err := s.read("endpoints", s.Info.Namespace, id.Name, endpoints); err != nil {
		return kubelet.Location{}, err
	}
	return s.cfg.Kubelets.Service(s.Info.Name, id.Scheme, port, endpoints, func(name string) (*corev1.Pod, error) {
		pod := new(corev1.Pod)
		found, err := s.find("pods", s.Info.Namespace, name, pod)
		if !found {
			return nil, err
		}
		return pod, err
	})
}

// proxy proxies to a path of what the request names.
func (s *stream) proxy(what, path string, find func(kubelet.ID) (kubelet.Location, error)) error {
	id, err := kubelet.ParseID(what, s.Info.Name)
	if err != nil {
		return err
	}
	at, err := find(id)
	if err != nil {
		return err
	}
	return s.run(s.cfg.Kubelets.Proxy(at, path, s.r, s))
}
