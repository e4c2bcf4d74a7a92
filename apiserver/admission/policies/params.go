package policies

import (
	"context"
	"fmt"
	goruntime "runtime"
	"slices"
	"sync"
	"weak"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/internal/slots"
	"github.com/quorate/quorate/raftstore/mvcc"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	stderrors "errors"
)

// maxParamBytes is what is kept of decoded parameters, as they are stored; decoded they take a
// few times as much.
const maxParamBytes = 8 << 20

// manyParamBytes is what a decision may decode beside others. More than that has a turn.
const manyParamBytes = 1 << 20

// params read the objects that bindings refer to. What is decoded is shared by all decisions
// by its version: as long as it is kept, and as long as one of them uses it. Without the latter
// each of many decisions at a time would hold a copy of parameters that are more than is kept,
// which those decide who may write what a selector of a binding finds. Safe for concurrent use.
type params struct {
	Config
	turn chan struct{} // holds one while a decision decodes many parameters

	mu    sync.Mutex
	kept  map[paramKey]*unstructured.Unstructured
	bytes int
	used  map[paramKey]weak.Pointer[unstructured.Unstructured]
}

func newParams(cfg Config) *params {
	return &params{Config: cfg, turn: make(chan struct{}, 1), used: map[paramKey]weak.Pointer[unstructured.Unstructured]{}}
}

// paramKey is a version in the form of a resource.
type paramKey struct {
	version *mvcc.Version
	of      *kinds.Resource
}

// bind returns the hooks of one decision: those with parameters read them in its context, and
// tell its attributes what they have read.
func bind[P, B stored, E any](ctx context.Context, p *params, s *source[P, B, E], c *concern[P, B, E], a *admission.Attributes) []generic.PolicyHook[P, B, E] {
	if !c.params {
		return c.hooks
	}
	all := slices.Clone(c.hooks)
	for i := range all {
		h := &all[i]
		if kind := s.policy(h.Policy).GetParamKind(); kind != nil {
			h.ParamInformer, h.ParamScope, h.ConfigurationError = p.of(ctx, kind, a)
		}
	}
	return all
}

// of returns what reads the objects of a kind. The error is for the client, in upstream's
// words: the kind is not served.
func (p *params) of(ctx context.Context, kind *admissionregistrationv1.ParamKind, a *admission.Attributes) (informers.GenericInformer, meta.RESTScope, error) {
	gv, err := schema.ParseGroupVersion(kind.APIVersion)
	if err != nil {
		return nil, nil, fmt.Errorf("failed to parse paramKind APIVersion: %w", err)
	}
	res := p.Kinds.Resource(gv.WithKind(kind.Kind))
	if res == nil || res.Virtual {
		return nil, nil, fmt.Errorf("failed to find resource referenced by paramKind: '%v'", gv.WithKind(kind.Kind))
	}
	scope := meta.RESTScopeRoot
	if res.Namespaced {
		scope = meta.RESTScopeNamespace
	}
	return &paramReader{params: p, ctx: ctx, res: res, a: a}, scope, nil
}

// paramReader stands for an informer of one resource, for one decision.
type paramReader struct {
	*params
	ctx       context.Context
	res       *kinds.Resource
	a         *admission.Attributes
	namespace string
}

func (r *paramReader) Informer() cache.SharedIndexInformer { return synced{} }
func (r *paramReader) Lister() cache.GenericLister         { return r }

// ByNamespace implements cache.GenericLister.
func (r *paramReader) ByNamespace(namespace string) cache.GenericNamespaceLister {
	in := *r
	in.namespace = namespace
	return &in
}

// synced is all that is asked of an informer here.
type synced struct{ cache.SharedIndexInformer }

func (synced) HasSynced() bool { return true }

// Get returns an object, shared and not to be changed. Errors: NotFound, and those of decoding.
func (r *paramReader) Get(name string) (runtime.Object, error) {
	key := r.res.Key(r.namespace, name)
	found, err := r.read(key, func(v *mvcc.Version) bool { return v.Key == key })
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0:
		return nil, errors.NewNotFound(r.res.GroupResource(), name)
	}
	return found[0], nil
}

// List returns the objects that a selector matches.
func (r *paramReader) List(selector labels.Selector) ([]runtime.Object, error) {
	prefix := ""
	if r.res.Namespaced && r.namespace != "" {
		prefix = r.namespace + "/"
	}
	return r.read(prefix, func(v *mvcc.Version) bool { return selector.Matches(paramLabels{v.Labels}) })
}

// paramLabels are the labels of a version: Get has one result there.
type paramLabels struct{ mvcc.Attributes }

func (l paramLabels) Get(name string) string {
	v, _ := l.Attributes.Get(name)
	return v
}

// read returns the objects whose keys have a prefix, and says so to the attributes: a change
// of any of them counts like one of the policy.
func (r *paramReader) read(prefix string, match func(*mvcc.Version) bool) ([]runtime.Object, error) {
	r.a.ConsultedRange(admission.Range{Table: r.res.Table(), Prefix: prefix})
	var page mvcc.Page
	for {
		state := r.Store.State()
		t := state.Table(r.res.Table())
		if t == nil {
			return nil, nil
		}
		var err error
		page, err = t.Range(mvcc.Query{At: state.Applied(), Prefix: prefix, Match: match})
		if err == nil {
			break
		}
		if !stderrors.Is(err, mvcc.ErrCompacted) {
			return nil, errors.NewInternalError(err)
		}
		// The floor has passed an index that was current a moment ago.
	}
	return r.decode(page.Versions)
}

// decode returns versions as objects. Errors: those of Decode, and the context's.
func (r *paramReader) decode(versions []*mvcc.Version) ([]runtime.Object, error) {
	out := make([]runtime.Object, len(versions))
	missing, bytes := r.find(versions, out)
	if bytes > manyParamBytes {
		// To the end: who has the turn must not wait for a slot, because others wait for the turn.
		defer slots.Waiting(r.ctx)()
		select {
		case r.turn <- struct{}{}:
			defer func() { <-r.turn }()
		case <-r.ctx.Done():
			return nil, errors.NewTimeoutError(fmt.Sprintf("read parameters of policies: %v", r.ctx.Err()), 0)
		}
		missing, _ = r.find(versions, out) // the one before may have decoded them
	}
	if len(missing) == 0 {
		return out, nil
	}
	made, err := r.Decode(r.ctx, r.res, missing)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range out {
		if out[i] != nil {
			continue
		}
		u := &unstructured.Unstructured{Object: made[0]}
		made = made[1:]
		r.share(paramKey{versions[i], r.res}, u)
		out[i] = u
	}
	return out, nil
}

// find fills in what is decoded already. It returns the others, and how many bytes they have.
func (r *paramReader) find(versions []*mvcc.Version, out []runtime.Object) (missing []*mvcc.Version, bytes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, v := range versions {
		key := paramKey{v, r.res}
		u := r.kept[key]
		if u == nil {
			u = r.used[key].Value()
		}
		if u != nil {
			out[i] = u
			continue
		}
		missing, bytes = append(missing, v), bytes+v.ValueSize()
	}
	return missing, bytes
}

// share is called with the lock.
func (r *paramReader) share(key paramKey, u *unstructured.Unstructured) {
	r.used[key] = weak.Make(u)
	goruntime.AddCleanup(u, r.unused, key)
	r.keep(key.version, u)
}

// unused forgets what no decision uses any more.
func (p *params) unused(key paramKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used[key].Value() == nil {
		delete(p.used, key)
	}
}

// keep is called with the lock.
func (r *paramReader) keep(v *mvcc.Version, u *unstructured.Unstructured) {
	size := v.ValueSize() + len(v.Key) + 256
	if size > maxParamBytes {
		return
	}
	if r.params.kept == nil || r.params.bytes+size > maxParamBytes {
		r.params.kept, r.params.bytes = map[paramKey]*unstructured.Unstructured{}, 0
	}
	if _, ok := r.params.kept[paramKey{v, r.res}]; !ok {
		r.params.bytes += size
	}
	r.params.kept[paramKey{v, r.res}] = u
}
