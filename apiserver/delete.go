//lint:file-ignore SA1019 orphanDependents is deprecated for clients, not for servers: older clients still send it

package apiserver

import (
	"bytes"
	"net/http"
	"slices"
	"time"

	"github.com/quorate/quorate/apiserver/codec"
	"github.com/quorate/quorate/apiserver/status"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (c *call) delete() error {
	shape := codec.ShapeOther
	if c.res.ReturnsDeleted {
		shape = codec.ShapeObject
	}
	f, err := c.format(c.res, shape)
	if err != nil {
		return err
	}
	o, err := c.readDeleteOptions()
	if err != nil {
		return err
	}
	w, uid, err := c.deleteOne(o)
	if err != nil {
		return err
	}
	if w.deleted && !c.res.ReturnsDeleted {
		codec.WriteStatus(c, c.r, status.Success(c.res.GroupResource(), c.info.Name, uid))
		return nil
	}
	code := http.StatusOK
	if !w.deleted && o.OrphanDependents != nil && !*o.OrphanDependents {
		code = http.StatusAccepted
	}
	return c.answer(f, code, w)
}

func (c *call) readDeleteOptions() (*metav1.DeleteOptions, error) {
	raw, err := c.body()
	if err != nil {
		return nil, err
	}
	o, err := c.q.deleteOptions(c.r.Header.Get("Content-Type"), raw)
	if err != nil {
		return nil, err
	}
	// From here on the query's dry run is the request's.
	c.q.DryRun = o.DryRun
	c.kind.DryRun = c.q.isDryRun()
	return o, nil
}

// deleteOne deletes the object that c.info names, or begins to: with finalizers
// or a grace period it only gets a deletionTimestamp. uid is the object's.
func (c *call) deleteOne(o *metav1.DeleteOptions) (w written, uid string, err error) {
	if h := c.hooks(); h.mayDelete != nil {
		if err := h.mayDelete(c, c.info.Name); err != nil {
			return written{}, "", err
		}
	}
	w, err = c.mutate(c.key(), func(cur *mvcc.Version) (change, error) {
		if cur == nil {
			return change{}, c.notFound()
		}
		uid = cur.UID
		if err := c.checkPreconditions(o, cur); err != nil {
			return change{}, err
		}
		return c.decideDelete(o, cur)
	})
	return w, uid, err
}

func (c *call) checkPreconditions(o *metav1.DeleteOptions, cur *mvcc.Version) error {
	p := o.Preconditions
	if p == nil {
		return nil
	}
	if p.UID != nil && string(*p.UID) != cur.UID {
		return status.UIDPrecondition(c.res.GroupResource(), c.info.Name, c.keyPath(), string(*p.UID), cur.UID)
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != cur.Revision.String() {
		return status.VersionPrecondition(c.res.GroupResource(), c.info.Name, c.keyPath(), *p.ResourceVersion, cur.Revision.String())
	}
	return nil
}

var (
	finalizersKey        = []byte(`"finalizers":`)
	deletionTimestampKey = []byte(`"deletionTimestamp":`)
)

// decideDelete chooses between removing an object and its first phase.
func (c *call) decideDelete(o *metav1.DeleteOptions, cur *mvcc.Version) (change, error) {
	h := c.hooks()
	keeps := o.PropagationPolicy != nil && *o.PropagationPolicy != metav1.DeletePropagationBackground ||
		o.OrphanDependents != nil && *o.OrphanDependents
	if !keeps && !c.res.GracePeriod && h.startDelete == nil && !c.q.isDryRun() &&
		!bytes.Contains(cur.Value, finalizersKey) && !bytes.Contains(cur.Value, deletionTimestampKey) {
		// The ordinary case, decided on the bytes: nothing holds the object, and
		// its tombstone keeps its last content.
		return change{op: proto.Op_OP_DELETE}, nil
	}
	old, err := codec.DecodeStored(c.res, cur)
	if err != nil {
		return change{}, err
	}
	obj, meta, err := shallow(old)
	if err != nil {
		return change{}, err
	}
	deleting := text(meta, "deletionTimestamp") != ""
	setFinalizers(meta, dependentsFinalizers(meta, o, c.s.cfg.GarbageCollector))
	grace := c.gracePeriod(o, obj, meta)
	held := hasFinalizers(meta)
	if h.startDelete != nil && h.startDelete(c, obj) {
		held = true
	}
	if !held && grace == 0 {
		return change{op: proto.Op_OP_DELETE, obj: obj}, nil
	}
	if !deleting || shorter(meta, grace) {
		meta["deletionTimestamp"] = timestamp(c.s.cfg.Now().Add(time.Duration(grace) * time.Second))
		meta["deletionGracePeriodSeconds"] = grace
	}
	if generation, ok := wholeNumber(meta["generation"]); ok && !deleting {
		meta["generation"] = generation + 1
	}
	ch, err := c.store(proto.Op_OP_PUT, obj)
	if err != nil {
		return change{}, err
	}
	ch.none = sameBytes(ch.value, ch.offset, cur)
	return ch, nil
}

// shorter reports whether a grace period is less than the one that runs.
func shorter(meta tree, grace int64) bool {
	running, _ := wholeNumber(meta["deletionGracePeriodSeconds"])
	return grace < running
}

// gracePeriod is how many seconds a kind with graceful deletion has left: what
// the options say, else what the object says, but none for an object that runs
// nowhere or has ended.
func (c *call) gracePeriod(o *metav1.DeleteOptions, obj, meta tree) int64 {
	if !c.res.GracePeriod {
		return 0
	}
	phase, _ := lookup(obj, "status.phase").(string)
	if node, _ := lookup(obj, "spec.nodeName").(string); node == "" || phase == "Succeeded" || phase == "Failed" {
		return 0
	}
	const byDefault = 30
	grace := int64(byDefault)
	if own, ok := wholeNumber(lookup(obj, "spec.terminationGracePeriodSeconds")); ok {
		grace = own
	}
	if o.GracePeriodSeconds != nil {
		grace = *o.GracePeriodSeconds
	}
	if text(meta, "deletionTimestamp") != "" {
		// A deletion that runs can only get shorter.
		if running, _ := wholeNumber(meta["deletionGracePeriodSeconds"]); o.GracePeriodSeconds == nil || grace > running {
			grace = running
		}
	}
	return max(grace, 0)
}

// dependentsFinalizers is the object's finalizers with those that tell the
// garbage collector what to do with dependents, or without them if nothing
// collects.
func dependentsFinalizers(meta tree, o *metav1.DeleteOptions, collected bool) []string {
	list, _ := stringList(meta["finalizers"])
	var want string
	switch {
	case o.OrphanDependents != nil && *o.OrphanDependents:
		want = metav1.FinalizerOrphanDependents
	case o.OrphanDependents != nil:
	case o.PropagationPolicy == nil:
		return list
	case *o.PropagationPolicy == metav1.DeletePropagationOrphan:
		want = metav1.FinalizerOrphanDependents
	case *o.PropagationPolicy == metav1.DeletePropagationForeground:
		want = metav1.FinalizerDeleteDependents
	}
	if !collected {
		want = ""
	}
	list = slices.DeleteFunc(list, func(s string) bool {
		return s != want && (s == metav1.FinalizerOrphanDependents || s == metav1.FinalizerDeleteDependents)
	})
	if want != "" && !slices.Contains(list, want) {
		list = append(list, want)
	}
	return list
}
