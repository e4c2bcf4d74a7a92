package openapi

import (
	"encoding/json"
	"slices"

	"github.com/quorate/quorate/apiserver/backends/aggregator"
	"k8s.io/kube-openapi/pkg/handler3"
)

// WithOthers adds what other servers' documents say, as is known when a request comes: those of version 3
// are listed, requests for them go to the servers; that of version 2 has them merged. Default: there are no others.
func WithOthers(known func() *aggregator.Discovered) Option {
	return func(h *Handler) { h.others = known }
}

// rootWithOthers is the list of documents with those of other servers.
type rootWithOthers struct {
	own    *documents
	others *aggregator.Discovered
	doc    *document
}

// root is the list of all documents.
func (h *Handler) root(own *documents) *document {
	if h.others == nil {
		return own.root
	}
	others := h.others()
	if !slices.ContainsFunc(others.Versions, func(v aggregator.Version) bool { return v.HasOpenAPI || own.groups["apis/"+v.String()] != nil }) {
		return own.root
	}
	if r := h.withOthers.Load(); r != nil && r.own == own && r.others == others {
		return r.doc
	}
	// Two requests may both make it: it is cheap, and the same.
	r := &rootWithOthers{own, others, newDocument(func() ([]byte, error) { return rootOf(own, others) }, nil)}
	h.withOthers.Store(r)
	return r.doc
}

func rootOf(own *documents, others *aggregator.Discovered) ([]byte, error) {
	data, err := own.root.json.plain()
	if err != nil {
		return nil, err
	}
	var list handler3.OpenAPIV3Discovery
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, err
	}
	for _, v := range others.Versions {
		name := "apis/" + v.String()
		if delete(list.Paths, name); v.HasOpenAPI {
			list.Paths[name] = handler3.OpenAPIV3DiscoveryGroupVersion{ServerRelativeURL: relativeURL(name, v.OpenAPIHash)}
		}
	}
	return json.Marshal(list)
}
