package differential

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// request is one for both servers: they differ in what the stored object has of each, such as its uid.
type request struct {
	id          string // SEED:INDEX
	resource    *resource
	verb        string // as reports call it
	method      string
	path        string
	contentType string
	there, here []byte
	origin      string
	changes     []change
	// later is how much later Quorate is asked, if the other answer was recorded.
	later time.Duration
}

// way is how often something is done.
type way struct {
	verb   string
	weight int
}

// request makes the one of a seed and an index.
func (w *world) request(seed, index uint64) *request {
	q := w.make(seed, index)
	q.id = fmt.Sprintf("%d:%d", seed, index)
	return q
}

func (w *world) make(seed, index uint64) *request {
	r := rand.New(rand.NewPCG(seed, index))
	total := 0
	for _, way := range w.pool.ways {
		total += way.weight
	}
	n, verb := r.IntN(total), ""
	for _, way := range w.pool.ways {
		if n < way.weight {
			verb = way.verb
			break
		}
		n -= way.weight
	}
	switch {
	case verb == "create" || len(w.bases) == 0:
		return w.create(r)
	case verb == "scale":
		return w.rescale(r)
	case verb == "post":
		return w.post(r)
	}
	return w.change(r, verb)
}

// some is one of a list of lists: half the time each list is as likely, else each element.
func some[T any](r *rand.Rand, lists [][]T) T {
	if r.IntN(2) == 0 {
		return pick(r, pick(r, lists))
	}
	total := 0
	for _, l := range lists {
		total += len(l)
	}
	n := r.IntN(total)
	for _, l := range lists {
		if n < len(l) {
			return l[n]
		}
		n -= len(l)
	}
	panic("unreachable")
}

func (w *world) mutator(r *rand.Rand, of *resource) *mutator {
	return &mutator{r: r, values: w.values[of.gvk()], forms: w.forms[of.gvk()]}
}

// howMany changes an object gets.
func howMany(r *rand.Rand) int { return []int{0, 1, 1, 1, 1, 1, 1, 2, 2, 3}[r.IntN(10)] }

func parameters(r *rand.Rand, more ...string) string {
	q := url.Values{"dryRun": {"All"}}
	switch r.IntN(10) {
	case 0:
		q.Set("fieldValidation", "Strict")
	case 1:
		q.Set("fieldValidation", "Ignore")
	}
	for i := 0; i+1 < len(more); i += 2 {
		q.Set(more[i], more[i+1])
	}
	return "?" + q.Encode()
}

func (w *world) create(r *rand.Rand) *request {
	s := some(r, w.byKind)
	obj := cloneObject(s.obj)
	q := &request{resource: s.resource, verb: "create", method: http.MethodPost, contentType: "application/json", origin: s.origin}
	q.path = s.resource.collection(creates) + parameters(r)
	m := w.mutator(r, s.resource)
	for range howMany(r) {
		c := m.change(obj, "")
		c.apply(obj)
		q.changes = append(q.changes, c)
	}
	q.there = encode(obj)
	q.here = q.there
	return q
}

func (w *world) change(r *rand.Rand, verb string) *request {
	s := some(r, w.basesOf)
	q := &request{resource: s.resource, verb: verb, origin: s.origin}
	path, below := s.path, ""
	if verb == "subresource" {
		var subs []string
		for name, sub := range s.resource.Subresources {
			if sub.Kind == s.resource.Kind && sub.can("update") {
				subs = append(subs, name)
			}
		}
		if len(subs) == 0 {
			verb = "update"
			q.verb = verb
		} else {
			slices.Sort(subs)
			sub := pick(r, subs)
			path += "/" + sub
			verb = pick(r, []string{"update", "update", "json-patch", "merge-patch", "strategic-patch", "apply"})
			if sub == "status" && r.IntN(5) > 0 {
				below = "status"
			}
			if sub == "finalize" || !s.resource.Subresources[sub].can("patch") {
				verb = "update"
			}
			q.verb = verb + "/" + sub
		}
	}
	m := w.mutator(r, s.resource)
	there, here := cloneObject(s.there), s.forHere(s.there)
	if below != "" {
		// A status as the samples have it.
		if all := m.values["status"]; len(all) > 0 && (there["status"] == nil || r.IntN(2) == 0) {
			status := change{path: []any{"status"}, value: pick(r, all)}
			q.changes = append(q.changes, status)
		}
	}
	q.write(r, m, verb, path, below, s, there, here)
	return q
}

// write makes the request a write of that verb: of what is there, with the changes that the
// request has and some more. here is the same as there, with Quorate's own values, which it has where
// s has them.
func (q *request) write(r *rand.Rand, m *mutator, verb, path, below string, s *stored, there, here map[string]any) {
	mutated := cloneObject(there)
	for _, c := range q.changes {
		c.apply(mutated)
	}
	var operations []any
	for _, c := range q.changes {
		operations = append(operations, c.operation(there))
	}
	for range howMany(r) {
		c := m.change(mutated, below)
		operations = append(operations, c.operation(mutated))
		c.apply(mutated)
		q.changes = append(q.changes, c)
	}
	body := func(obj map[string]any, swap *strings.Replacer) []byte {
		before := cloneObject(obj)
		for _, c := range q.changes {
			c.apply(obj)
		}
		obj = swapped(obj, swap)
		switch verb {
		case "json-patch":
			if operations == nil {
				return []byte("[]")
			}
			return []byte(swap.Replace(string(encode(operations))))
		case "merge-patch", "strategic-patch":
			return encode(mergePatch(before, obj))
		case "apply":
			meta := child(obj, "metadata")
			for _, name := range []string{"managedFields", "uid", "resourceVersion", "creationTimestamp", "generation"} {
				if was, _ := lookup(before, []any{"metadata", name}); string(encode(was)) == string(encode(meta[name])) {
					delete(meta, name)
				}
			}
		}
		return encode(obj)
	}
	// Without its resourceVersion an update needs no server's own values, mostly.
	q.there = body(there, strings.NewReplacer())
	operations = s.operationsForHere(operations)
	q.here = body(here, s.swap())
	q.method = http.MethodPatch
	switch verb {
	case "update":
		q.method, q.contentType = http.MethodPut, "application/json"
	case "json-patch":
		q.contentType = "application/json-patch+json"
	case "merge-patch":
		q.contentType = "application/merge-patch+json"
	case "strategic-patch":
		q.contentType = "application/strategic-merge-patch+json"
	case "apply":
		q.contentType = "application/apply-patch+yaml"
	}
	if verb == "apply" {
		q.path = path + parameters(r, "fieldManager", "applier", "force", pick(r, []string{"true", "true", "true", "false"}))
	} else {
		q.path = path + parameters(r)
	}
}

// send sends the request to both at once.
func (b both) send(ctx context.Context, q *request) (there, here *answer, err error) {
	done := make(chan error, 1)
	go func() {
		var err error
		here, err = b.here.sendAs(ctx, q.id, q.method, q.path, q.contentType, q.here)
		done <- err
	}()
	there, errThere := b.there.sendAs(ctx, q.id, q.method, q.path, q.contentType, q.there)
	if errHere := <-done; errHere != nil {
		return nil, nil, errHere
	}
	return there, here, errThere
}
