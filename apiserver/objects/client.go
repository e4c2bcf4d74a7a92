package objects

import (
	"context"
	"fmt"
	"strings"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/raftstore/mvcc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Client is the API without HTTP, for the loops that the node itself runs: with
// every permission, and the same decisions and conditions as requests. Objects are
// pointers to the types of k8s.io/api. Errors are Status errors. Safe for concurrent
// use.
type Client struct{ s *Store }

// NewClient returns the API for the node itself.
func NewClient(s *Store) Client { return Client{s} }

func (c Client) op(ctx context.Context, gvr apischema.GroupVersionResource, namespace, name, verb string) (*Op, error) {
	res := c.s.Kinds().Lookup(gvr)
	if res == nil {
		return nil, fmt.Errorf("%s %s: there is no such resource", verb, gvr)
	}
	return c.s.System(ctx, res, namespace, name, verb), nil
}

// Get reads the newest version of an object that this node has.
func (c Client) Get(ctx context.Context, gvr apischema.GroupVersionResource, namespace, name string, into any) error {
	o, err := c.op(ctx, gvr, namespace, name, "get")
	if err != nil {
		return err
	}
	v, err := c.s.Current(o.Resource.Table(), o.Key())
	if err != nil {
		return err
	}
	if v == nil {
		return o.NotFound()
	}
	obj, err := codec.DecodeStored(o.Resource, v)
	if err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(obj, into)
}

// Create stores a new object.
func (c Client) Create(ctx context.Context, gvr apischema.GroupVersionResource, namespace string, obj any) error {
	o, err := c.op(ctx, gvr, namespace, "", "create")
	if err != nil {
		return err
	}
	sent, err := fitted(o.Resource, obj)
	if err != nil {
		return err
	}
	_, err = o.Create(sent)
	return err
}

// Update replaces an object, if its resourceVersion is still obj's.
func (c Client) Update(ctx context.Context, gvr apischema.GroupVersionResource, namespace, name string, obj any) error {
	o, err := c.op(ctx, gvr, namespace, name, "update")
	if err != nil {
		return err
	}
	sent, err := fitted(o.Resource, obj)
	if err != nil {
		return err
	}
	_, err = o.Modify(Put{sent}, Whole)
	return err
}

// Delete deletes an object, if its uid is still that one.
func (c Client) Delete(ctx context.Context, gvr apischema.GroupVersionResource, namespace, name string, uid types.UID) error {
	o, err := c.op(ctx, gvr, namespace, name, "delete")
	if err != nil {
		return err
	}
	background := metav1.DeletePropagationBackground
	_, err = o.DeleteAs(AsServer, &metav1.DeleteOptions{PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: &uid}})
	return err
}

// Labelled returns the names and uids of the objects of a namespace that have a label
// with that value, as this node sees them.
func (c Client) Labelled(ctx context.Context, gvr apischema.GroupVersionResource, namespace, label, value string) (map[string]types.UID, error) {
	o, err := c.op(ctx, gvr, namespace, "", "list")
	if err != nil {
		return nil, err
	}
	versions, err := c.s.Match(o.Resource.Table(), mvcc.Query{Prefix: namespace + "/", Match: func(v *mvcc.Version) bool {
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
	model, err := ModelOf(res)
	if err != nil {
		return nil, err
	}
	_, err = model.Fit(t)
	return t, err
}
