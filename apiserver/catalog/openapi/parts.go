package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"k8s.io/kube-openapi/pkg/handler"
)

// The document of version 2 is about everything. It is put together of parts, one of
// all built-in resources and one of each group version of custom ones, which are made
// on first demand and stay the same as long as their resources do. Those of other
// servers are in remotev2.go.

// part is the paths and definitions of some resources.
type part struct {
	resources []*kinds.Resource
	build     func() (paths, definitions []byte, err error) // objects as JSON

	once               sync.Once
	paths, definitions []byte // without the braces
	parameters         []byte // likewise, of other servers
	err                error

	protoOnce sync.Once
	protobuf  []byte
	protoErr  error
}

func newPart(builtin, resources []*kinds.Resource, custom, enums bool) *part {
	p := &part{resources: resources}
	p.build = func() (paths, definitions []byte, err error) { return partV2(builtin, resources, custom, enums) }
	return p
}

// partV2 is what a part says; that of custom resources leaves out what is built in.
func partV2(builtin, resources []*kinds.Resource, custom, enums bool) (inPaths, definitions []byte, err error) {
	set := newSchemaSet(builtin, resources, true, enums)
	set.part = custom
	p, err := paths(resources, formV2, set)
	if err == nil {
		err = set.add(modelWatchEvent)
	}
	if err == nil {
		inPaths, err = json.Marshal(p)
	}
	if err == nil {
		definitions, err = json.Marshal(set.out)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("OpenAPI v2: %w", err)
	}
	return inPaths, definitions, nil
}

func (p *part) made() error {
	p.once.Do(func() {
		if p.paths, p.definitions, p.err = p.build(); p.err == nil {
			p.paths, p.definitions = inner(p.paths), inner(p.definitions)
		}
	})
	return p.err
}

// inner is an object without its braces.
func inner(b []byte) []byte { return b[1 : len(b)-1] }

// encoded is the part as a document of its own in protobuf. Documents that are written
// one after the other are one with all their paths and definitions.
func (p *part) encoded(version string) ([]byte, error) {
	if err := p.made(); err != nil {
		return nil, err
	}
	p.protoOnce.Do(func() {
		var doc []byte
		if doc, p.protoErr = wholeV2([]*part{p}, version, false); p.protoErr == nil {
			p.protobuf, p.protoErr = handler.ToProtoBinary(doc)
		}
	})
	return p.protobuf, p.protoErr
}

// wholeV2 is the document of parts as JSON.
func wholeV2(parts []*part, version string, secured bool) ([]byte, error) {
	size := 0
	for _, p := range parts {
		if err := p.made(); err != nil {
			return nil, err
		}
		size += len(p.paths) + len(p.definitions) + len(p.parameters) + 3
	}
	info, err := json.Marshal(object{"title": "Kubernetes", "version": version})
	if err != nil {
		return nil, err
	}
	b := bytes.NewBuffer(make([]byte, 0, size+1024))
	join := func(of func(*part) []byte) {
		first := true
		for _, p := range parts {
			if len(of(p)) == 0 {
				continue
			}
			if !first {
				b.WriteByte(',')
			}
			first = false
			b.Write(of(p))
		}
	}
	b.WriteString(`{"definitions":{`)
	join(func(p *part) []byte { return p.definitions })
	b.WriteString(`},"info":`)
	b.Write(info)
	if slices.ContainsFunc(parts, func(p *part) bool { return len(p.parameters) > 0 }) {
		b.WriteString(`,"parameters":{`)
		join(func(p *part) []byte { return p.parameters })
		b.WriteByte('}')
	}
	b.WriteString(`,"paths":{`)
	join(func(p *part) []byte { return p.paths })
	b.WriteByte('}')
	if secured {
		schemes, err := json.Marshal(security)
		if err != nil {
			return nil, err
		}
		b.WriteString(`,"security":[{"BearerToken":[]}],"securityDefinitions":`)
		b.Write(schemes)
	}
	b.WriteString(`,"swagger":"2.0"}`)
	return b.Bytes(), nil
}

// wholeProtobuf is the document of parts as protobuf.
func wholeProtobuf(parts []*part, version string) ([]byte, error) {
	head, err := wholeV2(nil, version, true)
	if err == nil {
		head, err = handler.ToProtoBinary(head)
	}
	if err != nil {
		return nil, err
	}
	pieces := [][]byte{head}
	for _, p := range parts {
		piece, err := p.encoded(version)
		if err != nil {
			return nil, err
		}
		pieces = append(pieces, piece)
	}
	return bytes.Join(pieces, nil), nil
}
