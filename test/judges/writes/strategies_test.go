package writes

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/objects/objectstest"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/schema"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/types/validation"
	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/judges/random"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"sigs.k8s.io/randfill"
)

var (
	count = flag.Int("objects", 60, "objects of each resource")
	first = flag.Int64("first", 1, "the first seed")
)

// few words, so that texts in different places are often the same, as labels and the keys that name them.
var few = []string{"", "a", "b", "b"}

// metadata are those of a random object. They are valid, because they are checked beside what a strategy does.
func metadata(m *metav1.ObjectMeta, c randfill.Continue) {
	some := func() bool { return c.Intn(3) == 0 }
	m.Name, m.Generation = "n", int64(c.Intn(3))
	for _, key := range []string{"a", "b", "TCP"} {
		if some() {
			metav1.SetMetaDataLabel(m, key, []string{"x", "y", ""}[c.Intn(3)])
		}
		if some() {
			metav1.SetMetaDataAnnotation(m, key, "x")
		}
	}
	if some() {
		m.Finalizers = []string{"example.com/f"}
	}
	if some() {
		m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "o", UID: "u"}}
	}
	if some() {
		m.CreationTimestamp = metav1.Unix(1<<30, 0)
	}
}

// found is what a validation says of an object: what is wrong with it, and what is told its writer.
type found struct {
	errs     field.ErrorList
	warnings []string
	panicked bool
}

// recorded takes the place of a kind's validation, which says its own: everything is taken, because random objects are seldom
// valid.
type recorded struct {
	objects.Validation
	last *found
}

func (r recorded) Create(obj tree.Object, namespaced bool, _ *[]string) field.ErrorList {
	*r.last = found{}
	r.last.errs = r.Validation.Create(obj, namespaced, &r.last.warnings)
	return nil
}

func (r recorded) Update(subresource string, obj, old tree.Object, namespaced bool, _ *[]string) field.ErrorList {
	*r.last = found{}
	warnings := &r.last.warnings
	if subresource != "" {
		warnings = nil // as package objects asks
	}
	r.last.errs = r.Validation.Update(subresource, obj, old, namespaced, warnings)
	return nil
}

// taking is a strategy of upstream's that takes everything, and says what is wrong.
type taking struct {
	strategy
	last *found
}

func (s taking) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	*s.last = found{panicked: true}
	defer func() { _ = recover() }()
	s.last.errs = s.strategy.Validate(ctx, obj)
	if len(s.last.errs) == 0 {
		s.last.warnings = s.strategy.WarningsOnCreate(ctx, obj)
	}
	s.last.panicked = false
	return nil
}

func (taking) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }

// takingUpdate is the same of updates.
type takingUpdate struct {
	rest.RESTUpdateStrategy
	last *found
}

func (s takingUpdate) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	*s.last = found{panicked: true}
	defer func() { _ = recover() }()
	s.last.errs = s.RESTUpdateStrategy.ValidateUpdate(ctx, obj, old)
	if len(s.last.errs) == 0 {
		s.last.warnings = s.RESTUpdateStrategy.WarningsOnUpdate(ctx, obj, old)
	}
	s.last.panicked = false
	return nil
}

func (takingUpdate) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

// judge holds one resource to upstream's strategy.
type judge struct {
	t     *testing.T
	c     *objectstest.Case
	res   *kinds.Resource
	model *schema.Model
	found random.Differences
	tried int
	// What was said of the last write here and there.
	ours, theirs found
}

func newJudge(t *testing.T, res *kinds.Resource) *judge {
	model, err := schema.Lookup(res.Model)
	must.OK(t, err)
	c := objectstest.NewCase(t, objectstest.Options{})
	own := objects.Strategy{}
	if s := c.Store.Store.Strategies[res.CodeName()]; s != nil {
		own = *s
	}
	j := &judge{t: t, c: c, res: res, model: model, found: random.Differences{}}
	own.Validation, own.ValidateWith, own.Warnings = recorded{validation.Of(res.CodeName()), &j.ours}, nil, nil
	if own.Held != nil {
		own.Allocate = nil // which validates what it gives
	}
	c.Store.Store.Strategies[res.CodeName()] = &own
	return j
}

// op is a write here.
func (j *judge) op(verb, subresource, name string) *objects.Op {
	resource := j.res.CodeName() + "@" + j.res.Version
	if subresource != "" {
		resource += "/" + subresource
	}
	if j.res.Namespaced {
		return j.c.Op(verb, resource, "default/"+name)
	}
	return j.c.Op(verb, resource, "/"+name)
}

// context is that of a write there.
func (j *judge) context(verb, subresource, name string) context.Context {
	ctx := request.WithNamespace(request.NewContext(), metav1.NamespaceNone)
	ctx = request.WithUser(ctx, &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}})
	info := &request.RequestInfo{IsResourceRequest: true, Verb: verb, APIGroup: j.res.Group, APIVersion: j.res.Version, Resource: j.res.Plural, Subresource: subresource, Name: name}
	if j.res.Namespaced {
		info.Namespace = "default"
		ctx = request.WithNamespace(ctx, "default")
	}
	return request.WithRequestInfo(ctx, info)
}

// shown is what came of a write, as a client sees it.
func (j *judge) shown(o *objects.Op, w objects.Written) tree.Object {
	v, err := o.ConvertOne(w.Version)
	must.OK(j.t, err)
	obj, err := codec.DecodeStored(j.res, v)
	must.OK(j.t, err)
	return obj
}

// created is what becomes of a new object here.
func (j *judge) created(body tree.Object) (tree.Object, error) {
	o := j.op("create", "", "")
	w, err := o.CreateSent("", text(body))
	if err != nil {
		return nil, err
	}
	return j.shown(o, w), nil
}

// createdUpstream is what becomes of it there. What is generated comes from ours.
func (j *judge) createdUpstream(up strategy, body, ours tree.Object) (tree.Object, error) {
	obj, err := random.Read(j.t, body, j.res.GVK())
	if err != nil {
		return nil, err
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	rest.FillObjectMetaSystemFields(m)
	was, made := tree.As(ours["metadata"]), metav1.Time{}
	if err := made.UnmarshalQueryParameter(tree.Text(was, "creationTimestamp")); err != nil {
		return nil, err
	}
	m.SetUID(types.UID(tree.Text(was, "uid")))
	m.SetCreationTimestamp(made)
	if err := rest.BeforeCreate(taking{up, &j.theirs}, j.context("create", "", m.GetName()), obj); err != nil {
		return nil, err
	}
	return j.kept(obj)
}

// updated is what becomes of an object here that is put in the place of another.
func (j *judge) updated(subresource, name string, body tree.Object) (obj tree.Object, err error) {
	o := j.op("update", subresource, name)
	on := objects.Whole
	if subresource != "" {
		on = objects.PartOf(objects.CopyStatus)
		if take := o.Strategy().Parts[subresource]; take != nil {
			on = objects.PartOf(take)
		}
	}
	want, err := o.DecodePut("", text(body), on)
	if err != nil {
		return nil, err
	}
	w, err := o.Modify(want, on)
	if err != nil || w.Deleted {
		return nil, err
	}
	return j.shown(o, w), nil
}

// updatedUpstream is what becomes of it there.
func (j *judge) updatedUpstream(up rest.RESTUpdateStrategy, subresource, name string, body, old tree.Object) (tree.Object, error) {
	was, err := random.Read(j.t, old, j.res.GVK())
	if err != nil {
		return nil, err
	}
	obj, err := random.Read(j.t, body, j.res.GVK())
	if err != nil {
		return nil, err
	}
	if err := rest.BeforeUpdate(takingUpdate{up, &j.theirs}, j.context("update", subresource, name), obj, was); err != nil {
		return nil, err
	}
	return j.kept(obj)
}

// kept is an internal object as clients see it once it is stored.
func (j *judge) kept(internal runtime.Object) (tree.Object, error) {
	gvk := j.res.GVK()
	obj, err := random.Keep(internal, gvk)
	if err != nil {
		return nil, err
	}
	legacyscheme.Scheme.Default(obj)
	if obj, err = legacyscheme.Scheme.ConvertToVersion(obj, random.Internal(gvk)); err != nil {
		return nil, err
	}
	if obj, err = legacyscheme.Scheme.ConvertToVersion(obj, gvk.GroupVersion()); err != nil {
		return nil, err
	}
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	return random.Tree(j.t, obj), nil
}

// compare counts where both differ: objects, or whether there is one.
func (j *judge) compare(verb string, upstream, ours tree.Object, refusal, refusalHere error) {
	j.tried++
	switch {
	case refusal != nil && refusalHere != nil:
	case refusal != nil:
		j.found.Add(verb+" refused upstream", refusal.Error(), "")
	case refusalHere != nil:
		j.found.Add(verb+" refused here", "", refusalHere.Error())
	case ours != nil: // it was not deleted
		ours = runtime.DeepCopyJSON(ours)
		j.model.Fill(ours)
		for _, obj := range []tree.Object{upstream, ours} {
			m := tree.As(obj["metadata"])
			delete(m, "resourceVersion") // of the store
			delete(m, "managedFields")   // which no strategy makes
		}
		if settled(upstream); !reflect.DeepEqual(upstream, settled(ours)) {
			j.found.Compare(verb, upstream, ours)
			return
		}
		j.compareFound(verb)
	}
}

// compareFound counts where both say something else of the same object.
func (j *judge) compareFound(verb string) {
	if j.theirs.panicked {
		return // of an object that comes by no validation of its kind
	}
	count := func(at string, upstream, ours []string) {
		for _, s := range upstream {
			if !slices.Contains(ours, s) {
				j.found.Add(at, s, "")
			}
		}
		for _, s := range ours {
			if !slices.Contains(upstream, s) {
				j.found.Add(at, "", s)
			}
		}
	}
	texts := func(errs field.ErrorList) (out []string) {
		for _, e := range errs {
			// The value is left out: it may have empty lists where the other has none, as may what it is held against.
			detail, _, _ := strings.Cut(e.Detail, "\n")
			out = append(out, fmt.Sprintf("%s: %v: %s", e.Field, e.Type, detail))
		}
		return out
	}
	upstream, ours := texts(j.theirs.errs), texts(j.ours.errs)
	count(verb+" finds", upstream, ours)
	if len(upstream) == 0 && len(ours) == 0 {
		count(verb+" warns", j.theirs.warnings, j.ours.warnings)
	}
}

// settled is a value with one name for all times of this run: random objects have older ones.
func settled(v any) any {
	switch x := v.(type) {
	case tree.Object:
		for name := range x {
			x[name] = settled(x[name])
		}
	case []any:
		for i := range x {
			x[i] = settled(x[i])
		}
	case string:
		if at, err := time.Parse(time.RFC3339, x); err == nil && at.Year() >= 2026 {
			return "now"
		}
	}
	return v
}

func text(body tree.Object) []byte {
	b, err := json.Marshal(body)
	if err != nil {
		panic(err) // of a tree it cannot
	}
	return b
}

// body is a random object of a seed.
func (j *judge) body(seed int64, name string) tree.Object {
	obj, err := legacyscheme.Scheme.New(j.res.GVK())
	must.OK(j.t, err)
	filler := random.Filler{Metadata: metadata}
	if seed%2 == 0 {
		filler.Words, filler.Absent = few, 0.35
	}
	filler.Fill(seed, obj)
	obj.GetObjectKind().SetGroupVersionKind(j.res.GVK())
	out := random.Tree(j.t, obj)
	tree.As(out["metadata"])["name"] = name
	return out
}

// mixed has of each field that which one of two objects has.
func mixed(c *rand.Rand, a, b any) any {
	x, y := tree.As(a), tree.As(b)
	switch {
	case c.IntN(3) == 0:
		return runtime.DeepCopyJSONValue(b)
	case x == nil || y == nil:
		return runtime.DeepCopyJSONValue(a)
	}
	out := tree.Object{}
	for _, name := range slices.Sorted(maps.Keys(x)) {
		out[name] = mixed(c, x[name], y[name])
	}
	for _, name := range slices.Sorted(maps.Keys(y)) {
		if _, ok := x[name]; !ok && c.IntN(2) == 0 {
			out[name] = runtime.DeepCopyJSONValue(y[name])
		}
	}
	return out
}

// next is a body for an update of an object: some of it is as it was.
func (j *judge) next(seed int64, name string, old tree.Object) tree.Object {
	out := mixed(rand.New(rand.NewPCG(uint64(seed), 2)), old, j.body(seed, name)).(tree.Object)
	m := tree.Clone(out["metadata"])
	out["metadata"] = m
	out["kind"], out["apiVersion"] = j.res.Kind, j.res.GroupVersion().String()
	m["name"], m["resourceVersion"] = name, tree.Text(tree.As(old["metadata"]), "resourceVersion")
	for _, field := range []string{"uid", "managedFields", "namespace"} {
		delete(m, field)
	}
	return out
}

// play writes one object in all ways.
func (j *judge) play(up strategies, seed int64) {
	name := fmt.Sprint("n", seed)
	body := j.body(seed, name)
	ours, err := j.created(body)
	if err != nil {
		j.compare("create", nil, nil, nil, err)
		return
	}
	theirs, refusal := j.createdUpstream(up.whole, body, ours)
	j.compare("create", theirs, ours, refusal, nil)
	for i, sub := range append([]string{"", ""}, slices.Sorted(maps.Keys(up.parts))...) {
		verb, of := "update", rest.RESTUpdateStrategy(up.whole)
		if sub != "" {
			verb, of = "update of "+sub, up.parts[sub]
		}
		old := ours
		body := j.next(seed+int64(i+1)<<32, name, old)
		theirs, refusal := j.updatedUpstream(of, sub, name, body, old)
		if ours, err = j.updated(sub, name, body); err == nil && ours == nil {
			return // its last finalizer has gone
		}
		j.compare(verb, theirs, ours, refusal, err)
		if err != nil {
			return
		}
	}
}

// accept reports whether a difference is one of those that are known, or below one.
func accept(known map[string]bool, difference string) bool {
	for line := range known {
		if rest, ok := strings.CutPrefix(difference, line); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return true
		}
	}
	return false
}

// TestStrategies: a new object, and one that takes the place of another, become what upstream's strategies make of them, and the same
// writes are allowed.
func TestStrategies(t *testing.T) {
	registry, err := kinds.Available()
	must.OK(t, err)
	served, err := kinds.Builtin() // by default, and in the stores of tests
	must.OK(t, err)
	accepted := random.Known(t, "testdata/strategies.txt")
	resources, tried := 0, 0
	for _, res := range registry.All() {
		if res.Virtual || res.JSONOnly { // those are this server's own
			continue
		}
		up, ok := upstreams[res.CodeName()]
		if !ok {
			t.Errorf("%s has no strategy in the table", res.CodeName())
			continue
		}
		resources++
		for _, f := range []struct {
			name       string
			ours, want bool
		}{
			{"createOnUpdate", res.CreateOnUpdate, up.whole.AllowCreateOnUpdate()},
			{"unconditionalUpdate", res.UnconditionalUpdate, up.whole.AllowUnconditionalUpdate()},
			{"namespaced", res.Namespaced, up.whole.NamespaceScoped()},
		} {
			if f.ours != f.want {
				t.Errorf("%s, %s: %v, upstream %v", res.GVR(), f.name, f.ours, f.want)
			}
		}
		if !legacyscheme.Scheme.Recognizes(res.GVK()) || served.Lookup(res.GVR()) == nil {
			continue
		}
		j := newJudge(t, res)
		for n := range *count {
			j.play(up, *first+int64(n))
		}
		tried += j.tried
		for _, path := range slices.Sorted(maps.Keys(j.found)) {
			if accept(accepted, res.Kind+" "+path) {
				continue
			}
			t.Errorf("%s, %s: %d of %d: %s", res.GVR(), path, j.found[path].Count, j.tried, j.found[path].Example)
		}
	}
	t.Logf("%d resources, %d writes", resources, tried)
}
