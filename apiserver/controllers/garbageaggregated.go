package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/backends/aggregator"
	"github.com/quorate/quorate/apiserver/objects"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
)

// outside is the garbage collector's part at aggregated API servers. What needs an answer of theirs
// waits in the queue of their group, so that one that hangs keeps nothing else waiting.
type outside struct {
	c      *collector
	api    metadata.Interface
	follow aggregated
	ended  func() // waits until nothing is followed any more

	ctx    context.Context
	queues map[string]*queue // by group; guarded by c.mu
}

// outsideWorkers are the objects of one group that are worked on at once.
const outsideWorkers = 8

// newOutside returns nil if this server knows of no aggregated API servers.
func newOutside(ctx context.Context, c *collector) (*outside, error) {
	if c.aggregator == nil {
		return nil, nil
	}
	api, err := c.aggregator.Metadata(asGarbageCollector)
	if err != nil {
		return nil, err
	}
	o := &outside{c: c, api: api, ctx: ctx, queues: map[string]*queue{}}
	o.follow = aggregated{
		api: api, serves: c.aggregator.Resources, wants: func(aggregator.Resource) bool { return true },
		see: o.see, forget: o.forget,
		failed: func(of aggregator.Resource, err error) {
			c.reports.failed("cannot follow objects of an aggregated API server, retrying", "resource", of.GroupVersionResource.String(), "err", err)
		},
	}
	return o, nil
}

// start follows the objects at aggregated API servers, until the context ends.
func (o *outside) start() {
	if o != nil {
		o.ended = o.follow.start(o.ctx)
	}
}

// close returns when nothing runs any more. The context must have ended.
func (o *outside) close() {
	if o == nil {
		return
	}
	o.ended()
	for _, q := range o.queues {
		q.close()
	}
}

// add has an object worked on that needs an answer of a group's server. c.mu is not held.
func (o *outside) add(group, uid string) {
	o.c.mu.Lock()
	defer o.c.mu.Unlock()
	q := o.queues[group]
	if q == nil {
		q = &queue{
			work: func(ctx context.Context, uid string, _ bool) error {
				ctx, cancel := context.WithTimeout(ctx, aggregatedCall)
				defer cancel()
				return o.c.settle(ctx, uid, mayWait{slow: true, outside: true})
			},
			failed: o.c.failed, workers: outsideWorkers, first: garbageFirst, most: garbageMost,
		}
		q.open(o.ctx)
		o.queues[group] = q
	}
	q.add(uid)
}

// outsideTable begins the table of objects that are not in the store.
const outsideTable = "aggregated "

func tableOutside(of schema.GroupResource) string { return outsideTable + of.String() }

// isOutside reports whether an object is at an aggregated API server, and of which group.
func (k objectKey) isOutside() (group string, ok bool) {
	resource, ok := strings.CutPrefix(k.Table, outsideTable)
	return schema.ParseGroupResource(resource).Group, ok
}

// see takes in a change of an object.
func (o *outside) see(of aggregator.Resource, was, is *metav1.PartialObjectMetadata) {
	c := o.c
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := change{gone: is == nil}
	if is == nil {
		ch.uid = string(was.UID)
	} else {
		ch.uid = string(is.UID)
		if obj := objectOutside(of, is); len(obj.Owners) > 0 || obj.awaits() {
			ch.object = obj
		}
	}
	if has := c.graph.nodes[ch.uid]; has != nil && has.key.Table != tableOutside(of.GroupResource()) {
		return // the server uses the uid of another object
	}
	if n := c.visit(ch); n != nil {
		c.queue.add(n.uid)
	}
}

// forget drops what is known of a resource that is not served any more. Its objects may be there
// again later.
func (o *outside) forget(of aggregator.Resource) {
	c := o.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.graph.nodes {
		if n.key.Table == tableOutside(of.GroupResource()) {
			c.visit(change{uid: n.uid})
		}
	}
}

func objectOutside(of aggregator.Resource, meta *metav1.PartialObjectMetadata) *object {
	key := meta.Name
	if meta.Namespace != "" {
		key = meta.Namespace + "/" + meta.Name
	}
	o := &object{
		objectKey: objectKey{Table: tableOutside(of.GroupResource()), Key: key},
		UID:       string(meta.UID), Revision: meta.ResourceVersion, Deleting: meta.DeletionTimestamp != nil,
		Foreground: slices.Contains(meta.Finalizers, metav1.FinalizerDeleteDependents),
		Orphan:     slices.Contains(meta.Finalizers, metav1.FinalizerOrphanDependents),
	}
	for _, r := range meta.OwnerReferences {
		o.Owners = append(o.Owners, ownerReference{
			APIVersion: r.APIVersion, Kind: r.Kind, Name: r.Name, UID: string(r.UID), Blocks: r.BlockOwnerDeletion != nil && *r.BlockOwnerDeletion,
		})
	}
	return o
}

// resource is what is served now of those that a function chooses, nil if there is none.
func (o *outside) resource(is func(aggregator.Resource) bool) *aggregator.Resource {
	if o == nil {
		return nil
	}
	all, _ := o.c.aggregator.Resources()
	if at := slices.IndexFunc(all, is); at >= 0 {
		return &all[at]
	}
	return nil
}

// ofKind is the resource of an owner's kind, in whatever version.
func (o *outside) ofKind(owner ownerReference) *aggregator.Resource {
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return nil
	}
	return o.resource(func(r aggregator.Resource) bool { return r.Group == gv.Group && r.Kind == owner.Kind })
}

// errNotServed is returned for objects of a resource that no aggregated API server serves now.
var errNotServed = errors.New("no aggregated API server serves it now")

// at is where an object is.
func (o *outside) at(key objectKey) (_ aggregator.Resource, at metadata.ResourceInterface, name string, _ error) {
	res := o.resource(func(r aggregator.Resource) bool { return tableOutside(r.GroupResource()) == key.Table })
	if res == nil {
		return aggregator.Resource{}, nil, "", fmt.Errorf("%s of %s: %w", key.Key, key.Table, errNotServed)
	}
	namespace, name := objects.SplitKey(nil, key.Key)
	return *res, o.api.Resource(res.GroupVersionResource).Namespace(namespace), name, nil
}

// object returns an object as its server has it, or nil.
func (o *outside) object(ctx context.Context, key objectKey) (*object, error) {
	res, at, name, err := o.at(key)
	if err != nil {
		return nil, err
	}
	meta, err := o.get(ctx, at, name)
	if err != nil || meta == nil {
		return nil, err
	}
	return objectOutside(res, meta), nil
}

// get returns nil of an object that its server says is not there. Another 404, as of a server that
// starts, says nothing of it.
func (o *outside) get(ctx context.Context, at metadata.ResourceInterface, name string) (*metav1.PartialObjectMetadata, error) {
	meta, err := at.Get(ctx, name, metav1.GetOptions{})
	var status apierrors.APIStatus
	if apierrors.IsNotFound(err) && errors.As(err, &status) {
		if d := status.Status().Details; d != nil && d.Name == name {
			return nil, nil
		}
		return nil, fmt.Errorf("get %s: the server says 404 of something else: %s", name, err.Error())
	}
	return meta, err
}

// ownerState is ownerStateHere of an owner at an aggregated API server.
func (o *outside) ownerState(ctx context.Context, dependent objectKey, owner ownerReference) (ownerState, error) {
	res := o.ofKind(owner)
	if res == nil {
		return ownerUnknown, nil
	}
	namespace := ""
	if res.Namespaced {
		if namespace, _ = objects.SplitKey(o.c.objects.Tables().ByName[dependent.Table], dependent.Key); namespace == "" {
			return ownerImpossible, nil
		}
	}
	meta, err := o.get(ctx, o.api.Resource(res.GroupVersionResource).Namespace(namespace), owner.Name)
	switch {
	case err != nil:
		return 0, err
	case meta == nil || string(meta.UID) != owner.UID:
		return ownerAbsent, nil
	case meta.DeletionTimestamp != nil && slices.Contains(meta.Finalizers, metav1.FinalizerDeleteDependents):
		return ownerWaiting, nil
	}
	return ownerThere, nil
}

func (o *outside) delete(ctx context.Context, obj *object, policy metav1.DeletionPropagation) error {
	_, at, name, err := o.at(obj.objectKey)
	if err != nil {
		return err
	}
	uid := types.UID(obj.UID)
	return at.Delete(ctx, name, metav1.DeleteOptions{
		PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &obj.Revision},
	})
}

// amend changes the owners and finalizers of the object with a uid.
func (o *outside) amend(ctx context.Context, key objectKey, uid string, alter func(*metav1.ObjectMeta)) error {
	_, at, name, err := o.at(key)
	if err != nil {
		return err
	}
	meta, err := o.get(ctx, at, name)
	if err != nil || meta == nil || string(meta.UID) != uid {
		return err
	}
	alter(&meta.ObjectMeta)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": uid, "resourceVersion": meta.ResourceVersion, "ownerReferences": meta.OwnerReferences, "finalizers": meta.Finalizers,
	}})
	if err != nil {
		return err
	}
	_, err = at.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: collectorsManager})
	return err
}
