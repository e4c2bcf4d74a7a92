package aggregator

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/aggregator"
	"k8s.io/kube-openapi/pkg/util/proto"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Bounds of an OpenAPI document of version 2, beside maxDocument. That of the built-in resources has 2.4 MB,
// 59,000 values, a depth of 7 and 800 definitions.
const (
	maxDepth   = 128
	maxValues  = 100_000
	maxMembers = 5_000 // of one object or list: the libraries take time by the square of them, and call themselves for each definition in a chain
)

// DocumentV2 is what a server's OpenAPI document of version 2 says of one group version, and the definitions
// for that. It is immutable. Clients can read it: its references lead somewhere, and nowhere else.
type DocumentV2 struct {
	JSON []byte
	Sum  string // of JSON, the same on every node
}

// documentsV2 are those of one server.
type documentsV2 struct {
	etag, sum string // of the last answer, also of one that cannot be read
	bad       error  // why that is so
	of        map[apischema.GroupVersion]*DocumentV2
	failure   string // that was told last
}

// learnV2 asks a server for its OpenAPI document of version 2. What was known stays until there is
// a better one.
func (a *Aggregator) learnV2(ctx context.Context, s *server, versions []apischema.GroupVersion) (changed bool) {
	s.known.mu.Lock()
	was := s.known.v2
	s.known.mu.Unlock()
	now, err := a.askV2(ctx, s, was, versions)
	if ctx.Err() != nil {
		return false
	}
	now.failure = ""
	if err != nil {
		now.failure = fmt.Sprintf("%.*s", failureLength, err)
	}
	if now.failure != "" && now.failure != was.failure {
		a.cfg.Log.Warn("an aggregated API server's OpenAPI document of version 2 is not taken", "service", s.namespace+"/"+s.name, "err", now.failure)
	}
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	s.known.v2 = now
	return err == nil && now.sum != was.sum
}

// askV2 returns what is known after the question.
func (a *Aggregator) askV2(ctx context.Context, s *server, was documentsV2, versions []apischema.GroupVersion) (documentsV2, error) {
	res, body, err := a.get(ctx, s, "/openapi/v2", http.Header{"Accept": {"application/json"}, "If-None-Match": {was.etag}})
	switch {
	case err != nil:
		return was, err
	case res.StatusCode == http.StatusNotModified && was.etag != "":
		return was, was.bad
	case res.StatusCode == http.StatusNotFound:
		return documentsV2{sum: "none"}, nil
	case res.StatusCode != http.StatusOK:
		return was, fmt.Errorf("GET /openapi/v2: %d", res.StatusCode)
	}
	now := documentsV2{etag: res.Header.Get("Etag"), sum: fmt.Sprintf("%x", sha256.Sum256(body)), bad: was.bad, of: was.of}
	if len(now.etag) > failureLength {
		now.etag = ""
	}
	if now.sum == was.sum {
		return now, now.bad // of a server that knows no ETag
	}
	// One after the other: a document takes many times its size while it is read.
	select {
	case a.reading <- struct{}{}:
	case <-ctx.Done():
		return was, ctx.Err()
	}
	defer func() { <-a.reading }()
	of, err := readV2(body, versions)
	if now.bad = err; err != nil {
		return now, err
	}
	for gv, d := range of {
		if old := was.of[gv]; old != nil && old.Sum == d.Sum {
			of[gv] = old
		}
	}
	now.of = of
	return now, nil
}

// readV2 takes what the versions that an APIService names need from a server's document.
func readV2(body []byte, versions []apischema.GroupVersion) (map[apischema.GroupVersion]*DocumentV2, error) {
	if err := measure(body); err != nil {
		return nil, fmt.Errorf("OpenAPI v2: %w", err)
	}
	whole := &spec.Swagger{}
	if err := whole.UnmarshalJSON(body); err != nil {
		return nil, fmt.Errorf("OpenAPI v2: %w", err)
	}
	if err := checkReferences(whole); err != nil {
		return nil, fmt.Errorf("OpenAPI v2: %w", err)
	}
	out := map[apischema.GroupVersion]*DocumentV2{}
	if whole.Paths == nil {
		return out, nil
	}
	// The library keeps definitions that no path at all uses, but not what these refer to.
	for name := range aggregator.FilterSpecByPathsWithoutSideEffects(whole, []string{"\x00"}).Definitions {
		delete(whole.Definitions, name)
	}
	for _, gv := range versions {
		one := aggregator.FilterSpecByPathsWithoutSideEffects(whole, []string{"/apis/" + gv.String() + "/"})
		if len(one.Paths.Paths) == 0 {
			continue
		}
		for name, p := range one.Paths.Paths {
			p.Extensions = nil
			one.Paths.Paths[name] = p
		}
		part := &spec.Swagger{SwaggerProps: spec.SwaggerProps{
			Swagger: "2.0", Info: &spec.Info{InfoProps: spec.InfoProps{Title: gv.String(), Version: gv.Version}},
			Paths: &spec.Paths{Paths: one.Paths.Paths}, Definitions: one.Definitions, Parameters: map[string]spec.Parameter{},
		}}
		if err := references(part.Paths, func(ref string) error {
			if name, ok := strings.CutPrefix(ref, parameterRef); ok {
				part.Parameters[name] = whole.Parameters[name]
			}
			return nil
		}); err != nil {
			return nil, err
		}
		if err := checkReferences(part); err != nil {
			return nil, fmt.Errorf("OpenAPI v2 of %s: %w", gv, err)
		}
		data, err := json.Marshal(part)
		if err != nil {
			return nil, fmt.Errorf("OpenAPI v2 of %s: %w", gv, err)
		}
		if err := readable(data); err != nil {
			return nil, fmt.Errorf("OpenAPI v2 of %s: %w", gv, err)
		}
		out[gv] = &DocumentV2{JSON: data, Sum: fmt.Sprintf("%x", sha256.Sum256(data))}
	}
	return out, nil
}

// measure bounds how deep a document is, and how many values it has, before anything is made of it.
func measure(body []byte) error {
	depth, values := 0, 0
	var members [maxDepth + 1]int // of what is open
	inString := false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return fmt.Errorf("it is nested deeper than %d", maxDepth)
			}
			values++
			members[depth] = 1
		case c == '}' || c == ']':
			depth = max(0, depth-1)
		case c == ',':
			values++
			if members[depth]++; members[depth] > maxMembers {
				return fmt.Errorf("an object or list has more than %d members", maxMembers)
			}
		}
		if values > maxValues {
			return fmt.Errorf("it has more than %d values", maxValues)
		}
	}
	return nil
}

const (
	definitionRef = "#/definitions/"
	parameterRef  = "#/parameters/"
	kindsX        = "x-kubernetes-group-version-kind"
)

// checkReferences refuses references to what is not there, which would keep clients from reading the
// definitions of all others. Only operations may refer to parameters: the library follows a parameter that
// leads to itself for ever. And kinds are as the library wants them.
func checkReferences(s *spec.Swagger) error {
	for name, d := range s.Definitions {
		kinds, has := d.Extensions[kindsX]
		if !has {
			continue
		}
		list, ok := kinds.([]any)
		if !ok {
			return fmt.Errorf("the kinds of %.100q are no list", name)
		}
		for _, k := range list {
			if _, ok := k.(map[string]any); !ok {
				return fmt.Errorf("a kind of %.100q is no object", name)
			}
		}
	}
	check := func(part any, parameters bool) error {
		return references(part, func(ref string) error {
			if name, ok := strings.CutPrefix(ref, definitionRef); ok {
				if _, ok := s.Definitions[name]; ok {
					return nil
				}
			}
			if name, ok := strings.CutPrefix(ref, parameterRef); ok && parameters {
				if _, ok := s.Parameters[name]; ok {
					return nil
				}
			}
			return fmt.Errorf("a reference leads nowhere: %.200q", ref)
		})
	}
	return errors.Join(check(s.Definitions, false), check(s.Parameters, false), check(s.Paths, true))
}

// references calls visit with each reference of what the library has made of a part, which is what it will
// follow.
func references(part any, visit func(string) error) error {
	data, err := json.Marshal(part)
	if err != nil {
		return err
	}
	var tree any
	if err := json.Unmarshal(data, &tree); err != nil {
		return err
	}
	return eachReference(tree, visit)
}

// eachReference calls visit with each reference, and returns the first error.
func eachReference(tree any, visit func(string) error) error {
	switch t := tree.(type) {
	case map[string]any:
		for key, child := range t {
			if ref, ok := child.(string); ok && key == "$ref" {
				if err := visit(ref); err != nil {
					return err
				}
			}
			if err := eachReference(child, visit); err != nil {
				return err
			}
		}
	case []any:
		for _, child := range t {
			if err := eachReference(child, visit); err != nil {
				return err
			}
		}
	}
	return nil
}

// readable reads a document as kubectl does.
func readable(data []byte) error {
	doc, err := openapi_v2.ParseDocument(data)
	if err != nil {
		return err
	}
	_, err = proto.NewOpenAPIData(doc)
	return err
}
