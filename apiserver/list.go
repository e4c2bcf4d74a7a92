package apiserver

import (
	"errors"

	"github.com/quorate/quorate/apiserver/codec"
	"github.com/quorate/quorate/apiserver/status"
	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

func (c *call) list() error {
	f, err := c.format(c.res, codec.ShapeList)
	if err != nil {
		return err
	}
	sel, err := c.selection()
	if err != nil {
		return err
	}
	plan, err := consistency.PlanList(c.params(sel))
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
	meta := codec.ListMeta{Revision: at, Remaining: -1}
	if page.More {
		last := page.Versions[len(page.Versions)-1].Key
		meta.Continue = consistency.After(last, at).Encode()
		meta.Remaining = page.Remaining
	}
	c.readAs(plan, at)
	release := c.boundAnswer()
	defer release()
	return codec.WriteList(c, c.r, f, c.res, meta, page.Versions)
}

// params are the request's parameters in the words of package consistency.
func (c *call) params(sel *selection) consistency.Params {
	return consistency.Params{
		ResourceVersion:   c.q.ResourceVersion,
		Match:             c.q.ResourceVersionMatch,
		Limit:             c.q.Limit,
		Continue:          c.q.Continue,
		SendInitialEvents: c.q.SendInitialEvents,
		AllowBookmarks:    c.q.AllowWatchBookmarks,
		SingleName:        sel.key != "",
		MaxStaleness:      c.q.MaxStaleness,
	}
}

// page reads one page of a list.
func (c *call) page(plan consistency.Plan, at proto.Revision, sel *selection) (mvcc.Page, proto.Revision, error) {
	q := mvcc.Query{Prefix: sel.prefix, Limit: int(min(plan.Limit, maxPage))}
	switch {
	case sel.key != "":
		return c.pageOfOne(plan, at, sel)
	case !sel.all():
		q.Match = sel.matches
	}
	if plan.Token != nil {
		q.From = plan.Token.Start
	}
	page, at, err := c.s.scan(c.res.Table(), plan, at, q)
	return page, at, expired(err, plan)
}

// maxPage only keeps the conversion of a limit from overflowing.
const maxPage = 1 << 30

// pageOfOne is a list that metadata.name narrows to one object.
func (c *call) pageOfOne(plan consistency.Plan, at proto.Revision, sel *selection) (mvcc.Page, proto.Revision, error) {
	page := mvcc.Page{Remaining: -1}
	state := c.s.cfg.Store.State()
	if plan.Mode != consistency.Exact {
		at = state.Applied()
	}
	t := state.Table(c.res.Table())
	if t == nil {
		return page, at, nil
	}
	v, err := t.Get(sel.key, at)
	if v != nil && sel.matches(v) {
		page.Versions = []*mvcc.Version{v}
	}
	return page, at, expired(err, plan)
}

// expired words the failure of a list below the history floor.
func expired(err error, plan consistency.Plan) error {
	switch {
	case !errors.Is(err, mvcc.ErrCompacted):
		return err
	case plan.Token != nil:
		return status.ContinueExpired(plan.Token.AtLatest().Encode())
	}
	return status.ListTooOld(uint64(plan.Revision))
}

// scan reads a range of a table at the plan's revision, or at the newest one
// that this node has. at is what Await returned. It returns the revision that
// was read.
func (s *Server) scan(table string, plan consistency.Plan, at proto.Revision, q mvcc.Query) (mvcc.Page, proto.Revision, error) {
	for {
		state := s.cfg.Store.State()
		q.At = at
		if plan.Mode != consistency.Exact {
			q.At = state.Applied()
		}
		t := state.Table(table)
		if t == nil {
			if state.Floor() > q.At {
				return mvcc.Page{}, 0, mvcc.ErrCompacted
			}
			return mvcc.Page{Remaining: -1}, q.At, nil
		}
		page, err := t.Range(q)
		if errors.Is(err, mvcc.ErrCompacted) && plan.Mode != consistency.Exact {
			continue // the floor has passed what was current a moment ago
		}
		return page, q.At, err
	}
}
