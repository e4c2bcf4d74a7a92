package differential

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// creates is the namespace that creates go to. Nothing is stored there but what others need.
const creates = "creates"

// stored is an object that both have.
type stored struct {
	*sample
	collection, path string
	posted           map[string]any
	// there and here are what the servers have.
	there, here map[string]any
	// scale is its Scale in kube-apiserver, if it has one.
	scale map[string]any
}

// world is what requests are made of.
type world struct {
	pool      *pool
	resources map[string]*resource
	samples   []*sample
	bases     []*stored
	byKind    [][]*sample // those of each kind, sorted
	basesOf   [][]*stored
	values    map[string]map[string][]any
	forms     map[string]map[string][]string
	bounds    int // how many namespaces have an object that bounds others
	// unlike are objects that only one stored, or that were stored unlike.
	unlike []difference

	// What the pool of installed objects has beside those.
	definitions []map[string]any            // that were stored first
	bodies      map[string][]map[string]any // that are sent to subresources, by their kind
	scalable    [][]*stored                 // by their kind
	targets     map[string][]*stored        // of POSTs, by their kind
}

// prepare reads the objects, repairs them, and stores them in both servers.
func prepare(ctx context.Context, b both, p *pool, logf func(string, ...any)) (*world, error) {
	w := &world{pool: p}
	read, err := p.read(ctx, b, w)
	if err != nil {
		return nil, err
	}
	if err := b.needs(ctx, read); err != nil {
		return nil, err
	}
	begin := time.Now()
	repaired := 0
	for _, s := range read {
		if !s.resource.can("create") {
			continue
		}
		w.samples = append(w.samples, s)
		if s.target {
			if err := w.store(ctx, b, s); err != nil {
				return nil, err
			}
			continue
		}
		mended := s
		obj := cloneObject(s.obj)
		if s.fuzzed {
			meta := child(obj, "metadata")
			maps.DeleteFunc(meta, func(name string, _ any) bool { return name != "name" && name != "labels" && name != "annotations" })
			w.samples = append(w.samples, &sample{origin: s.origin + " (metadata left out)", resource: s.resource, obj: cloneObject(obj), fuzzed: true})
		}
		good, err := b.there.repair(ctx, s.resource, creates, obj)
		if err != nil {
			return nil, err
		}
		if good == nil {
			continue
		}
		if string(encode(good)) != string(encode(s.obj)) {
			mended = &sample{origin: s.origin + " (repaired)", resource: s.resource, obj: good, fuzzed: s.fuzzed}
			w.samples = append(w.samples, mended)
			repaired++
		}
		if err := w.store(ctx, b, mended); err != nil {
			return nil, err
		}
	}
	if err := w.read(ctx, b); err != nil {
		return nil, err
	}
	w.index()
	logf("%d objects of %d kinds, %d repaired, %d stored in both, in %.0f s", len(w.samples), len(w.byKind), repaired, len(w.bases), time.Since(begin).Seconds())
	return w, nil
}

// index sorts objects by kind, and collects their values.
func (w *world) index() {
	w.values, w.forms = map[string]map[string][]any{}, map[string]map[string][]string{}
	samples, bases := map[string][]*sample{}, map[string][]*stored{}
	for _, s := range w.samples {
		if !s.target {
			samples[s.resource.gvk()] = append(samples[s.resource.gvk()], s)
		}
	}
	for _, s := range w.bases {
		if !s.target {
			bases[s.resource.gvk()] = append(bases[s.resource.gvk()], s)
		}
	}
	for _, gvk := range slices.Sorted(maps.Keys(samples)) {
		w.byKind = append(w.byKind, samples[gvk])
		var objects []map[string]any
		for _, s := range samples[gvk] {
			objects = append(objects, s.obj)
		}
		w.values[gvk], w.forms[gvk] = neighbourhood(objects)
		if bases[gvk] != nil {
			w.basesOf = append(w.basesOf, bases[gvk])
		}
	}
	w.indexSubresources()
}

// needs makes what many objects refer to: namespaces, service accounts, classes.
func (b both) needs(ctx context.Context, samples []*sample) error {
	accounts, priorities, runtimes := map[string]bool{"default": true}, map[string]bool{}, map[string]bool{}
	for _, s := range samples {
		walk(nil, s.obj, func(p path, v any) {
			if len(p) == 0 || text(v) == "" {
				return
			}
			switch p[len(p)-1] {
			case "serviceAccountName":
				accounts[text(v)] = true
			case "priorityClassName":
				priorities[text(v)] = true
			case "runtimeClassName":
				runtimes[text(v)] = true
			}
		})
	}
	for _, ns := range namespaces {
		if err := b.make(ctx, "/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": ns}}); err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(accounts)) {
			if err := b.make(ctx, "/api/v1/namespaces/"+ns+"/serviceaccounts", map[string]any{"metadata": map[string]any{"name": name}}); err != nil {
				return err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(priorities)) {
		if err := b.make(ctx, "/apis/scheduling.k8s.io/v1/priorityclasses", map[string]any{"metadata": map[string]any{"name": name}, "value": 7}); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(runtimes)) {
		if err := b.make(ctx, "/apis/node.k8s.io/v1/runtimeclasses", map[string]any{"metadata": map[string]any{"name": name}, "handler": "a"}); err != nil {
			return err
		}
	}
	return nil
}

// make creates an object in both. One that cannot be, by its name, or is there, is left.
func (b both) make(ctx context.Context, path string, obj map[string]any) error {
	for _, s := range b.all() {
		a, err := s.send(ctx, http.MethodPost, path, "application/json", encode(obj))
		if err != nil {
			return err
		}
		if a.code >= 300 && a.code != http.StatusConflict && a.code != http.StatusUnprocessableEntity && a.code != http.StatusForbidden {
			return fmt.Errorf("%s: POST %s: %d %s", s.name, path, a.code, a.body)
		}
	}
	return nil
}

// namespaces are those in which objects are: objects of one kind and name are in different ones.
var namespaces = []string{creates, "stored-0", "stored-1", "stored-2", "stored-3",
	// Each has one object that bounds others.
	"bounds-0", "bounds-1", "bounds-2", "bounds-3", "bounds-4", "bounds-5", "bounds-6", "bounds-7", "bounds-8", "bounds-9"}

// store stores an object in both, if it does not change what becomes of others.
func (w *world) store(ctx context.Context, b both, s *sample) error {
	if !s.resource.can("get") || !s.resource.can("update") {
		return nil
	}
	obj := cloneObject(s.obj)
	name := text(field(obj, "metadata", "name"))
	tries := []struct{ namespace, name string }{{"", name}}
	switch kind := s.resource.Kind; {
	case strings.HasSuffix(kind, "WebhookConfiguration") || strings.Contains(kind, "AdmissionPolicy"):
		if !s.fuzzed {
			return nil // it may have rules for what others send
		}
	case kind == "ResourceQuota" || kind == "LimitRange":
		tries = nil
		for _, ns := range namespaces {
			if strings.HasPrefix(ns, "bounds") {
				tries = append(tries, struct{ namespace, name string }{ns, name})
			}
		}
		if w.bounds >= len(tries) {
			return nil
		}
		tries = tries[w.bounds : w.bounds+1]
		w.bounds++
	case s.resource.Namespaced:
		tries = nil
		for _, ns := range namespaces {
			if strings.HasPrefix(ns, "stored") {
				tries = append(tries, struct{ namespace, name string }{ns, name})
			}
		}
	case kind == "PriorityClass":
		delete(obj, "globalDefault")
	case kind == "StorageClass" || kind == "IngressClass" || kind == "VolumeAttributesClass":
		delete(child(obj, "metadata"), "annotations")
	}
	if !s.resource.Namespaced {
		tries = append([]struct{ namespace, name string }{{"", "stored-" + name}}, tries...)
	}
	for _, t := range tries {
		meta := child(obj, "metadata")
		if text(meta["generateName"]) != "" || t.name == "" {
			t.name = fmt.Sprintf("stored-%d", len(w.bases))
			delete(meta, "generateName")
		}
		meta["name"] = t.name
		collection := s.resource.collection(t.namespace)
		there, err := b.there.send(ctx, http.MethodPost, collection, "application/json", encode(obj))
		if err != nil {
			return err
		}
		if there.code >= 300 {
			continue
		}
		here, err := b.here.send(ctx, http.MethodPost, collection, "application/json", encode(obj))
		if err != nil {
			return err
		}
		if here.code >= 300 {
			w.unlike = append(w.unlike, compare(&request{resource: s.resource, verb: "create"}, there, here).example("prepare", s.origin))
			return nil
		}
		base := &stored{sample: s, collection: collection, path: collection + "/" + url.PathEscape(t.name), posted: cloneObject(obj)}
		w.bases = append(w.bases, base)
		return base.become(ctx, b)
	}
	return nil
}

// read reads what was stored, once nothing changes it any more.
func (w *world) read(ctx context.Context, b both) error {
	for _, s := range w.bases {
		if s.resource.Kind == "CustomResourceDefinition" {
			if err := b.established(ctx, s.path); err != nil {
				return err
			}
		}
	}
	for _, s := range w.bases {
		var err error
		if s.there, err = b.there.get(ctx, s.path); err != nil {
			return err
		}
		if s.here, err = b.here.get(ctx, s.path); err != nil {
			return err
		}
		if s.there == nil || s.here == nil {
			return fmt.Errorf("%s was stored and is not there", s.path)
		}
		if w.pool.subresources && s.resource.Subresources["scale"] != nil {
			if err := s.readScale(ctx, b.there); err != nil {
				return err
			}
		}
		d := differ{}
		if d.compare(nil, s.there, s.here); d.lines != nil {
			w.unlike = append(w.unlike, difference{otherObject, s.resource.gvk(), "prepare", d.lines, "prepare", s.origin})
		}
	}
	return nil
}

// established awaits that the controllers of both have written what they say of a definition.
func (b both) established(ctx context.Context, path string) error {
	for _, s := range b.all() {
		for range 100 {
			obj, err := s.get(ctx, path)
			if err != nil {
				return err
			}
			want := 2 // NamesAccepted, Established
			if strings.HasSuffix(text(field(obj, "spec", "group")), ".k8s.io") {
				want++ // KubernetesAPIApprovalPolicyConformant
			}
			conditions, _ := field(obj, "status", "conditions").([]any)
			installing := func(c any) bool { return text(field(c, "reason")) == "Installing" }
			if len(conditions) >= want && !slices.ContainsFunc(conditions, installing) {
				break
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}

// forHere is the object of kube-apiserver, or its Scale, with the values that only Quorate's has.
func (s *stored) forHere(there map[string]any) map[string]any {
	obj, swap := cloneObject(there), s.swap()
	walk(nil, there, func(p path, v any) {
		if len(p) == 0 {
			return
		}
		if t := text(v); t != "" && swap.Replace(t) != t {
			set(obj, p, swap.Replace(t))
			return
		}
		switch p.form() {
		case "metadata.resourceVersion", "metadata.creationTimestamp", "spec.clusterIP", "spec.clusterIPs", "spec.ports.nodePort", "spec.healthCheckNodePort":
			if v, ok := lookup(s.here, p); ok {
				set(obj, p, clone(v))
			}
			return
		}
		if t := s.timeHere(p, v); t != "" {
			set(obj, p, t)
		}
	})
	return obj
}

// timeHere is Quorate's time where kube-apiserver's object has one: when a condition became what it
// is. Empty: it is no time, or Quorate's object has none there.
func (s *stored) timeHere(p path, v any) string {
	if !now.MatchString(text(v)) {
		return ""
	}
	at := slices.Clone(p)
	if list := len(p) - 3; list >= 0 && p[list] == "conditions" { // they come in any order
		of, _ := lookup(s.there, p[:len(p)-1])
		all, _ := lookup(s.here, p[:list+1])
		conditions, _ := all.([]any)
		at[list+1] = slices.IndexFunc(conditions, func(c any) bool { return text(field(c, "type")) == text(field(of, "type")) })
		if at[list+1] == -1 {
			return ""
		}
	}
	t, _ := lookup(s.here, at)
	if !now.MatchString(text(t)) {
		return ""
	}
	return text(t)
}

// swap replaces what kube-apiserver has generated by what Quorate has: the uid, which labels of
// Jobs have too, the name of a Pod's token volume, and in JSON the address of a Service and the
// version.
func (s *stored) swap() *strings.Replacer {
	return strings.NewReplacer(pairs(generatedIn(s.there), generatedIn(s.here))...)
}

// condition is where Quorate's object has the condition that kube-apiserver's has at an index; -1
// if it has none. They come in the order in which they were found.
func (s *stored) condition(i int) int {
	there, _ := field(s.there, "status", "conditions").([]any)
	here, _ := field(s.here, "status", "conditions").([]any)
	if i < 0 || i >= len(there) {
		return -1
	}
	return slices.IndexFunc(here, func(c any) bool { return text(field(c, "type")) == text(field(there[i], "type")) })
}

// operationsForHere are the operations of a JSON patch of kube-apiserver's object, for Quorate's.
func (s *stored) operationsForHere(operations []any) (all []any) {
	const conditions = "/status/conditions/"
	for _, op := range operations {
		if rest, ok := strings.CutPrefix(text(field(op, "path")), conditions); ok {
			index, _, _ := strings.Cut(rest, "/")
			if i, err := strconv.Atoi(index); err == nil && s.condition(i) >= 0 {
				o := maps.Clone(op.(map[string]any))
				o["path"] = conditions + strconv.Itoa(s.condition(i)) + strings.TrimPrefix(rest, index)
				op = o
			}
		}
		all = append(all, op)
	}
	return all
}

// swapped is an object with its texts replaced: values of changes come from kube-apiserver's objects.
func swapped(obj map[string]any, swap *strings.Replacer) map[string]any {
	out, err := decode([]byte(swap.Replace(string(encode(obj)))))
	if err != nil {
		panic(err) // generated names need no quotes
	}
	return out
}

var tokenVolume = regexp.MustCompile(`^kube-api-access-[a-z0-9]{5}$`)

// generatedIn are the names that a server has made up in an object.
func generatedIn(obj map[string]any) []string {
	version := string(encode(field(obj, "metadata", "resourceVersion")))
	names := []string{
		text(field(obj, "metadata", "uid")), `"` + text(field(obj, "spec", "clusterIP")) + `"`,
		`"resourceVersion":` + version, `"/metadata/resourceVersion","value":` + version,
	}
	walk(nil, obj, func(_ path, v any) {
		if t := text(v); tokenVolume.MatchString(t) && !slices.Contains(names, t) {
			names = append(names, t)
		}
	})
	return names
}

// pairs are two lists as pairs.
func pairs(a, b []string) (all []string) {
	for i := range min(len(a), len(b)) {
		all = append(all, a[i], b[i])
	}
	return all
}
