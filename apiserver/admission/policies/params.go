package policies

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/kinds"
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

// params read the objects that bindings refer to. What is decoded is kept by its version, and
// shared by all decisions. Safe for concurrent use.
type params struct {
	Config

	mu    sync.Mutex
	kept  map[paramKey]*unstructured.Unstructured
	bytes int
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

func (r *paramReader) decode(versions []*mvcc.Version) ([]runtime.Object, error) {
	out := make([]runtime.Object, len(versions))
	var missing []*mvcc.Version
	r.mu.Lock()
	for i, v := range versions {
		if kept := r.kept[paramKey{v, r.res}]; kept != nil {
			out[i] = kept
		} else {
			missing = append(missing, v)
		}
	}
	r.mu.Unlock()
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
		r.keep(versions[i], u)
		out[i] = u
	}
	return out, nil
}

// keep is called with the lock.
func (r *paramReader) keep(v *mvcc.Version, u *unstructured.Unstructured) {
	size := len(v.Value) + len(v.Key) + 256
	if r.params.kept == nil || r.params.bytes+size > maxParamBytes {
		r.params.kept, r.params.bytes = map[paramKey]*unstructured.Unstructured{}, 0
	}
	if _, ok := r.params.kept[paramKey{v, r.res}]; !ok {
		r.params.bytes += size
	}
	r.params.kept[paramKey{v, r.res}] = u
}
