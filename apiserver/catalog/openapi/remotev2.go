package openapi

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/quorate/quorate/apiserver/backends/aggregator"
	merge "k8s.io/kube-openapi/pkg/aggregator"
	openapispec "k8s.io/kube-openapi/pkg/validation/spec"
)

// maxOthers bounds the bytes of other servers' documents that are merged: what does not fit is left out.
const maxOthers = 32 << 20

// v2WithOthers is the document of version 2 with what other servers say.
type v2WithOthers struct {
	own    *documents
	others []otherV2
	doc    *document
}

// otherV2 is a group version of another server, whose document may be nil.
type otherV2 struct {
	name string
	doc  *aggregator.DocumentV2
}

// v2 is the document of everything. It is made when somebody asks and something has changed, once for
// all who wait for it; what is in it of this server is not made again.
func (h *Handler) v2(own *documents) *document {
	if h.others == nil {
		return own.v2
	}
	var others []otherV2
	for _, v := range h.others().Versions {
		if name := "apis/" + v.String(); v.OpenAPIV2 != nil || own.parts[name] != nil {
			others = append(others, otherV2{name, v.OpenAPIV2})
		}
	}
	if len(others) == 0 {
		return own.v2
	}
	for {
		old := h.v2Of.Load()
		if old != nil && old.own == own && slices.Equal(old.others, others) {
			return old.doc
		}
		if next := (&v2WithOthers{own, others, mergedV2(own, others)}); h.v2Of.CompareAndSwap(old, next) {
			return next.doc
		}
	}
}

func mergedV2(own *documents, others []otherV2) *document {
	parts := sync.OnceValues(func() ([]*part, error) { return mergeParts(own, others) })
	d := newDocument(func() ([]byte, error) {
		all, err := parts()
		if err != nil {
			return nil, err
		}
		return wholeV2(all, own.version, true)
	}, nil)
	d.protobuf.build = func() ([]byte, error) {
		all, err := parts()
		if err != nil {
			return nil, err
		}
		return wholeProtobuf(all, own.version)
	}
	d.name = func() (string, error) {
		name, err := own.v2.hash()
		for _, o := range others {
			name += "\n" + o.name
			if o.doc != nil {
				name += " " + o.doc.Sum
			}
		}
		return name, err
	}
	return d
}

// mergeParts are this server's parts, but for versions that others serve, and one of each of those.
func mergeParts(own *documents, others []otherV2) ([]*part, error) {
	theirs := map[string]bool{}
	for _, o := range others {
		theirs[o.name] = true
	}
	parts := own.partsBut(theirs)
	m := merger{own: map[string]json.RawMessage{}, all: openapispec.Swagger{SwaggerProps: openapispec.SwaggerProps{Definitions: openapispec.Definitions{}}}}
	for _, p := range parts {
		if err := p.made(); err != nil {
			return nil, err
		}
		if err := json.Unmarshal([]byte("{"+string(p.definitions)+"}"), &m.own); err != nil {
			return nil, err
		}
	}
	size := 0
	for _, o := range others {
		if o.doc == nil {
			continue
		}
		if size += len(o.doc.JSON); size > maxOthers {
			slog.Warn("OpenAPI v2 of aggregated API servers is too large, some is left out", "version", o.name, "limit", maxOthers)
			size -= len(o.doc.JSON)
			continue
		}
		p, err := m.add(o.doc.JSON)
		if err != nil {
			slog.Warn("OpenAPI v2 of an aggregated API server is left out", "version", o.name, "err", err)
			continue
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// merger puts documents beside each other as upstream's library does: a definition that is called like
// another one and is not the same gets another name.
type merger struct {
	own map[string]json.RawMessage // this server's definitions
	all openapispec.Swagger        // what was added, and those of this server's definitions that are called alike
}

// add makes a part of a document.
func (m *merger) add(data []byte) (_ *part, err error) {
	var doc openapispec.Swagger
	if err := doc.UnmarshalJSON(data); err != nil {
		return nil, err
	}
	for name := range doc.Definitions {
		if err := m.take(name); err != nil {
			return nil, err
		}
	}
	definitions, parameters := maps.Clone(m.all.Definitions), maps.Clone(m.all.Parameters)
	defer func() {
		if err != nil {
			m.all.Definitions, m.all.Parameters = definitions, parameters
		}
	}()
	m.all.Paths = nil
	if err := merge.MergeSpecsIgnorePathConflictRenamingDefinitionsAndParameters(&m.all, &doc); err != nil {
		return nil, err
	}
	newDefinitions, newParameters := openapispec.Definitions{}, map[string]openapispec.Parameter{}
	for name, d := range m.all.Definitions {
		if _, ok := definitions[name]; !ok {
			newDefinitions[name] = d
			m.all.Definitions[name] = settable(d)
		}
	}
	for name, p := range m.all.Parameters {
		if _, ok := parameters[name]; !ok {
			newParameters[name] = p
		}
	}
	var pieces [3][]byte
	for i, of := range []any{m.all.Paths.Paths, newDefinitions, newParameters} {
		if pieces[i], err = json.Marshal(of); err != nil {
			return nil, err
		}
	}
	p := &part{parameters: inner(pieces[2])}
	p.build = func() ([]byte, []byte, error) { return pieces[0], pieces[1], nil }
	return p, p.made()
}

// take has the library see this server's definition of a name, and those with the names that it would
// try next.
func (m *merger) take(name string) error {
	for i, next := 2, name; ; i++ {
		raw, ok := m.own[next]
		if !ok {
			return nil
		}
		if _, ok := m.all.Definitions[next]; !ok {
			var d openapispec.Schema
			if err := d.UnmarshalJSON(raw); err != nil {
				return fmt.Errorf("definition %s: %w", next, err)
			}
			m.all.Definitions[next] = settable(d)
		}
		next = fmt.Sprintf("%s_v%d", name, i)
	}
}

// settable is a definition that the library can write kinds to: it writes to a map that may be nil.
func settable(d openapispec.Schema) openapispec.Schema {
	if d.Extensions == nil {
		d.Extensions = openapispec.Extensions{}
	}
	return d
}
