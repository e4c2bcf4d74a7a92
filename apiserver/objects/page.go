package objects

import (
	"errors"
	"strings"

	"github.com/quorate/quorate/apiserver/wire/status"
	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/view"
)

// ListParams are the request's parameters in the words of package consistency.
func (r *reader) ListParams(sel *Selection) consistency.Params {
	return consistency.Params{
		ResourceVersion:   r.Options.ResourceVersion,
		Match:             r.Options.ResourceVersionMatch,
		Limit:             r.Options.Limit,
		Continue:          r.Options.Continue,
		SendInitialEvents: r.Options.SendInitialEvents,
		AllowBookmarks:    r.Options.AllowWatchBookmarks,
		SingleName:        sel.key != "",
		MaxStaleness:      r.Options.MaxStaleness,
	}
}

// PlanList plans a list and refuses a token that is certainly of another one:
// tokens say neither of which resource nor of which namespace they are, but the
// keys in them do, a little. What passes cannot leave the table and the
// namespace of the request, so at worst a page begins in the wrong place.
func (r *reader) PlanList(p consistency.Params) (consistency.Plan, error) {
	plan, err := consistency.PlanList(p)
	if err != nil || plan.Token == nil {
		return plan, err
	}
	start := plan.Token.Start
	inside := strings.Contains(start, "/") == r.Resource.Namespaced
	if r.Resource.Namespaced && r.Info.ObjectNamespace != "" {
		inside = strings.HasPrefix(start, r.Info.ObjectNamespace+"/")
	}
	if !inside {
		return plan, status.BadRequest("invalid continue token: continue key is not valid: %s", start)
	}
	return plan, nil
}

// Page reads one page of a list.
func (r *reader) Page(plan consistency.Plan, at proto.Revision, sel *Selection) (mvcc.Page, proto.Revision, error) {
	if WebhookOf(r.Resource) != nil && !sel.all() && sel.key == "" {
		return r.pageConverted(plan, at, sel)
	}
	page, at, err := r.pageStored(plan, at, sel)
	if err != nil {
		return page, at, err
	}
	page.Versions, err = r.Store.ConvertAll(r.Context, r.Resource, page.Versions)
	return page, at, err
}

// pageConverted reads a page of objects that a webhook has to convert before it can be
// said whether they are meant: what is selected by are the labels and fields of the
// version that is asked for.
func (r *reader) pageConverted(plan consistency.Plan, at proto.Revision, sel *Selection) (mvcc.Page, proto.Revision, error) {
	all, whole := *sel, plan
	all.labels, all.fields = nil, nil
	whole.Limit = batchObjects
	out := mvcc.Page{Remaining: -1}
	limit := int(min(plan.Limit, maxPage))
	for {
		page, read, err := r.pageStored(whole, at, &all)
		if err != nil {
			return out, read, err
		}
		at = read
		versions, err := r.Store.ConvertAll(r.Context, r.Resource, page.Versions)
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
func (r *reader) pageStored(plan consistency.Plan, at proto.Revision, sel *Selection) (mvcc.Page, proto.Revision, error) {
	q := mvcc.Query{Prefix: sel.prefix, Limit: int(min(plan.Limit, maxPage))}
	switch {
	case sel.key != "" && plan.Token == nil:
		return r.pageOfOne(plan, at, sel)
	case !sel.all():
		q.Match = sel.matches
	}
	if plan.Token != nil {
		q.From = plan.Token.Start
	}
	if index, value := r.index(plan, sel); index != nil {
		page, at := index.Range(value, q)
		return page, at, nil
	}
	page, at, err := r.Store.Scan(r.Resource.Table(), plan, at, q)
	return page, at, expiredError(err, plan)
}

// index returns what has the objects of a list by the value of a field, and the value, or nil. It
// knows the newest state: a page of an older one is read from the table.
func (r *reader) index(plan consistency.Plan, sel *Selection) (*view.FieldIndex, string) {
	index := r.Store.indexes[r.Resource.Table()]
	if index == nil || sel.fields == nil || plan.Mode == consistency.Exact {
		return nil, ""
	}
	value, ok := sel.fields.RequiresExactMatch(index.Field())
	if !ok {
		return nil, ""
	}
	return index, value
}

// maxPage only keeps the conversion of a limit from overflowing.
const maxPage = 1 << 30

// pageOfOne is a list that metadata.name narrows to one object.
func (r *reader) pageOfOne(plan consistency.Plan, at proto.Revision, sel *Selection) (mvcc.Page, proto.Revision, error) {
	page := mvcc.Page{Remaining: -1}
	v, at, err := r.Store.Find(r.Resource.Table(), sel.key, plan, at)
	if v != nil && err == nil {
		if v, err = r.ConvertOne(v); err == nil && sel.matches(v) {
			page.Versions = []*mvcc.Version{v}
		}
	}
	return page, at, expiredError(err, plan)
}

// expiredError words the failure of a list below the history floor.
func expiredError(err error, plan consistency.Plan) error {
	switch {
	case !errors.Is(err, mvcc.ErrCompacted):
		return err
	case plan.Token != nil:
		return status.ContinueExpired(plan.Token.AtLatest().Encode())
	}
	return status.ListTooOld()
}
