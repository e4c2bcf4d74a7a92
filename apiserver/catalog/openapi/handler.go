package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/munnerz/goautoneg"
	"github.com/quorate/quorate/apiserver/backends/aggregator"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/handler3"
)

// Handler serves /openapi/v2, /openapi/v3 and the documents below it. It is safe
// for concurrent use.
type Handler struct {
	current func() *kinds.Registry
	version string
	enums   bool
	set     atomic.Pointer[documents]

	others     func() *aggregator.Discovered // nil: there are none
	withOthers atomic.Pointer[rootWithOthers]
	v2Of       atomic.Pointer[v2WithOthers]
}

// New makes a handler for the registry that current returns at the time of each
// request. version is what the documents say in info.version, such as "v1.36.3".
func New(current func() *kinds.Registry, version string, options ...Option) *Handler {
	h := &Handler{current: current, version: version, enums: true}
	for _, o := range options {
		o(h)
	}
	return h
}

// Option of a Handler.
type Option func(*Handler)

// WithEnums says whether the values that a field may have are told. Default: they
// are.
func WithEnums(on bool) Option { return func(h *Handler) { h.enums = on } }

// documents are those of one registry.
type documents struct {
	registry *kinds.Registry
	version  string
	names    []string // of groups, in the order of the registry
	root     *document
	groups   map[string]*document // by "api/v1", "apis/apps/v1"
	of       map[string][]*kinds.Resource
	v2       *document
	builtin  *part
	parts    map[string]*part // of custom resources, by group version
}

func (h *Handler) documents() *documents {
	registry := h.current()
	for {
		old := h.set.Load()
		if old != nil && old.registry == registry {
			return old
		}
		// Only the first stores, so that nothing costly is built twice.
		if d := newDocuments(registry, h.version, h.enums, old); h.set.CompareAndSwap(old, d) {
			return d
		}
	}
}

// newDocuments takes over from old what is about the same resources.
func newDocuments(registry *kinds.Registry, version string, enums bool, old *documents) *documents {
	d := &documents{registry: registry, groups: map[string]*document{}, of: map[string][]*kinds.Resource{}, parts: map[string]*part{}}
	versions := map[string]schema.GroupVersion{}
	var names []string // in the order of the registry
	var builtin []*kinds.Resource
	custom := map[string][]*kinds.Resource{}
	for _, r := range registry.All() {
		name := prefixOf(r.Group, r.Version)[1:]
		if d.of[name] == nil {
			names = append(names, name)
		}
		versions[name] = r.GroupVersion()
		d.of[name] = append(d.of[name], r)
		if fingerprint(r) == "" {
			builtin = append(builtin, r)
		} else {
			custom[name] = append(custom[name], r)
		}
	}
	if old == nil || !slices.Equal(old.builtin.resources, builtin) {
		old = nil // options and events are of all group versions
		d.builtin = newPart(builtin, builtin, false, enums)
	} else {
		d.builtin = old.builtin
	}
	d.version, d.names = version, names
	for _, name := range names {
		gv, resources := versions[name], d.of[name]
		if old != nil && old.groups[name] != nil && sameResources(old.of[name], resources) {
			d.groups[name], d.parts[name] = old.groups[name], old.parts[name]
		} else {
			d.groups[name] = newDocument(func() ([]byte, error) { return documentV3(builtin, resources, gv, version, enums) }, handler3.ToV3ProtoBinary)
			if known := nameOf(version, enums, resources); known != "" {
				d.groups[name].name = func() (string, error) { return known, nil }
			}
			if custom[name] != nil {
				d.parts[name] = newPart(builtin, custom[name], true, enums)
			}
		}
	}
	for name, o := range others(builtin) {
		if old != nil && old.groups[name] != nil {
			d.groups[name] = old.groups[name]
			continue
		}
		d.groups[name] = newDocument(func() ([]byte, error) { return otherDocument(builtin, &o, version, enums) }, handler3.ToV3ProtoBinary)
	}
	parts := d.partsBut(nil)
	d.v2 = newDocument(func() ([]byte, error) { return wholeV2(parts, version, true) }, nil)
	d.v2.protobuf.build = func() ([]byte, error) { return wholeProtobuf(parts, version) }
	d.v2.name = func() (string, error) { return d.nameV2(names) }
	d.root = newDocument(d.buildRoot, nil)
	return d
}

// partsBut are the parts of the document of version 2, but for those of some group versions.
func (d *documents) partsBut(left map[string]bool) []*part {
	parts := []*part{d.builtin}
	for _, name := range d.names {
		if p := d.parts[name]; p != nil && !left[name] {
			parts = append(parts, p)
		}
	}
	return parts
}

// fingerprint is what a custom resource's documents follow from; empty for built-in
// ones.
func fingerprint(r *kinds.Resource) string {
	if d, ok := r.Origin.(definition); ok {
		return d.Fingerprint()
	}
	return ""
}

func sameResources(a, b []*kinds.Resource) bool {
	return slices.EqualFunc(a, b, func(x, y *kinds.Resource) bool {
		return x == y || fingerprint(x) != "" && fingerprint(x) == fingerprint(y)
	})
}

// nameOf stands for the document of custom resources; empty if some are built in. The
// number is to be raised when the same resources get another document.
func nameOf(version string, enums bool, resources []*kinds.Resource) string {
	name := fmt.Sprintf("1 %s %v", version, enums)
	for _, r := range resources {
		f := fingerprint(r)
		if f == "" {
			return ""
		}
		name += " " + f
	}
	return name
}

// nameV2 stands for the document of everything: the hashes of all others.
func (d *documents) nameV2(names []string) (string, error) {
	var b strings.Builder
	for _, name := range names {
		hash, err := d.groups[name].hash()
		if err != nil {
			return "", err
		}
		b.WriteString(name + " " + hash + "\n")
	}
	return b.String(), nil
}

// buildRoot needs the hash of every document, so the first client that asks has those
// of the built-in resources built; custom ones are known by their definitions.
func (d *documents) buildRoot() ([]byte, error) {
	root := handler3.OpenAPIV3Discovery{Paths: map[string]handler3.OpenAPIV3DiscoveryGroupVersion{}}
	for name, doc := range d.groups {
		hash, err := doc.hash()
		if err != nil {
			return nil, err
		}
		root.Paths[name] = handler3.OpenAPIV3DiscoveryGroupVersion{ServerRelativeURL: relativeURL(name, hash)}
	}
	return json.Marshal(root)
}

func relativeURL(name, hash string) string {
	return "/openapi/v3/" + name + "?hash=" + url.QueryEscape(hash)
}

const (
	protobufV2 = "com.github.proto-openapi.spec.v2.v1.0+protobuf"
	protobufV3 = "com.github.proto-openapi.spec.v3.v1.0+protobuf"
	// Old clients ask for these names; they get the answer under the new ones.
	oldProtobufV2 = "com.github.proto-openapi.spec.v2@v1.0+protobuf"
	oldProtobufV3 = "com.github.proto-openapi.spec.v3@v1.0+protobuf"
)

// ServeHTTP answers GET and HEAD.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "405 method not allowed", http.StatusMethodNotAllowed)
		return
	}
	docs := h.documents()
	path := strings.TrimSuffix(r.URL.Path, "/")
	switch {
	case path == "/openapi/v2":
		w.Header().Set("Vary", "Accept")
		serve(w, r, h.v2(docs), oldProtobufV2, protobufV2)
	case path == "/openapi/v3":
		serve(w, r, h.root(docs), "", "")
	case strings.HasPrefix(path, "/openapi/v3/") && docs.groups[path[len("/openapi/v3/"):]] != nil:
		name := path[len("/openapi/v3/"):]
		w.Header().Set("Vary", "Accept")
		if hashed(w, r, name, docs.groups[name]) {
			serve(w, r, docs.groups[name], oldProtobufV3, protobufV3)
		}
	default:
		http.NotFound(w, r)
	}
}

// hashed looks at the hash parameter: with the right one the answer may be kept for
// ever, with a wrong one the client is sent to the right one.
func hashed(w http.ResponseWriter, r *http.Request, name string, d *document) (serveIt bool) {
	asked := r.URL.Query().Get("hash")
	if asked == "" {
		return true
	}
	hash, err := d.hash()
	if err != nil {
		failed(w, err)
		return false
	}
	if asked != hash {
		http.Redirect(w, r, relativeURL(name, hash), http.StatusMovedPermanently)
		return false
	}
	w.Header().Set("Cache-Control", "public, immutable")
	w.Header().Set("Expires", time.Now().AddDate(1, 0, 0).UTC().Format(http.TimeFormat))
	return true
}

// negotiate picks JSON or protobuf; ok is false if Accept allows neither.
func negotiate(accept, oldProtobuf, protobuf string) (asProtobuf, ok bool) {
	if strings.TrimSpace(accept) == "" {
		return false, true
	}
	clauses := goautoneg.ParseAccept(accept)
	sort.SliceStable(clauses, func(i, j int) bool { return clauses[i].Q > clauses[j].Q })
	for _, c := range clauses {
		if c.Q == 0 || c.Type != "application" && c.Type != "*" {
			continue
		}
		switch c.SubType {
		case "json", "*":
			return false, true
		case oldProtobuf, protobuf:
			if protobuf != "" {
				return true, true
			}
		}
	}
	return false, false
}

func serve(w http.ResponseWriter, r *http.Request, d *document, oldProtobuf, protobuf string) {
	asProtobuf, ok := negotiate(r.Header.Get("Accept"), oldProtobuf, protobuf)
	if !ok {
		w.WriteHeader(http.StatusNotAcceptable)
		return
	}
	b, mediaType := &d.json, typeJSON
	if asProtobuf {
		b, mediaType = &d.protobuf, "application/"+protobuf
	}
	data, err := b.plain()
	if err == nil {
		var hash string
		if hash, err = d.hash(); err == nil {
			w.Header().Set("Etag", strconv.Quote(hash))
		}
	}
	if err != nil {
		failed(w, err)
		return
	}
	w.Header().Set("Content-Type", mediaType)
	w.Header().Add("Vary", "Accept-Encoding")
	if acceptsGzip(r.Header.Values("Accept-Encoding")) {
		w.Header().Set("Content-Encoding", "gzip")
		data = b.compressed()
	}
	// ServeContent compares If-None-Match with the Etag. There is no date: it would
	// differ between nodes.
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
}

func acceptsGzip(header []string) bool {
	for _, line := range header {
		for item := range strings.SplitSeq(line, ",") {
			name, q, _ := strings.Cut(strings.TrimSpace(item), ";")
			if strings.TrimSpace(name) != "gzip" {
				continue
			}
			q = strings.TrimPrefix(strings.TrimSpace(q), "q=")
			f, err := strconv.ParseFloat(q, 64)
			return q == "" || err == nil && f > 0
		}
	}
	return false
}

// failed answers when a document cannot be built, which a test rules out for the
// built-in resources.
func failed(w http.ResponseWriter, err error) {
	slog.Error("OpenAPI document cannot be built", "err", err)
	http.Error(w, "OpenAPI is not available", http.StatusServiceUnavailable)
}
