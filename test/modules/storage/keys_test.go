package storage

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/types/kinds"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/storage"
)

// prefix is what the suite's keys begin with.
const prefix = "/pods/"

// nowhere is the namespace of the suite's objects that have none although their
// kind is namespaced. It sorts before all others, as an empty one does.
const nowhere = "-"

// resources are enough kinds for every test, alike but for their tables.
func resources(namespaced, cluster int) []*kinds.Resource {
	var out []*kinds.Resource
	for i := range namespaced + cluster {
		out = append(out, &kinds.Resource{
			Group: examplev1.SchemeGroupVersion.Group, Version: examplev1.SchemeGroupVersion.Version,
			Kind: "Pod", Plural: fmt.Sprintf("pods%d", i), Singular: "pod", Namespaced: i < namespaced,
			Verbs:            []string{"get", "list", "watch"},
			SelectableFields: []kinds.SelectableField{{Path: "spec.nodeName"}},
		})
	}
	return out
}

// kind takes a kind that no test has used.
func (c *cluster) kind(t *testing.T, namespaced bool) *kinds.Resource {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, r := range c.kinds {
		if r != nil && r.Namespaced == namespaced {
			c.kinds[i] = nil
			return r
		}
	}
	t.Fatal("there are not enough kinds")
	return nil
}

// place is what a key of the suite means.
type place struct {
	namespace string
	name      string
	// nothing is set for keys that are neither an object's nor those of all
	// objects of a namespace or a kind. Nothing is there.
	nothing bool
}

// place reads a key.
func (a *adapter) place(key string, recursive bool) (place, error) {
	prepared, err := storage.PrepareKey(prefix, key, recursive)
	if err != nil {
		return place{}, err
	}
	segments := strings.Split(strings.TrimPrefix(prepared, prefix), "/")
	depth := len(segments) - 1
	switch {
	case recursive && depth == 0:
		return place{}, nil
	case recursive && depth == 1 && a.res.Namespaced:
		return place{namespace: segments[0]}, nil
	case recursive || segments[depth] == "":
		return place{nothing: true}, nil
	case !a.res.Namespaced && depth == 0:
		return place{name: segments[0]}, nil
	case a.res.Namespaced && depth == 0:
		return place{namespace: nowhere, name: segments[0]}, nil
	case a.res.Namespaced && depth == 1 && segments[0] == "":
		return place{namespace: nowhere, name: segments[1]}, nil
	case a.res.Namespaced && depth == 1:
		return place{namespace: segments[0], name: segments[1]}, nil
	}
	return place{nothing: true}, nil
}

// object is the place of one object.
func (a *adapter) object(key string) (place, error) {
	p, err := a.place(key, false)
	if err == nil && p.nothing {
		err = fmt.Errorf("%q is not the key of an object", key)
	}
	return p, err
}

// path is the place's path at the API server.
func (a *adapter) path(p place, withName bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "/apis/%s/%s", a.res.Group, a.res.Version)
	if p.namespace != "" {
		b.WriteString("/namespaces/" + url.PathEscape(p.namespace))
	}
	b.WriteString("/" + a.res.Plural)
	if withName {
		b.WriteString("/" + url.PathEscape(p.name))
	}
	return b.String()
}

// position is what a continue token says, as clients carry it.
type position struct {
	Version  string `json:"v"`
	Revision int64  `json:"rv"`
	Start    string `json:"start"`
}

// translate rewrites the start of a continue token. Upstream's are relative to the
// listed prefix, ours to the table. What is no token is left to the server to
// refuse.
func translate(text string, change func(start string) string) string {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return text
	}
	var t position
	if json.Unmarshal(raw, &t) != nil || t.Start == "" {
		return text
	}
	t.Start = change(t.Start)
	if raw, err = json.Marshal(t); err != nil {
		return text
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}
