package differential

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// posts are the subresources that are POSTed, and what is sent to them.
var posts = []struct{ gvk, subresource, kind string }{
	{"v1/Pod", "eviction", "Eviction"}, {"v1/Pod", "binding", "Binding"}, {"v1/ServiceAccount", "token", "TokenRequest"},
}

// readBodies reads what is sent to subresources, by kind: the objects of k8s.io/api, which have
// every field, and those of testdata/bodies.yaml.
func readBodies() (map[string][]map[string]any, error) {
	api, err := moduleDir(".", "k8s.io/api")
	if err != nil {
		return nil, err
	}
	bodies := map[string][]map[string]any{}
	for _, file := range []string{
		"autoscaling.v1.Scale.json", "apps.v1beta2.Scale.json", "policy.v1.Eviction.json", "policy.v1beta1.Eviction.json", "core.v1.Binding.json", "authentication.k8s.io.v1.TokenRequest.json",
	} {
		raw, err := os.ReadFile(filepath.Join(api, "testdata/HEAD", file))
		if err != nil {
			return nil, err
		}
		for _, obj := range objectsIn(raw) {
			bodies[text(obj["kind"])] = append(bodies[text(obj["kind"])], obj)
		}
	}
	raw, err := os.ReadFile("testdata/bodies.yaml")
	if err != nil {
		return nil, err
	}
	for _, obj := range objectsIn(raw) {
		bodies[text(obj["kind"])] = append(bodies[text(obj["kind"])], obj)
	}
	return bodies, nil
}

// indexSubresources sorts what subresources are written of.
func (w *world) indexSubresources() {
	if !w.pool.subresources {
		return
	}
	scalable := map[string][]*stored{}
	w.targets = map[string][]*stored{}
	bodies := maps.Clone(w.bodies)
	for _, s := range w.bases {
		gvk := s.resource.gvk()
		w.targets[gvk] = append(w.targets[gvk], s)
		if s.scale != nil {
			scalable[gvk] = append(scalable[gvk], s)
			bodies["Scale"] = append(bodies["Scale"], s.scale)
		}
	}
	for _, gvk := range slices.Sorted(maps.Keys(scalable)) {
		w.scalable = append(w.scalable, scalable[gvk])
	}
	for kind, objects := range bodies {
		w.values[kind], w.forms[kind] = neighbourhood(objects)
	}
}

// readScale reads the Scale of an object. Of one that does not say how many it wants
// kube-apiserver shows none, but takes one.
func (s *stored) readScale(ctx context.Context, there *server) error {
	a, err := there.send(ctx, http.MethodGet, s.path+"/scale", "", nil)
	if err != nil {
		return err
	}
	if a.code == http.StatusOK {
		s.scale, err = decode(a.body)
		return err
	}
	meta := map[string]any{}
	for _, name := range []string{"name", "namespace", "uid", "resourceVersion", "creationTimestamp"} {
		meta[name] = field(s.there, "metadata", name)
	}
	s.scale = map[string]any{"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": meta, "spec": map[string]any{"replicas": 1}}
	return nil
}

// missing is now and then the path of an object that is not there.
func missing(r *rand.Rand, s *stored) string {
	if r.IntN(40) == 0 {
		return s.collection + "/missing"
	}
	return s.path
}

// rescale writes the Scale of an object.
func (w *world) rescale(r *rand.Rand) *request {
	s := some(r, w.scalable)
	verb := pick(r, []string{"update", "update", "update", "json-patch", "merge-patch", "strategic-patch", "apply"})
	q := &request{resource: s.resource, verb: verb + "/scale", origin: s.origin}
	m := &mutator{r: r, values: w.values["Scale"], forms: w.forms["Scale"]}
	below := ""
	if r.IntN(3) == 0 {
		below = "spec"
	}
	there, here := cloneObject(s.scale), s.forHere(s.scale)
	if r.IntN(4) == 0 {
		for _, obj := range []map[string]any{there, here} {
			delete(child(obj, "metadata"), "resourceVersion")
		}
	}
	q.write(r, m, verb, missing(r, s)+"/scale", below, s, there, here)
	return q
}

// post POSTs below an object.
func (w *world) post(r *rand.Rand) *request {
	p := pick(r, posts)
	s := pick(r, w.targets[p.gvk])
	q := &request{resource: s.resource, verb: "create/" + p.subresource, method: http.MethodPost, contentType: "application/json", origin: s.origin}
	q.path = missing(r, s) + "/" + p.subresource + parameters(r)
	body := cloneObject(pick(r, w.bodies[p.kind]))
	if r.IntN(3) > 0 {
		meta := child(body, "metadata")
		maps.DeleteFunc(meta, func(name string, _ any) bool { return name != "labels" && name != "annotations" })
	}
	if r.IntN(10) > 0 {
		child(body, "metadata")["name"] = field(s.there, "metadata", "name")
	}
	m := &mutator{r: r, values: w.values[p.kind], forms: w.forms[p.kind]}
	for range howMany(r) {
		c := m.change(body, "")
		c.apply(body)
		q.changes = append(q.changes, c)
	}
	// What the object is to be is as the server has it.
	of := func(obj map[string]any) []byte {
		meta := func(name string) string { return text(field(obj, "metadata", name)) }
		return []byte(strings.NewReplacer("<uid>", meta("uid"), "<resourceVersion>", meta("resourceVersion")).Replace(string(encode(body))))
	}
	q.there, q.here = of(s.there), of(s.here)
	return q
}

// become makes of an object that was stored what it is to be: with its status, and deleting.
func (s *stored) become(ctx context.Context, b both) error {
	if !s.target {
		return nil
	}
	for _, server := range b.all() {
		if server == nil {
			continue
		}
		do := func(method, path, contentType string, body []byte) error {
			a, err := server.send(ctx, method, path, contentType, body)
			if err == nil && a.code >= 300 {
				err = fmt.Errorf("%s: %s %s: %d %s", server.name, method, path, a.code, a.body)
			}
			return err
		}
		if status := s.obj["status"]; status != nil {
			if err := do(http.MethodPatch, s.path+"/status", "application/merge-patch+json", encode(map[string]any{"status": status})); err != nil {
				return err
			}
		}
		if _, ok := field(s.obj, "metadata", "annotations", "deleted").(string); ok {
			if err := do(http.MethodDelete, s.path, "", nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// served awaits that both serve what a definition defines.
func (b both) served(ctx context.Context, d map[string]any) error {
	versions, _ := field(d, "spec", "versions").([]any)
	for _, v := range versions {
		if on, _ := field(v, "served").(bool); !on {
			continue
		}
		group, plural := text(field(d, "spec", "group")), text(field(d, "spec", "names", "plural"))
		path := "/apis/" + group + "/" + text(field(v, "name")) + "/" + plural
		for _, s := range b.all() {
			var last *answer
			for range 200 {
				var err error
				if last, err = s.send(ctx, http.MethodGet, path, "", nil); err != nil {
					return err
				}
				if last.code == http.StatusOK {
					break
				}
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(100 * time.Millisecond):
				}
			}
			if last.code != http.StatusOK {
				return fmt.Errorf("%s: GET %s: %d", s.name, path, last.code)
			}
		}
	}
	return nil
}

// claims are those of a token, without what differs from run to run: who has signed it, when, and
// with what number.
func claims(token string) map[string]any {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return nil
	}
	var c map[string]any
	if json.Unmarshal(raw, &c) != nil {
		return nil
	}
	from, _ := c["iat"].(float64)
	for _, name := range []string{"exp", "nbf"} {
		if at, ok := c[name].(float64); ok {
			c[name] = at - from
		}
	}
	if late, ok := field(c, "kubernetes.io", "warnafter").(float64); ok {
		child(c, "kubernetes.io")["warnafter"] = late - from
	}
	delete(c, "iat")
	if c["jti"] != nil {
		c["jti"] = "<random>"
	}
	return c
}
