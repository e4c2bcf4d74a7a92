package apiserver

import (
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/quorate/quorate/apiserver/codec"
	"github.com/quorate/quorate/apiserver/status"
	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/raftstore/mvcc"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// collectionWorkers is how many objects of a collection are deleted at a time,
// so that their log entries share fsyncs.
const collectionWorkers = 16

// deleteCollection deletes what a list would return, object by object: it is not
// atomic. An explicit limit ends it after one page. The answer is the list of
// what was deleted or began to be.
func (c *call) deleteCollection() error {
	f, err := c.format(c.res, codec.ShapeList)
	if err != nil {
		return err
	}
	o, err := c.readDeleteOptions()
	if err != nil {
		return err
	}
	if o.Preconditions != nil && o.Preconditions.UID != nil {
		return status.BadRequest("a precondition on the uid cannot hold for a collection")
	}
	sel, err := c.selection()
	if err != nil {
		return err
	}
	params := c.params(sel)
	if params.Limit == 0 {
		// Upstream goes through a collection in pages, and with a limit a bare
		// resourceVersion means exactly that one: nothing newer is deleted.
		params.Limit = maxPage
	}
	plan, err := c.planList(params)
	if err != nil {
		return err
	}
	at, err := c.s.cfg.Reads.Await(c.ctx, plan)
	if err != nil {
		return err
	}
	page, at, err := c.page(plan, at, sel)
	if err != nil {
		return err
	}
	deleted, err := c.deleteAll(page.Versions, o)
	if err != nil {
		return err
	}
	meta := codec.ListMeta{Revision: at, Remaining: -1}
	if page.More {
		meta.Continue = consistency.After(page.Versions[len(page.Versions)-1].Key, at).Encode()
		meta.Remaining = page.Remaining
	}
	return codec.WriteList(c, c.r, f, c.res, meta, deleted)
}

// deleteAll deletes objects side by side. Objects that are gone already are left
// out; the first other error ends it.
func (c *call) deleteAll(versions []*mvcc.Version, o *metav1.DeleteOptions) ([]*mvcc.Version, error) {
	results := make([]*mvcc.Version, len(versions))
	var (
		mu     sync.Mutex
		next   int
		failed error
		wg     sync.WaitGroup
	)
	take := func() int {
		mu.Lock()
		defer mu.Unlock()
		if failed != nil || next == len(versions) {
			return -1
		}
		next++
		return next - 1
	}
	for range min(collectionWorkers, len(versions)) {
		wg.Go(func() {
			for i := take(); i >= 0; i = take() {
				v, err := c.deleteListed(versions[i], o)
				if err != nil {
					mu.Lock()
					if failed == nil {
						failed = err
					}
					mu.Unlock()
				}
				results[i] = v
			}
		})
	}
	wg.Wait()
	kept := results[:0]
	for _, v := range results {
		if v != nil {
			kept = append(kept, v)
		}
	}
	return kept, failed
}

// deleteListed deletes one listed object. It is a request of its own in all but
// the answer.
func (c *call) deleteListed(v *mvcc.Version, o *metav1.DeleteOptions) (deleted *mvcc.Version, err error) {
	// The filter's containment does not reach this goroutine.
	defer func() {
		if p := recover(); p != nil {
			c.s.cfg.Observer.Panicked(&c.kind)
			c.s.cfg.Log.Error("panic in a request", "panic", p, "key", v.Key, "stack", string(debug.Stack()))
			err = fmt.Errorf("delete %s: panic", v.Key)
		}
	}()
	one := &call{s: c.s, r: c.r, ctx: c.ctx, user: c.user, res: c.res, q: c.q, info: c.info, kind: c.kind}
	view := fieldView{version: v, namespaced: c.res.Namespaced}
	one.info.Name, one.info.objectNamespace = view.Get(fieldName), view.Get(fieldNamespace)
	w, _, err := one.deleteOne(o)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case w.version == nil: // dry run
		return v, nil
	}
	return w.version, nil
}
