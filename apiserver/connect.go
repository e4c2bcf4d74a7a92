package apiserver

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/backends/kubelet"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/wire/request"
	"github.com/quorate/quorate/apiserver/wire/status"
	"github.com/quorate/quorate/consistency"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// connection is what a path does that leads to a node or a Pod.
type connection struct {
	// kind is that of the options that plugins are asked about, "" if nobody is asked: logs are read.
	kind    string
	methods []string
	// options reads them from a query.
	options func(q query, name string) (runtime.Object, error)
	// proxies: what is behind the subresource in the path is one of what it leads to.
	proxies bool
	// creates: the client needs the permission to create it, whatever its method: a WebSocket is
	// opened by GET, and the right to read Pods is none to run commands in them.
	creates bool
	serve   func(s *stream, options runtime.Object) error
}

var (
	reads    = []string{http.MethodGet}
	upgrades = []string{http.MethodGet, http.MethodPost}
	proxied  = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodHead, http.MethodOptions}
)

// connections are all of them, by the resource's CodeName and the subresource.
var connections = map[string]*connection{
	"pods/log":         {methods: reads, options: logOptions, serve: (*stream).log},
	"pods/exec":        {kind: "PodExecOptions", methods: upgrades, options: execOptions, creates: true, serve: (*stream).exec},
	"pods/attach":      {kind: "PodAttachOptions", methods: upgrades, options: attachOptions, creates: true, serve: (*stream).attach},
	"pods/portforward": {kind: "PodPortForwardOptions", methods: upgrades, options: portForwardOptions, creates: true, serve: (*stream).portForward},
	"pods/proxy":       {kind: "PodProxyOptions", methods: proxied, options: podProxyOptions, proxies: true, serve: (*stream).toPod},
	"nodes/proxy":      {kind: "NodeProxyOptions", methods: proxied, options: nodeProxyOptions, proxies: true, serve: (*stream).toNode},
	"services/proxy":   {kind: "ServiceProxyOptions", methods: proxied, options: serviceProxyOptions, proxies: true, serve: (*stream).toService},
}

// connectionOf is what a request's path does, nil if it leads nowhere.
func connectionOf(o *objects.Op) *connection {
	if o.Subresource == nil || o.Info.Name == "" {
		return nil
	}
	return connections[o.Resource.CodeName()+"/"+o.Subresource.Name]
}

// connect serves what leads to a node or a Pod. Plugins are asked before the connection is made, as
// upstream asks them. Everything is decided with the request's seats; then they are given back, for what
// follows is the work of others.
func (c verbs) connect(to *connection) error {
	if !slices.Contains(to.methods, c.r.Method) {
		return status.NoSuchMethod()
	}
	if c.Info.Trailing() != "" && !to.proxies {
		return status.NoSuchResource()
	}
	all := c.Context
	decide, cancel := context.WithTimeout(all, c.cfg.Limits.Request)
	defer cancel()
	c.Context = decide
	q := query{c.r.URL.Query()}
	if to.kind != "" && len(q.Values["dryRun"]) > 0 {
		return status.BadRequest("dryRun is not supported")
	}
	if to.proxies {
		q.Set("path", proxyPath(&c.Info))
	}
	options, err := to.options(q, c.Info.Name)
	if err != nil {
		return err
	}
	if to.kind != "" {
		if err := c.AdmitConnect(corev1.SchemeGroupVersion.WithKind(to.kind), options); err != nil {
			return err
		}
	}
	if c.cfg.Kubelets == nil {
		return notImplemented(c.Resource.GroupResource(), c.Info.Subresource)
	}
	// As fresh as any other get: a Pod may have been bound through another node a moment ago, and the
	// right to get into it taken away.
	if _, err := c.await(decide, consistency.Plan{Mode: consistency.MostRecent}); err != nil {
		return err
	}
	if to.creates {
		if err := c.s.mayCreate(&c.Op); err != nil {
			return err
		}
	}
	s, err := c.s.streams.enter(c.call, all)
	if err != nil {
		return err
	}
	defer s.leave()
	return to.serve(s, options)
}

// proxyPath is what follows the subresource in the path, as upstream reads it.
func proxyPath(i *request.Info) string {
	path := strings.TrimRight(i.Trailing(), "/")
	if path != "" {
		path = "/" + path
	}
	if strings.HasSuffix(i.Path, "/") {
		path += "/"
	}
	return path
}

// mayCreate refuses a user who may not create what the request has another verb for.
func (s *Server) mayCreate(o *objects.Op) error {
	if o.Info.Verb == "create" {
		return nil // that was asked
	}
	attributes := o.Attributes()
	attributes.Verb = "create"
	decision, reason, err := s.cfg.Authorizer.Authorize(o.Context, attributes)
	if decision == auth.Allow {
		return nil
	}
	if err != nil {
		s.cfg.Log.Error("authorization is incomplete", "err", err, "user", o.User.Name)
	}
	return apierrors.NewForbidden(o.Resource.GroupResource(), o.Info.Name, errorText(reason))
}

// errorText is an error that says just this.
type errorText string

// Error implements error.
func (e errorText) Error() string { return string(e) }

// find reads an object that the request leads through, from the state that it has waited for. found is
// false if it is not there.
func (s *stream) find(resource, namespace, name string, into any) (found bool, err error) {
	res := s.cfg.Kinds().Lookup(corev1.SchemeGroupVersion.WithResource(resource))
	plan := consistency.Plan{Mode: consistency.Any} // await has been called
	v, _, err := s.s.objects.Find(kinds.BuiltinTable(res.GroupResource()), res.Key(namespace, name), plan, 0)
	if err != nil || v == nil {
		return false, err
	}
	return true, objects.Typed(res, v, into)
}

// read is find of what must be there. Upstream says of whatever is missing on the way that it is of the resource that
// was asked for.
func (s *stream) read(resource, namespace, name string, into any) error {
	found, err := s.find(resource, namespace, name, into)
	if err == nil && !found {
		err = status.NotFound(s.Resource.GroupResource(), name)
	}
	return err
}

// kubeletOf finds the kubelet of a node.
func (s *stream) kubeletOf(node string) (kubelet.Kubelet, error) {
	n := new(corev1.Node)
	if err := s.read("nodes", "", node, n); err != nil {
		return kubelet.Kubelet{}, err
	}
	k, err := s.cfg.Kubelets.Of(n)
	if err != nil {
		return k, asUpstream(err)
	}
	return k, nil
}

// kubeletWith finds the kubelet that runs a Pod.
func (s *stream) kubeletWith(pod *corev1.Pod) (kubelet.Kubelet, error) {
	if err := kubelet.Assigned(pod); err != nil {
		return kubelet.Kubelet{}, err
	}
	return s.kubeletOf(pod.Spec.NodeName)
}

// asUpstream is an error that is no Status, as upstream hands it to clients: its text.
func asUpstream(err error) error {
	if _, is := err.(apierrors.APIStatus); is {
		return err
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error(),
	}}
}
