package apiserver

import (
	"errors"
	"strings"

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
	plan, err := c.planList(c.params(sel))
	if err != nil {
		return err
	}
	at, err := c.await(c.ctx, plan)
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
	c.read(at)
	defer page.Release()
	return codec.WriteList(c, c.r, f, c.res, meta, page.Versions)
}

// params are the request's parameters in the words of package consistency.
func (o *op) params(sel *selection) consistency.Params {
	return consistency.Params{
		ResourceVersion:   o.q.ResourceVersion,
		Match:             o.q.ResourceVersionMatch,
		Limit:             o.q.Limit,
		Continue:          o.q.Continue,
		SendInitialEvents: o.q.SendInitialEvents,
		AllowBookmarks:    o.q.AllowWatchBookmarks,
		SingleName:        sel.key != "",
		MaxStaleness:      o.q.MaxStaleness,
	}
}

// planList plans a list and refuses a token that is certainly of another one:
// tokens say neither of which resource nor of which namespace they are, but the
// keys in them do, a little. What passes cannot leave the table and the
// namespace of the request, so at worst a page begins in the wrong place.
func (o *op) planList(p consistency.Params) (consistency.Plan, error) {
	plan, err := consistency.PlanList(p)
	if err != nil || plan.Token == nil {
		return plan, err
	}
	start := plan.Token.Start
	inside := strings.Contains(start, "/") == o.res.Namespaced
	if o.res.Namespaced && o.info.ObjectNamespace != "" {
		inside = strings.HasPrefix(start, o.info.ObjectNamespace+"/")
	}
	if !inside {
		return plan, status.BadRequest("invalid continue token: continue key is not valid: %s", start)
	}
	return plan, nil
}

// page reads one page of a list.
func (o *op) page(plan consistency.Plan, at proto.Revision, sel *selection) (mvcc.Page, proto.Revision, error) {
	if webhookOf(o.res) != nil && !sel.all() && sel.key == "" {
		return o.pageConverted(plan, at, sel)
	}
	page, at, err := o.pageStored(plan, at, sel)
	if err != nil {
		return page, at, err
	}
	page.Versions, err = o.s.convertAll(o.ctx, o.res, page.Versions)
	return page, at, err
}

// pageConverted reads a page of objects that a webhook has to convert before it can be
// said whether they are meant: what is selected by are the labels and fields of the
// version that is asked for.
func (o *op) pageConverted(plan consistency.Plan, at proto.Revision, sel *selection) (mvcc.Page, proto.Revision, error) {
	all, whole := *sel, plan
	all.labels, all.fields = nil, nil
	whole.Limit = batchObjects
	out := mvcc.Page{Remaining: -1}
	limit := int(min(plan.Limit, maxPage))
	for {
		page, read, err := o.pageStored(whole, at, &all)
		if err != nil {
			return out, read, err
		}
		at = read
		versions, err := o.s.convertAll(o.ctx, o.res, page.Versions)
		if err != nil {
			return out, at, err
		}
		for i, v := range versions {
			if !sel.matches(v) {
				continue
			}
			out.Versions = append(out.Versions, v)
			if limit > 0 && len(out.Versions) == limit {
				out.More = page.More || i < len(versions)-1
				return out, at, nil
			}
		}
		if !page.More {
			return out, at, nil
		}
		token := consistency.After(page.Versions[len(page.Versions)-1].Key, at)
		whole = consistency.Plan{Mode: consistency.Exact, Limit: batchObjects, Token: &token}
	}
}

// pageStored reads one page as it is stored.
func (o *op) pageStored(plan consistency.Plan, at proto.Revision, sel *selection) (mvcc.Page, proto.Revision, error) {
	q := mvcc.Query{Prefix: sel.prefix, Limit: int(min(plan.Limit, maxPage))}
	switch {
	case sel.key != "" && plan.Token == nil:
		return o.pageOfOne(plan, at, sel)
	case !sel.all():
		q.Match = sel.matches
	}
	if plan.Token != nil {
		q.From = plan.Token.Start
	}
	page, at, err := o.s.scan(o.res.Table(), plan, at, q)
	return page, at, expired(err, plan)
}

// maxPage only keeps the conversion of a limit from overflowing.
const maxPage = 1 << 30

// pageOfOne is a list that metadata.name narrows to one object.
func (o *op) pageOfOne(plan consistency.Plan, at proto.Revision, sel *selection) (mvcc.Page, proto.Revision, error) {
	page := mvcc.Page{Remaining: -1}
	v, at, err := o.s.find(o.res.Table(), sel.key, plan, at)
	if v != nil && err == nil {
		if v, err = o.convertOne(v); err == nil && sel.matches(v) {
			page.Versions = []*mvcc.Version{v}
		}
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
	return status.ListTooOld()
}

// find reads one key, scan a range of a table, at the plan's revision or at the
// newest one that this node has. at is what Await returned. They return the
// revision that was read. Errors: mvcc.ErrCompacted, for an exact plan alone.
func (s *objectStore) find(table, key string, plan consistency.Plan, at proto.Revision) (v *mvcc.Version, _ proto.Revision, _ error) {
	for {
		t, at, err := s.tableAt(table, plan, at)
		if t != nil {
			v, err = t.Get(key, at)
		}
		if !overtaken(err, plan) {
			return v, at, err
		}
	}
}

func (s *objectStore) scan(table string, plan consistency.Plan, at proto.Revision, q mvcc.Query) (mvcc.Page, proto.Revision, error) {
	for {
		t, at, err := s.tableAt(table, plan, at)
		page := mvcc.Page{Remaining: -1}
		if t != nil {
			q.At = at
			page, err = t.Range(q)
		}
		if !overtaken(err, plan) {
			return page, at, err
		}
	}
}

// tableAt returns a table and the revision to read it at. The table is nil if
// nothing was ever written to it: then there is nothing, at any revision that is
// not forgotten.
func (s *objectStore) tableAt(table string, plan consistency.Plan, at proto.Revision) (*mvcc.Table, proto.Revision, error) {
	state := s.cfg.Store.State()
	if plan.Mode != consistency.Exact {
		at = state.Applied()
	}
	t := state.Table(table)
	if t == nil && state.Floor() > at {
		return nil, at, mvcc.ErrCompacted
	}
	return t, at, nil
}

// overtaken reports whether the floor has passed what was the newest revision a
// moment ago, so that the read is to be done again.
func overtaken(err error, plan consistency.Plan) bool {
	return errors.Is(err, mvcc.ErrCompacted) && plan.Mode != consistency.Exact
}
