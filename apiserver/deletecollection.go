package apiserver

import (
	"fmt"
	"runtime/debug"

	"github.com/quorate/quorate/apiserver/codec"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// collectionPage is how many objects of a collection are looked at together.
const collectionPage = 10_000

// deleteCollection deletes what a list would return, object by object: it is not
// atomic. It goes through the collection in pages of one state; an explicit limit
// ends it after the first. The answer is the list of what was there.
func (c *call) deleteCollection() error {
	f, err := c.format(c.Resource, codec.ShapeList)
	if err != nil {
		return err
	}
	o, err := c.readDeleteOptions()
	if err != nil {
		return err
	}
	sel, err := c.Select()
	if err != nil {
		return err
	}
	params := c.ListParams(sel)
	limited := params.Limit != 0
	if !limited {
		// With a limit, a bare resourceVersion means exactly that one: nothing newer
		// is deleted.
		params.Limit = collectionPage
	}
	meta := codec.ListMeta{Remaining: -1}
	var items []*mvcc.Version
	for {
		page, at, err := c.nextPage(params, sel)
		if err != nil {
			return err
		}
		if err := c.deleteAll(page.Versions, o); err != nil {
			return err
		}
		items = append(items, page.Versions...)
		if meta.Revision == 0 {
			meta.Revision = at
		}
		if !page.More {
			break
		}
		params.Continue = consistency.After(page.Versions[len(page.Versions)-1].Key, at).Encode()
		params.ResourceVersion, params.Match = "", ""
		if limited {
			meta.Continue, meta.Remaining = params.Continue, page.Remaining
			break
		}
	}
	return codec.Respond(c, c.r, f).List(c.Resource, meta, items)
}

// nextPage reads one page of a collection as a list would.
func (c *call) nextPage(params consistency.Params, sel *objects.Selection) (mvcc.Page, proto.Revision, error) {
	plan, err := c.PlanList(params)
	if err != nil {
		return mvcc.Page{}, 0, err
	}
	at, err := c.s.cfg.Reads.Await(c.Context, plan)
	if err == nil {
		err = c.stillAllowed(plan)
	}
	if err != nil {
		return mvcc.Page{}, 0, err
	}
	return c.Page(plan, at, sel)
}

// deleteAll deletes objects side by side. That some are gone already is no error;
// the first other one ends it.
func (c *call) deleteAll(versions []*mvcc.Version, o *metav1.DeleteOptions) error {
	return objects.Each(versions, func(v *mvcc.Version) error {
		if err := c.deleteListed(v, o); !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	})
}

// deleteListed deletes one listed object. It is a request of its own in all but
// the answer.
func (c *call) deleteListed(v *mvcc.Version, o *metav1.DeleteOptions) (err error) {
	// The filter's containment does not reach this goroutine.
	defer func() {
		if p := recover(); p != nil {
			c.s.cfg.Observer.Panicked(&c.Kind)
			c.s.cfg.Log.Error("panic in a request", "panic", p, "key", v.Key, "stack", string(debug.Stack()))
			err = fmt.Errorf("delete %s: panic", v.Key)
		}
	}()
	_, _, err = c.Listed(objects.SplitKey(c.Resource, v.Key)).Delete(o)
	return err
}
