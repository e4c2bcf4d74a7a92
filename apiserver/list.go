package apiserver

import (
	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/consistency"
)

func (c verbs) list() error {
	f, err := c.format(c.Resource, codec.ShapeList)
	if err != nil {
		return err
	}
	sel, err := c.Select()
	if err != nil {
		return err
	}
	plan, err := c.PlanList(c.ListParams(sel))
	if err != nil {
		return err
	}
	at, err := c.await(c.Context, plan)
	if err != nil {
		return err
	}
	if err := c.computing.beginList(c.call); err != nil {
		return err
	}
	page, at, err := c.Page(plan, at, sel)
	if err != nil {
		return err
	}
	meta := codec.ListMeta{Revision: at, Remaining: -1}
	if page.More {
		last := page.Versions[len(page.Versions)-1].Key
		meta.Continue = consistency.After(last, at).Encode()
		meta.Remaining = page.Remaining
	}
	c.setIndexHeader(at)
	defer page.Release()
	return codec.Respond(c, c.r, f).List(c.Resource, meta, page.Versions)
}
