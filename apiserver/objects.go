package apiserver

import (
	"context"
	"fmt"
	"strings"

	"github.com/quorate/quorate/apiserver/codec"
	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/tree"
	"github.com/quorate/quorate/raftstore/mvcc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Objects is the API without HTTP, for the loops that the node itself runs: with
// every permission, and the same decisions and conditions as requests. Objects are
// pointers to the types of k8s.io/api. Errors are Status errors. Safe for concurrent
// use.
type Objects struct{ s *Server }

// Objects returns the API for the node itself.
func (s *Server) Objects() Objects { return Objects{s} }

func (o Objects) call(ctx context.Context, gvr apischema.GroupVersionResource, namespace, name, verb string) (*objects.Op, error) {
	res := o.s.cfg.Kinds().Lookup(gvr)
	if res == nil {
		return nil, fmt.Errorf("%s %s: there is no such resource", verb, gvr)
	}
	return o.s.objects.System(ctx, res, namespace, name, verb), nil
}

// Get reads the newest version of an object that this node has.
func (o Objects) Get(ctx context.Context, gvr apischema.GroupVersionResource, namespace, name string, into any) error {
	c, err := o.call(ctx, gvr, namespace, name, "get")
	if err != nil {
		return err
	}
	v, err := o.s.objects.Current(c.Resource.Table(), c.Key())
	if err != nil {
		return err
	}
	if v == nil {
		return c.NotFound()
	}
	obj, err := codec.DecodeStored(c.Resource, v)
	if err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(obj, into)
}

// Create stores a new object.
func (o Objects) Create(ctx context.Context, gvr apischema.GroupVersionResource, namespace string, obj any) error {
	c, err := o.call(ctx, gvr, namespace, "", "create")
	if err != nil {
		return err
	}
	sent, err := fitted(c.Resource, obj)
	if err != nil {
		return err
	}
	_, err = c.Create(sent)
	return err
}

// Update replaces an object, if it has still the resourceVersion that obj has.
func (o Objects) Update(ctx context.Context, gvr apischema.GroupVersionResource, namespace, name string, obj any) error {
	c, err := o.call(ctx, gvr, namespace, name, "update")
	if err != nil {
		return err
	}
	sent, err := fitted(c.Resource, obj)
	if err != nil {
		return err
	}
	_, err = c.GuaranteedUpdate(c.Key(), func(cur *mvcc.Version) (objects.Change, error) { return c.DecideUpdate(sent, cur) })
	return err
}

// Delete deletes an object, if it has still that uid.
func (o Objects) Delete(ctx context.Context, gvr apischema.GroupVersionResource, namespace, name string, uid types.UID) error {
	c, err := o.call(ctx, gvr, namespace, name, "delete")
	if err != nil {
		return err
	}
	background := metav1.DeletePropagationBackground
	_, err = o.s.deleteAs(asServer, c, &metav1.DeleteOptions{PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: &uid}})
	return err
}

// Labelled returns the names and uids of the objects of a namespace that have a label
// with that value, as this node sees them.
func (o Objects) Labelled(ctx context.Context, gvr apischema.GroupVersionResource, namespace, label, value string) (map[string]types.UID, error) {
	c, err := o.call(ctx, gvr, namespace, "", "list")
	if err != nil {
		return nil, err
	}
	versions, err := o.s.objects.Match(c.Resource.Table(), mvcc.Query{Prefix: namespace + "/", Match: func(v *mvcc.Version) bool {
		has, ok := v.Labels.Get(label)
		return ok && has == value
	}})
	out := map[string]types.UID{}
	for _, v := range versions {
		_, name, _ := strings.Cut(v.Key, "/")
		out[name] = types.UID(v.UID)
	}
	return out, err
}

// fitted is an object as a body that was decoded.
func fitted(res *kinds.Resource, obj any) (tree.Object, error) {
	t, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", res.Kind, err)
	}
	t["kind"], t["apiVersion"] = res.Kind, res.GroupVersion().String()
	model, err := objects.ModelOf(res)
	if err != nil {
		return nil, err
	}
	_, err = model.Fit(t)
	return t, err
}

// WatchTable returns a channel that is sent to when a resource's objects may have
// changed, and a function that ends it.
func (o Objects) WatchTable(gvr apischema.GroupVersionResource) (<-chan struct{}, func(), error) {
	c, err := o.call(context.Background(), gvr, "", "", "watch")
	if err != nil {
		return nil, nil, err
	}
	w, err := o.s.cfg.Store.Watch(c.Resource.Table(), o.s.cfg.Store.State().Applied(), mvcc.Interest{})
	if err != nil {
		return nil, nil, fmt.Errorf("watch %s: %w", gvr.Resource, err)
	}
	return w.Wake(), w.Close, nil
}
