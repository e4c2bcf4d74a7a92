package check

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/quorate/quorate/test/judges/history"
)

// answer is what an operation's answer says about the state: the least revision
// from floor on at which it is true.
type answer func(floor uint64) (rev uint64, ok bool)

// holds returns an answer's ranges, or nil if it says nothing about the state.
// An answer that is never true comes with the reason. A sweep that does not report
// learns only from what shows revisions.
func (j *judge) holds(i int, report bool) (a answer, why string) {
	o := &j.h.Ops[i]
	switch {
	case !report && o.Outcome == history.Refused, !report && o.Kind == history.Get && len(o.Items) == 0:
		return nil, ""
	case o.Outcome == history.Unknown:
		return nil, ""
	case isWrite(o.Kind) && o.Outcome == history.OK:
		if !j.done[i] {
			return nil, ""
		}
		rev := j.rev[i]
		return func(floor uint64) (uint64, bool) { return rev, floor < rev }, ""
	case isWrite(o.Kind):
		return j.refusal(o), ""
	case o.Outcome == history.Refused:
		if o.Kind == history.Get && o.Code == http.StatusNotFound {
			return j.where(o.Key, func(p present) bool { return !p.live }), ""
		}
		return nil, ""
	case o.Kind == history.Get:
		return j.got(o)
	case o.Kind == history.List:
		if report {
			if why := j.listed(o); why != "" {
				return nil, why
			}
		}
		return func(floor uint64) (uint64, bool) { return o.Revision, floor <= o.Revision }, ""
	}
	return nil, ""
}

// refusal is what a refused write says: 404 that there was nothing, 409 that
// there was something (create) or that it was another version (a condition).
func (j *judge) refusal(o *history.Op) answer {
	switch {
	case o.Code == http.StatusNotFound && o.Kind != history.Create:
		return j.where(o.Key, func(p present) bool { return !p.live })
	case o.Code == http.StatusConflict && o.Kind == history.Create:
		return j.where(o.Key, func(p present) bool { return p.live })
	case o.Code == http.StatusConflict && conditional(o.Kind):
		return j.where(o.Key, func(p present) bool { return !p.live || p.rev != o.Precondition })
	}
	return nil
}

// where returns the answer that is true while a key's state is such. An object
// from before the log that nobody ever saw may be there or not.
func (j *judge) where(key string, such func(present) bool) answer {
	versions := j.keys[key]
	unsure := len(versions) > 0 && j.log[versions[0]].unsure || len(versions) == 0 && j.h.LogFrom > 0 && j.base[key].Key == ""
	return func(floor uint64) (uint64, bool) {
		p := j.state(key, floor)
		for {
			if such(p) || unsure && p.rev == 0 {
				return max(floor, p.rev), true
			}
			if p.until == never {
				return 0, false
			}
			p = j.state(key, p.until)
		}
	}
}

// got is the answer of a get.
func (j *judge) got(o *history.Op) (answer, string) {
	switch len(o.Items) {
	case 0:
		return j.where(o.Key, func(p present) bool { return !p.live }), ""
	case 1:
	default:
		return nil, "a get with more than one item"
	}
	it := o.Items[0]
	if it.Key != o.Key {
		return nil, "it shows another key"
	}
	p, ok := j.shown(it)
	if !ok {
		return nil, j.notShown(it)
	}
	return func(floor uint64) (uint64, bool) { return max(floor, p.rev), floor < p.until }, ""
}

// notShown says why an item was never current.
func (j *judge) notShown(it history.Item) string {
	v := j.at(it.Revision)
	if v == nil {
		return fmt.Sprintf("the log has nothing at %d", it.Revision)
	}
	return fmt.Sprintf("shows %s, but the log has at %d: %s", showItem(it), it.Revision, j.describe(v))
}

// listed compares a list with the state at its revision.
func (j *judge) listed(o *history.Op) string {
	for n, it := range o.Items {
		p, ok := j.shown(it)
		switch {
		case !ok:
			return j.notShown(it)
		case it.Revision > o.Revision:
			return fmt.Sprintf("shows %s in a list @%d", showItem(it), o.Revision)
		case p.until <= o.Revision:
			return fmt.Sprintf("shows %s in a list @%d, but at %d came %s", showItem(it), o.Revision, p.until, j.describe(j.at(p.until)))
		case !strings.HasPrefix(it.Key, o.Prefix) || o.After != "" && it.Key <= o.After:
			return fmt.Sprintf("shows %s, which is outside of what was asked", showItem(it))
		case n > 0 && o.Items[n-1].Key >= it.Key:
			return fmt.Sprintf("shows %s behind %s", showItem(it), showItem(o.Items[n-1]))
		}
	}
	if o.Prefix == "" && o.Limit == 0 && o.After == "" && !o.More && j.objects(o.Revision) == len(o.Items) {
		return "" // each is right, and there are as many
	}
	want, more := j.snapshot(o.Revision, o.Prefix, o.After, "", o.Limit)
	if !slices.Equal(want, o.Items) && (len(want) > 0 || len(o.Items) > 0) {
		return fmt.Sprintf("the state at %d is %s", o.Revision, showItems(want))
	}
	if more != o.More {
		return fmt.Sprintf("has a continue token: %v, but there is more: %v", o.More, more)
	}
	return ""
}

// objects returns the number of objects at a revision.
func (j *judge) objects(rev uint64) int {
	if j.counts == nil {
		j.counts = make([]int, len(j.log)+1)
		j.counts[0] = len(j.base)
		for i := range j.log {
			n := j.counts[i]
			switch v := &j.log[i]; {
			case v.deleted && v.live && !v.unsure:
				n--
			case !v.deleted && !v.live:
				n++
			case !v.deleted && v.unsure:
				n++ // it was not counted before
			}
			j.counts[i+1] = n
		}
	}
	return j.counts[j.after(rev)]
}

// place finds where an operation belongs, and reports it if that is nowhere. Zero
// is no place.
func (s *sweep) place(i int) uint64 {
	o := &s.h.Ops[i]
	a, why := s.holds(i, s.report)
	if a == nil {
		if why != "" && s.report {
			s.opViolation(ReadContent, i, "%s", why)
		}
		if s.report {
			s.expired(i)
		}
		return 0
	}
	floor, ok := s.allowed(i, a)
	if !ok {
		return 0
	}
	rev, ok := a(floor)
	if !ok {
		return 0 // allowed has said so
	}
	if next, op := s.future(o.Return); next <= rev {
		if s.report {
			s.ahead(i, op, rev, floor)
		}
		return 0
	}
	// A refusal may be certain from an older state: it shows none of its node.
	known := o.Outcome != history.Unknown && o.Return != history.Forever
	if known && !(isWrite(o.Kind) && o.Outcome == history.Refused) {
		if c := s.clients[o.Client]; rev > c.rev {
			s.clients[o.Client] = own{reached{rev, o.Return, byOp(i)}, o.Node, o.Call}
		}
	}
	return rev
}

// ahead reports an answer that is true only after a write that was called later.
func (s *sweep) ahead(i, op int, rev, floor uint64) {
	o := &s.h.Ops[i]
	switch {
	case isWrite(o.Kind) && o.Outcome == history.OK:
		s.opsViolation(OrderWrites, i, op, "got revision %d and had returned when the write of the lower revision %d was called: %s", rev, s.rev[op], Describe(s.h, op))
	case rev > floor && (isWrite(o.Kind) || len(o.Items) == 0 && o.Kind == history.Get):
		// It would come true again, but only by a write that was called later.
		s.untrue(i, floor)
	default:
		s.opsViolation(OrderFuture, i, op, "shows a state that contains a write that was only called later: %s", Describe(s.h, op))
	}
}

// untrue reports an answer that was not true at floor or later, before it returned.
func (s *sweep) untrue(i int, floor uint64) {
	o := &s.h.Ops[i]
	seen := s.before(o)
	text := fmt.Sprintf("the state of %d had been seen before it was called, by %s", seen.rev, s.who(seen.by))
	if o.Key != "" {
		p := s.state(o.Key, floor)
		if v := s.at(p.rev); v != nil {
			text += "; since then: " + s.describe(v)
		}
	}
	if isWrite(o.Kind) {
		s.opsViolation(RefusalStale, i, seen.by.op, "%s", text)
		return
	}
	if o.Mode == history.MostRecent {
		s.v.Counts.StaleReads++
		s.opsViolation(ReadStale, i, seen.by.op, "%s", text)
		return
	}
	s.opsViolation(ReadContent, i, seen.by.op, "it was not so at any time before it returned")
}

// limit is a state than which an answer must not be older, and the promise that
// says so.
type limit struct {
	check string
	than  reached
	why   string
}

// allowed returns the least revision that an answer may show, by its mode. It
// reports the promise that the answer breaks, if any.
func (s *sweep) allowed(i int, a answer) (floor uint64, ok bool) {
	o := &s.h.Ops[i]
	if isWrite(o.Kind) || o.Mode == history.MostRecent {
		return s.allowedFresh(i, a)
	}
	if o.Mode == history.Exact {
		return s.allowedExact(i, a)
	}
	bounds := []limit{{ReadContent, reached{by: nobody}, "it was never so"}}
	if o.Mode == history.NotOlderThan {
		bounds = append(bounds, limit{ReadBound, reached{rev: o.Asked, by: nobody}, fmt.Sprintf("older than %d", o.Asked)})
	}
	l := s.local(o.Node, o.Call, o.Return)
	if c := s.clients[o.Client]; c.node == o.Node && c.at <= o.Call && c.rev > l.rev && !s.restarted(o.Node, c.began, o.Return) {
		l = c.reached
	}
	if l.rev > 0 {
		bounds = append(bounds, limit{ReadLocal, l, fmt.Sprintf("%s had shown the state of %d before, to %s", o.Node, l.rev, s.who(l.by))})
	}
	if o.Mode == history.Any && o.Staleness != nil {
		// What the node knew itself to be current at was measured after the call.
		if k := s.known(o.Call - *o.Staleness); k.rev > 0 {
			bounds = append(bounds, limit{ReadClaim, k, fmt.Sprintf("more than the claimed %s before its call, the state of %d had been seen by %s", ms(*o.Staleness), k.rev, s.who(k.by))})
		}
	}
	next, _ := s.future(o.Return)
	for _, b := range bounds {
		rev, ok := a(b.than.rev)
		if !ok || rev >= next && b.than.rev < next && b.check != ReadContent {
			if s.report {
				s.opsViolation(b.check, i, b.than.by.op, "%s", b.why)
			}
			return 0, false
		}
		floor = max(floor, b.than.rev)
	}
	return floor, true
}

// before returns what anybody had seen before an operation was called, its own
// client included.
func (s *sweep) before(o *history.Op) reached {
	seen := s.known(o.Call)
	if c := s.clients[o.Client]; c.at <= o.Call && c.rev > seen.rev {
		return c.reached
	}
	return seen
}

// allowedFresh: what anybody had seen before the call.
func (s *sweep) allowedFresh(i int, a answer) (uint64, bool) {
	o := &s.h.Ops[i]
	seen := s.before(o)
	floor := seen.rev
	if _, ok := a(floor); ok {
		return floor, true
	}
	if !s.report {
		return 0, false
	}
	if isWrite(o.Kind) && o.Outcome == history.OK {
		s.opsViolation(OrderWrites, i, seen.by.op, "got a revision that was not above what had been seen before its call, %d by %s", seen.rev, s.who(seen.by))
		return 0, false
	}
	s.untrue(i, floor)
	return 0, false
}

// allowedExact: the state of one revision.
func (s *sweep) allowedExact(i int, a answer) (uint64, bool) {
	o := &s.h.Ops[i]
	if rev, ok := a(o.Asked); ok && rev == o.Asked {
		return o.Asked, true
	}
	if s.report {
		s.opViolation(ReadExact, i, "not the state at %d", o.Asked)
	}
	return 0, false
}

// expired checks a 410.
func (s *sweep) expired(i int) {
	o := &s.h.Ops[i]
	if isWrite(o.Kind) || o.Outcome != history.Refused || o.Code != http.StatusGone {
		return
	}
	switch {
	case o.Mode != history.Exact:
		s.opViolation(ReadExpired, i, "only a read of the past can be too old")
	case s.floors && o.Asked >= s.floor:
		s.opViolation(ReadExpired, i, "the floor was never above %d", s.floor)
	}
}
