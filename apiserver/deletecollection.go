package apiserver

import (
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// collectionPage is how many objects of a collection are looked at together.
const collectionPage = 10_000

// deleteCollection deletes what a list would return, object by object: it is not
// atomic. It goes through the collection in pages of one state; an explicit limit
// ends it after the first. The answer is the list of what was there.
func (c verbs) deleteCollection() error {
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
		if err := c.DeleteListed(page.Versions, o); err != nil {
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
func (c verbs) nextPage(params consistency.Params, sel *objects.Selection) (mvcc.Page, proto.Revision, error) {
	plan, err := c.PlanList(params)
	if err != nil {
		return mvcc.Page{}, 0, err
	}
	at, err := c.await(c.Context, plan)
	if err != nil {
		return mvcc.Page{}, 0, err
	}
	return c.Page(plan, at, sel)
}
