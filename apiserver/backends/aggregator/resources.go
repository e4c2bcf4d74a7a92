package aggregator

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/access/auth"
	v2 "k8s.io/api/apidiscovery/v2"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// Resource is a resource of an aggregated API server.
type Resource struct {
	apischema.GroupVersionResource
	Kind       string
	Namespaced bool
	// Collectable resources can be listed, watched and deleted.
	Collectable bool
}

// Resources returns what servers serve, each resource once, in the version of the highest
// priority. unknown are the versions of groups whose servers do not say what they serve: nothing
// of them is among the resources. It asks nobody.
func (a *Aggregator) Resources() (all []Resource, unknown []apischema.GroupVersion) {
	if a == nil {
		return nil, nil
	}
	seen := map[apischema.GroupResource]bool{}
	for _, r := range a.routed() {
		found, ok, _ := r.server.known.version(r)
		if !ok {
			unknown = append(unknown, r.GroupVersion())
			continue
		}
		for i := range found.Resources {
			of := &found.Resources[i]
			res := Resource{GroupVersionResource: r.GroupVersion().WithResource(of.Resource), Namespaced: of.Scope == v2.ScopeNamespace, Collectable: true}
			if of.ResponseKind != nil {
				res.Kind = of.ResponseKind.Kind
			}
			if res.Kind == "" || !isSegment(of.Resource) || seen[res.GroupResource()] {
				continue
			}
			for _, verb := range [...]string{"list", "watch", "delete"} {
				res.Collectable = res.Collectable && slices.Contains(of.Verbs, verb)
			}
			seen[res.GroupResource()] = true
			all = append(all, res)
		}
	}
	return all, unknown
}

// routed are the APIServices that requests go to, those of the highest priority first.
func (a *Aggregator) routed() []*Remote {
	now := a.view.Get()
	var out []*Remote
	for _, r := range now.all {
		if now.of[r.GroupVersion()] == r {
			out = append(out, r)
		}
	}
	slices.SortStableFunc(out, func(x, y *Remote) int { return cmp.Compare(y.Spec.VersionPriority, x.Spec.VersionPriority) })
	return out
}

// maxAnswer bounds what is read of an answer. A watch goes on with another one.
const maxAnswer = 32 << 20

// Metadata returns a client of the metadata of objects at all servers, in the name of a user whom
// they believe this server. Answers are bounded: a list fails behind that, a watch ends. It follows no redirects.
// A request has no time limit but its context's.
func (a *Aggregator) Metadata(u *auth.User) (metadata.Interface, error) {
	client := &http.Client{
		Transport:     &sender{a, u},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	c, err := metadata.NewForConfigAndClient(&rest.Config{Host: "https://aggregated", QPS: -1}, client)
	if err != nil {
		return nil, fmt.Errorf("make a client of aggregated API servers: %w", err)
	}
	return c, nil
}

// sender sends requests for paths below /apis to the servers of their groups.
type sender struct {
	a    *Aggregator
	user *auth.User
}

// RoundTrip implements http.RoundTripper. The host of the request is not looked at.
func (s *sender) RoundTrip(r *http.Request) (*http.Response, error) {
	parts := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/apis/"), "/", 3)
	var to *Remote
	if len(parts) == 3 && !strange(r.URL.Path) {
		to = s.a.Of(parts[0], parts[1])
	}
	if to == nil {
		return nil, fmt.Errorf("%s %s: no aggregated API server serves it", r.Method, r.URL.Path)
	}
	if to.server.err != nil {
		return nil, to.server.err
	}
	host, err := s.a.cfg.Resolve(r.Context(), to.server.namespace, to.server.name, to.server.port)
	if err != nil {
		return nil, err
	}
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.Host = "https", host, ""
	out.Header.Set(hopHeader, "1")
	transport.SetAuthProxyHeaders(out, s.user.Name, s.user.UID, s.user.Groups, s.user.Extra)
	res, err := to.server.transport.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	body := &boundedBody{ReadCloser: res.Body, left: maxAnswer, over: fmt.Errorf("the answer is longer than %d bytes", maxAnswer)}
	if r.URL.Query().Get("watch") != "" {
		body.over = io.ErrUnexpectedEOF // the decoder of events takes it for the end, and not for an event of an error
	}
	res.Body = body
	return res, nil
}

// boundedBody fails with over behind a number of bytes.
type boundedBody struct {
	io.ReadCloser
	left int64
	over error
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, b.over
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
