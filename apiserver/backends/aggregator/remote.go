package aggregator

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/view"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
)

// Remote is an APIService whose requests go to a Service. It is immutable and safe for concurrent
// use.
type Remote struct {
	Name string
	Spec apiregistrationv1.APIServiceSpec
	// Available is what its status says, which all nodes say alike.
	Available bool

	stored *mvcc.Version
	server *server
}

// GroupVersion that it serves.
func (r *Remote) GroupVersion() apischema.GroupVersion {
	return apischema.GroupVersion{Group: r.Spec.Group, Version: r.Spec.Version}
}

// serverKey is what the connections to a server depend on.
type serverKey struct {
	namespace, name string
	port            int32
	insecure        bool
	ca              string
}

func keyOf(s *apiregistrationv1.APIServiceSpec) serverKey {
	k := serverKey{s.Service.Namespace, s.Service.Name, 443, s.InsecureSkipTLSVerify, string(s.CABundle)}
	if s.Service.Port != nil {
		k.port = *s.Service.Port
	}
	return k
}

// server is where some APIServices lead, with the connections to it.
type server struct {
	serverKey
	transport *http.Transport
	tls       *tls.Config // for connections that change the protocol: the transport has made its own of it
	err       error       // why there can be no connection
	known     known
}

// Bounds of a connection to a server.
const (
	tlsTimeout      = 10 * time.Second
	idleTimeout     = 90 * time.Second
	idlePerServer   = 25
	maxAnswerHeader = 1 << 20
)

func (a *Aggregator) newServer(k serverKey) *server {
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: k.name + "." + k.namespace + ".svc", InsecureSkipVerify: k.insecure,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return a.cfg.Certificate(), nil // also to one that does not name its authority
		},
	}
	s := &server{serverKey: k}
	if k.ca != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM([]byte(k.ca)) {
			s.err = errors.New("unable to load root certificates: unable to parse bytes as PEM block")
		}
	}
	s.tls = config.Clone()
	s.transport = &http.Transport{
		DialContext: a.cfg.Dial, TLSClientConfig: config, ForceAttemptHTTP2: true, DisableCompression: true,
		TLSHandshakeTimeout: tlsTimeout, IdleConnTimeout: idleTimeout, MaxIdleConnsPerHost: idlePerServer, MaxResponseHeaderBytes: maxAnswerHeader,
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
	return s
}

// usable reports whether requests are sent to the server: the cluster says that it answers, or this
// node knows better.
func (r *Remote) usable() bool { return r.Available || r.server.known.answers() }

// remotes are the APIServices with Services of one state.
type remotes struct {
	all    []*Remote // by name
	byName map[string]*Remote
	of     map[apischema.GroupVersion]*Remote
	// questions are what its servers are asked.
	questions map[*server]*question
}

// follow reads the APIServices of a state; what has not changed is taken over, connections included.
func (a *Aggregator) follow(now view.Reading, was *remotes) (*remotes, error) {
	next := &remotes{byName: map[string]*Remote{}, of: map[apischema.GroupVersion]*Remote{}}
	if t := now.Tables[0]; t != nil {
		page, err := t.Range(mvcc.Query{At: now.At})
		if err != nil {
			return nil, err
		}
		servers := map[serverKey]*server{}
		if was != nil {
			for _, r := range was.all {
				servers[r.server.serverKey] = r.server
			}
		}
		for _, v := range page.Versions {
			r, err := a.read(v, was, servers)
			if err != nil {
				a.cfg.Log.Error("an APIService cannot be read", "name", v.Key, "err", err)
			}
			if r == nil {
				continue
			}
			next.all, next.byName[r.Name] = append(next.all, r), r
			if !a.builtin(r.GroupVersion()) {
				next.of[r.GroupVersion()] = r
			}
		}
	}
	next.questions = questionsOf(next)
	next.closeOthers(was)
	return next, nil
}

// closeOthers closes the idle connections of servers that are nobody's any more.
func (next *remotes) closeOthers(was *remotes) {
	if was == nil {
		return
	}
	used := map[*server]bool{}
	for _, r := range next.all {
		used[r.server] = true
	}
	for _, r := range was.all {
		if !used[r.server] {
			r.server.transport.CloseIdleConnections()
		}
	}
}

// read makes a Remote of what is stored, nil of one without a Service.
func (a *Aggregator) read(v *mvcc.Version, was *remotes, servers map[serverKey]*server) (*Remote, error) {
	if was != nil {
		if r := was.byName[v.Key]; r != nil && r.stored == v {
			return r, nil
		}
	}
	var s apiregistrationv1.APIService
	if err := json.Unmarshal(v.Value(), &s); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	if s.Spec.Service == nil {
		return nil, nil
	}
	k := keyOf(&s.Spec)
	if servers[k] == nil {
		servers[k] = a.newServer(k)
	}
	return &Remote{
		Name: v.Key, Spec: s.Spec, Available: helper.IsAPIServiceConditionTrue(&s, apiregistrationv1.Available),
		stored: v, server: servers[k],
	}, nil
}
