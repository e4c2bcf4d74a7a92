//lint:file-ignore SA1019 orphanDependents is deprecated for clients, not for servers: older clients still send it

package apiserver

import (
	"net/http"

	"github.com/quorate/quorate/apiserver/codec"
	"github.com/quorate/quorate/apiserver/request"
	"github.com/quorate/quorate/apiserver/status"
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
	raw, err := c.body(nil)
	if err != nil {
		return nil, err
	}
	o, err := c.deleteOptions(raw)
	if err != nil {
		return nil, err
	}
	// From here on the query's dry run is the request's.
	c.q.DryRun = o.DryRun
	c.kind.DryRun = c.q.IsDryRun()
	return o, nil
}

// deleteOptions are the request's: a body that is not empty wins over the query.
func (c *call) deleteOptions(raw []byte) (*metav1.DeleteOptions, error) {
	if len(raw) == 0 {
		return c.q.DeleteOptions()
	}
	body, err := codec.Decode(c.r.Header.Get("Content-Type"), raw, nil)
	if err != nil {
		return nil, err
	}
	return request.DeleteOptionsOf(body.Object)
}

// deleteOne deletes the object that c.info names, or begins to: with finalizers
// or a grace period it only gets a deletionTimestamp. uid is the object's.
func (o *op) deleteOne(options *metav1.DeleteOptions) (w written, uid string, err error) {
	if h := o.strategy(); h.mayDelete != nil {
		if err := h.mayDelete(o.info.Name); err != nil {
			return written{}, "", err
		}
	}
	w, err = o.mutate(o.key(), func(cur *mvcc.Version) (change, error) {
		if cur == nil {
			return change{}, o.notFound()
		}
		uid = cur.UID
		if err := o.checkPreconditions(options, cur); err != nil {
			return change{}, err
		}
		return o.decideDelete(options, cur)
	})
	return w, uid, err
}

// checkPreconditions compares the version with what the client wants to delete. A
// node that lags finds mismatches that are none; mutate confirms them.
func (o *op) checkPreconditions(options *metav1.DeleteOptions, cur *mvcc.Version) error {
	p := options.Preconditions
	if p == nil {
		return nil
	}
	if p.UID != nil && string(*p.UID) != cur.UID {
		return status.DeleteUIDPrecondition(o.res.GVK().GroupKind(), o.info.Name, string(*p.UID), cur.UID)
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != cur.Revision.String() {
		return status.DeleteVersionPrecondition(o.res.GVK().GroupKind(), o.info.Name, *p.ResourceVersion, cur.Revision.String())
	}
	return nil
}
