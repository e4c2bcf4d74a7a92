package aggregator

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/internal/decoded"
	v2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/transport"
)

// Bounds of what servers are asked beside all requests.
const (
	refresh       = 60 * time.Second // after an answer
	firstRetry    = time.Second      // after a failure; doubled each time, up to refresh
	fetchTimeout  = 5 * time.Second  // of one request
	maxFetches    = 64               // servers that are asked at once
	maxDocument   = 8 << 20          // bytes of one answer
	maxResources  = 2000             // of one version
	maxVersion    = 2 << 20          // bytes of what is told of one version
	failureLength = 1 << 10          // bytes of what is told of a failure
)

// known is what this node knows of a server by asking it.
type known struct {
	mu       sync.Mutex
	asking   bool
	due      time.Time
	wait     time.Duration
	asked    *question // nil: nothing yet
	etag     string
	versions map[apischema.GroupVersion]v2.APIVersionDiscovery
	openapi  map[apischema.GroupVersion]string // the hashes of its documents of version 3
	v2       documentsV2
	ok       bool
	failure  string
}

// answers reports whether the last question was answered.
func (k *known) answers() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ok
}

// take reports whether the server is to be asked now, and says that it is.
func (k *known) take(about *question, now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	same := k.asked != nil && slices.Equal(about.remotes, k.asked.remotes)
	if k.asking || same && now.Before(k.due) {
		return false
	}
	if !same {
		// What was left out of its answers may be wanted now.
		k.etag, k.v2.etag, k.v2.sum = "", "", ""
	}
	k.asking, k.asked = true, about
	return true
}

// release says that the server is not asked any more.
func (k *known) release() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asking = false
}

// answered notes what came of a question.
func (k *known) answered(a *answer, err error, now time.Time) (changed bool, failure string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	was, before := k.ok, k.failure
	k.ok, k.failure = err == nil, ""
	if err != nil {
		k.failure = fmt.Sprintf("%.*s", failureLength, err)
		k.wait = min(refresh, max(firstRetry, 2*k.wait))
		k.due = now.Add(k.wait)
		if before != "" {
			return was, ""
		}
		return was, k.failure
	}
	k.wait, k.due = 0, now.Add(refresh)
	if a.versions != nil {
		k.etag, k.versions = a.etag, a.versions
	}
	k.openapi = a.openapi
	return true, ""
}

// Run asks the servers what they serve until ctx ends: a new one at once, and one whose APIService has
// changed, one that has answered every minute, one that has not again after a second and then later
// and later. watch returns a channel that is sent to when a table may have changed, and a function that
// ends it.
func (a *Aggregator) Run(ctx context.Context, watch func(table string) (<-chan struct{}, func(), error)) error {
	changed, stop, err := watch(Table)
	if err != nil {
		return fmt.Errorf("follow APIServices: %w", err)
	}
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer func() {
		for _, r := range a.Remotes() {
			r.server.transport.CloseIdleConnections()
		}
	}()
	places := make(chan struct{}, maxFetches)
	ended := make(chan struct{}, 1)
	tick := time.NewTicker(a.cfg.Look)
	defer tick.Stop()
	for {
		for s, about := range a.view.Get().questions {
			if !s.known.take(about, time.Now()) {
				continue
			}
			wg.Go(func() {
				defer func() {
					s.known.release()
					select {
					case ended <- struct{}{}: // there may be another question by now
					default:
					}
				}()
				select {
				case places <- struct{}{}:
				case <-ctx.Done():
					return
				}
				defer func() { <-places }()
				found, err := a.ask(ctx, s, about.versions)
				changed, failure := s.known.answered(found, err, time.Now())
				if failure != "" && ctx.Err() == nil {
					a.cfg.Log.Warn("an aggregated API server does not say what it serves, retrying", "service", s.namespace+"/"+s.name, "err", failure)
				}
				if changed {
					a.generation.Add(1)
				}
				if err == nil && a.learnV2(ctx, s, about.versions) {
					a.generation.Add(1)
				}
			})
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-ended:
		case <-tick.C:
		}
	}
}

// question is what a server is asked about.
type question struct {
	remotes  []*Remote // by name: those that requests are routed by
	versions []apischema.GroupVersion
	has      map[*Remote]bool
}

// questionsOf are those of a state to all servers.
func questionsOf(now *remotes) map[*server]*question {
	out := map[*server]*question{}
	for _, r := range now.all {
		if now.of[r.GroupVersion()] != r {
			continue
		}
		q := out[r.server]
		if q == nil {
			q = &question{has: map[*Remote]bool{}}
			out[r.server] = q
		}
		q.remotes, q.versions, q.has[r] = append(q.remotes, r), append(q.versions, r.GroupVersion()), true
	}
	return out
}

// answer is what a server says about itself.
type answer struct {
	etag     string
	versions map[apischema.GroupVersion]v2.APIVersionDiscovery // nil: as before
	openapi  map[apischema.GroupVersion]string
}

const acceptDiscovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// ask has a server say what it serves.
func (a *Aggregator) ask(ctx context.Context, s *server, versions []apischema.GroupVersion) (*answer, error) {
	s.known.mu.Lock()
	etag := s.known.etag
	s.known.mu.Unlock()
	out := &answer{}
	res, body, err := a.get(ctx, s, "/apis", http.Header{"Accept": {acceptDiscovery}, "If-None-Match": {etag}})
	switch {
	case err != nil:
		return nil, err
	case res.StatusCode == http.StatusNotModified && etag != "":
	case res.StatusCode == http.StatusOK && isAggregated(res.Header.Get("Content-Type")):
		give, err := a.room.Take(ctx, decoded.Cost(body), decoded.Most)
		if err == nil {
			out.versions, err = readAggregated(body, versions)
			give()
		}
		if err != nil {
			return nil, fmt.Errorf("GET /apis: %w", err)
		}
		out.etag = res.Header.Get("Etag")
		if len(out.etag) > failureLength {
			out.etag = ""
		}
	case res.StatusCode == http.StatusServiceUnavailable:
		return nil, fmt.Errorf("GET /apis: %d", res.StatusCode)
	default:
		out.versions = map[apischema.GroupVersion]v2.APIVersionDiscovery{}
		for _, gv := range versions {
			if out.versions[gv], err = a.legacy(ctx, s, gv); err != nil {
				return nil, err
			}
		}
	}
	out.openapi = a.openAPIHashes(ctx, s, versions)
	return out, nil
}

func isAggregated(contentType string) bool {
	_, params, err := mime.ParseMediaType(contentType)
	return err == nil && params["g"] == "apidiscovery.k8s.io" && params["v"] == "v2" && params["as"] == "APIGroupDiscoveryList"
}

// readAggregated takes the versions that an APIService names from a server's discovery.
func readAggregated(body []byte, versions []apischema.GroupVersion) (map[apischema.GroupVersion]v2.APIVersionDiscovery, error) {
	var list v2.APIGroupDiscoveryList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("discovery: %w", err)
	}
	out := map[apischema.GroupVersion]v2.APIVersionDiscovery{}
	for _, gv := range versions {
		for _, g := range list.Items {
			for _, v := range g.Versions {
				if g.Name != gv.Group || v.Version != gv.Version {
					continue
				}
				if len(v.Resources) > maxResources {
					return nil, fmt.Errorf("discovery: %s has %d resources, at most %d are taken", gv, len(v.Resources), maxResources)
				}
				out[gv] = withKinds(v)
				if err := checkSize(gv, v); err != nil {
					return nil, err
				}
			}
		}
	}
	return out, nil
}

// withKinds has a kind everywhere: old clients need one.
func withKinds(v v2.APIVersionDiscovery) v2.APIVersionDiscovery {
	for i := range v.Resources {
		r := &v.Resources[i]
		if r.ResponseKind == nil {
			r.ResponseKind = &metav1.GroupVersionKind{}
		}
		for j := range r.Subresources {
			if r.Subresources[j].ResponseKind == nil {
				r.Subresources[j].ResponseKind = &metav1.GroupVersionKind{}
			}
		}
	}
	return v
}

// legacy asks a server that has no aggregated discovery.
func (a *Aggregator) legacy(ctx context.Context, s *server, gv apischema.GroupVersion) (out v2.APIVersionDiscovery, _ error) {
	path := "/apis/" + gv.Group + "/" + gv.Version
	res, body, err := a.get(ctx, s, path, http.Header{"Accept": {"application/json"}})
	if err != nil {
		return out, err
	}
	if res.StatusCode != http.StatusOK {
		return out, fmt.Errorf("GET %s: %d", path, res.StatusCode)
	}
	give, err := a.room.Take(ctx, decoded.Cost(body), decoded.Most)
	if err != nil {
		return out, fmt.Errorf("GET %s: %w", path, err)
	}
	defer give()
	var list metav1.APIResourceList
	if err := json.Unmarshal(body, &list); err != nil {
		return out, fmt.Errorf("discovery of %s: %w", gv, err)
	}
	if len(list.APIResources) > maxResources {
		return out, fmt.Errorf("discovery: %s has %d resources, at most %d are taken", gv, len(list.APIResources), maxResources)
	}
	out.Version = gv.Version
	if out.Resources, err = convertResources(list.APIResources, gv); err != nil {
		return out, fmt.Errorf("discovery of %s: %w", gv, err)
	}
	return withKinds(out), checkSize(gv, out)
}

// checkSize refuses what a version serves if it is so long that all clients would notice: they are told it with all else.
func checkSize(gv apischema.GroupVersion, v v2.APIVersionDiscovery) error {
	text, err := json.Marshal(v)
	if err == nil && len(text) > maxVersion {
		err = fmt.Errorf("discovery: what %s serves takes %d bytes to tell, at most %d are taken", gv, len(text), maxVersion)
	}
	return err
}

// openAPIHashes are those of a server's documents of version 3. One that has none is none the worse.
func (a *Aggregator) openAPIHashes(ctx context.Context, s *server, versions []apischema.GroupVersion) map[apischema.GroupVersion]string {
	res, body, err := a.get(ctx, s, "/openapi/v3", http.Header{"Accept": {"application/json"}})
	if err != nil || res.StatusCode != http.StatusOK {
		return nil
	}
	give, err := a.room.Take(ctx, decoded.Cost(body), decoded.Most)
	if err != nil {
		return nil
	}
	defer give()
	var list struct {
		Paths map[string]struct {
			URL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil
	}
	out := map[apischema.GroupVersion]string{}
	for _, gv := range versions {
		at, ok := list.Paths["apis/"+gv.String()]
		if !ok {
			continue
		}
		// Whatever the URL is, ours leads to the server, and has the hash alone.
		u, err := url.Parse(at.URL)
		if err != nil {
			continue
		}
		if hash := u.Query().Get("hash"); len(hash) <= 256 {
			out[gv] = hash
		}
	}
	return out
}

// get asks a server in this server's name, and reads all that it answers.
func (a *Aggregator) get(ctx context.Context, s *server, path string, h http.Header) (*http.Response, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	res, err := a.send(ctx, s, http.MethodGet, url.URL{Path: path}, "", h, itself)
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxDocument+1))
	if err != nil {
		return nil, nil, fmt.Errorf("GET %s: %w", res.Request.URL, err)
	}
	if len(body) > maxDocument {
		return nil, nil, fmt.Errorf("GET %s: the answer is longer than %d bytes", res.Request.URL, maxDocument)
	}
	return res, body, nil
}

// itself is who this server is when it asks what a server serves: upstream's name for that.
var itself = &auth.User{Name: "system:kube-aggregator", Groups: []string{auth.Masters}}

// send sends a request in the name of a user whom the server believes this one. at is its path and query.
func (a *Aggregator) send(ctx context.Context, s *server, method string, at url.URL, body string, h http.Header, u *auth.User) (*http.Response, error) {
	if s.err != nil {
		return nil, s.err
	}
	host, err := a.cfg.Resolve(ctx, s.namespace, s.name, s.port)
	if err != nil {
		return nil, err
	}
	at.Scheme, at.Host = "https", host
	r, err := http.NewRequestWithContext(ctx, method, at.String(), strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name, values := range h {
		if values[0] != "" {
			r.Header[name] = values
		}
	}
	r.Header.Set(hopHeader, "1")
	transport.SetAuthProxyHeaders(r, u.Name, u.UID, u.Groups, u.Extra)
	res, err := s.transport.RoundTrip(r) // follows no redirect
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, r.URL, err)
	}
	return res, nil
}
