package discovery

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/quorate/quorate/apiserver/backends/aggregator"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/wire/codec"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Handler serves /api, /api/V, /apis, /apis/G and /apis/G/V. It is safe for
// concurrent use.
type Handler struct {
	current func() *kinds.Registry
	hashes  bool
	others  func() *aggregator.Discovered
	docs    atomic.Pointer[documents]
}

// documents are those of one registry, by path.
type documents struct {
	registry   *kinds.Registry
	others     *aggregator.Discovered
	plain      map[string]*document
	aggregated map[string]*document // of the two roots
}

// New makes a handler for the registry that current returns at the time of each
// request.
func New(current func() *kinds.Registry, options ...Option) *Handler {
	h := &Handler{current: current, hashes: true, others: func() *aggregator.Discovered { return nil }}
	for _, o := range options {
		o(h)
	}
	return h
}

// Option of a Handler.
type Option func(*Handler)

// WithHashes says whether storage version hashes are told. Default: they are.
func WithHashes(on bool) Option { return func(h *Handler) { h.hashes = on } }

// WithOthers adds what other servers serve, as it is known when a request comes: nobody is asked then.
// Their versions have no documents of their own here. Default: there are no others.
func WithOthers(known func() *aggregator.Discovered) Option {
	return func(h *Handler) { h.others = known }
}

// ServeHTTP answers GET and HEAD. A path that has no document is a plain 404, as
// upstream gives it for unknown groups.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimSuffix(r.URL.Path, "/")
	docs := h.documents()
	plain, aggregated := docs.plain[path], docs.aggregated[path]
	if plain == nil {
		http.NotFound(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		codec.WriteStatus(w, r, statusOf(apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, strings.ToLower(r.Method), schema.GroupResource{}, "", "", 0, true)))
		return
	}
	f, asAggregated, ok := negotiate(r.Header.Get("Accept"), aggregated != nil)
	if !ok {
		codec.WriteStatus(w, r, notAcceptable())
		return
	}
	switch {
	case asAggregated:
		serveAggregated(w, r, aggregated, f)
	case path == "/api":
		w.Header().Set("Vary", "Accept")
		serve(w, r, &document{object: apiVersions(r, plain.object.(*metav1.APIVersions))}, f, "")
	default:
		if aggregated != nil {
			w.Header().Set("Vary", "Accept")
		}
		serve(w, r, plain, f, "")
	}
}

func (h *Handler) documents() *documents {
	registry, others := h.current(), h.others()
	if d := h.docs.Load(); d != nil && d.registry == registry && d.others == others {
		return d
	}
	// Two requests may both build after a change; what they build is cheap (the
	// encoding is what costs) and equal.
	d := build(registry, others, h.hashes)
	h.docs.Store(d)
	return d
}

func build(registry *kinds.Registry, others *aggregator.Discovered, hashes bool) *documents {
	var versions []aggregator.Version
	if others != nil {
		versions = others.Versions
	}
	groups := groupsOf(registry, versions)
	d := &documents{
		registry: registry, others: others,
		plain: map[string]*document{"/apis": {object: groupList(groups)}},
		aggregated: map[string]*document{
			"/api":  {object: aggregate(groups, true)},
			"/apis": {object: aggregate(groups, false)},
		},
	}
	core := &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{}}
	d.plain["/api"] = &document{object: core}
	for _, g := range groups {
		prefix := "/api/"
		if g.name != "" {
			d.plain["/apis/"+g.name] = &document{object: groupDocument(g)}
			prefix = "/apis/" + g.name + "/"
		}
		for _, gv := range g.versions {
			if g.name == "" {
				core.Versions = append(core.Versions, gv.version)
			}
			if gv.remote != nil {
				continue
			}
			d.plain[prefix+gv.version] = &document{object: resourceList(gv, hashes)}
		}
	}
	return d
}

// apiVersions adds the address of this node, which is the one part of discovery
// that differs between nodes.
func apiVersions(r *http.Request, versions *metav1.APIVersions) *metav1.APIVersions {
	address := r.Host
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		address = local.String()
	}
	out := *versions
	out.ServerAddressByClientCIDRs = []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: address}}
	return &out
}

func serveAggregated(w http.ResponseWriter, r *http.Request, d *document, f format) {
	tag, err := d.etag()
	if err != nil {
		codec.WriteStatus(w, r, statusOf(apierrors.NewInternalError(err)))
		return
	}
	header := w.Header()
	header.Set("ETag", tag)
	header.Set("Vary", "Accept")
	header.Set("Cache-Control", "public")
	if matches(r.Header.Values("If-None-Match"), tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	serve(w, r, d, f, aggregatedParameters)
}

// matches reports whether If-None-Match names the tag.
func matches(header []string, tag string) bool {
	for _, line := range header {
		for item := range strings.SplitSeq(line, ",") {
			item = strings.TrimPrefix(strings.TrimSpace(item), "W/")
			if item == tag || item == "*" {
				return true
			}
		}
	}
	return false
}

func serve(w http.ResponseWriter, r *http.Request, d *document, f format, parameters string) {
	data, err := d.encoded(f)
	if err != nil {
		codec.WriteStatus(w, r, statusOf(apierrors.NewInternalError(err)))
		return
	}
	if f == formatJSON && pretty(r) {
		var buf bytes.Buffer
		if json.Indent(&buf, data, "", "  ") == nil {
			data = buf.Bytes()
		}
	}
	w.Header().Set("Content-Type", mediaTypes[f]+parameters)
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(data)
}

// pretty is upstream's rule for people at a terminal or in a browser.
func pretty(r *http.Request) bool {
	if r.URL.RawQuery != "" {
		if v := r.URL.Query().Get("pretty"); v != "" {
			return v == "1" || strings.EqualFold(v, "true") || strings.EqualFold(v, "t")
		}
	}
	agent := r.UserAgent()
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") || strings.HasPrefix(agent, "Mozilla/5.0")
}

func statusOf(err *apierrors.StatusError) *metav1.Status { return &err.ErrStatus }

func notAcceptable() *metav1.Status {
	return &metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusNotAcceptable,
		Reason:  metav1.StatusReasonNotAcceptable,
		Message: "only the following media types are accepted: " + strings.Join(mediaTypes[:], ", "),
	}
}
