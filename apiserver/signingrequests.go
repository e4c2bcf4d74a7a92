package apiserver

import (
	"fmt"
	"maps"
	"slices"

	"github.com/quorate/quorate/apiserver/rules"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var signingRequestHooks = objectHooks{forUser: (*call).requestedBy}

// requestedBy writes who asks into a new CertificateSigningRequest, whatever it says
// itself: signers go by it. Nobody asks and approves at once.
func (c *call) requestedBy(obj, old tree) error {
	if old != nil {
		return nil
	}
	spec := maps.Clone(asTree(obj["spec"]))
	if spec == nil {
		spec = tree{}
	}
	for _, name := range [...]string{"username", "uid", "groups", "extra"} {
		delete(spec, name)
	}
	if c.user.Name != "" {
		spec["username"] = c.user.Name
	}
	if c.user.UID != "" {
		spec["uid"] = c.user.UID
	}
	if len(c.user.Groups) > 0 {
		spec["groups"] = anyList(c.user.Groups)
	}
	if len(c.user.Extra) > 0 {
		extra := tree{}
		for k, v := range c.user.Extra {
			extra[k] = anyList(v)
		}
		spec["extra"] = extra
	}
	obj["spec"], obj["status"] = spec, tree{}
	return c.checkSubject(obj)
}

func anyList(list []string) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}

const (
	approved = "Approved"
	denied   = "Denied"
)

// takeApproval is the part of certificatesigningrequests/approval: the conditions.
func takeApproval(c *call, obj, sent, old tree) error {
	list := c.stampConditions(sent, old)
	state := maps.Clone(asTree(old["status"]))
	if state == nil {
		state = tree{}
	}
	setList(state, "conditions", list)
	obj["status"] = state
	if has(list, approved) && has(list, denied) {
		return c.invalid(c.info.Name, field.ErrorList{field.Invalid(field.NewPath("status", "conditions"), list, "Approved and Denied conditions are mutually exclusive")})
	}
	if errs := removed(list, old, approved, denied, "Failed"); len(errs) > 0 {
		return c.invalid(c.info.Name, errs)
	}
	if err := c.mayApprove(old); err != nil {
		return err
	}
	return carryLabels(obj, sent)
}

// takeRequestStatus is the part of certificatesigningrequests/status, of which the
// approval is not.
func takeRequestStatus(c *call, obj, sent, old tree) error {
	list := c.stampConditions(sent, old)
	for _, kind := range [...]string{approved, denied} {
		if has(list, kind) && !has(conditionsOf(old), kind) {
			return c.invalid(c.info.Name, field.ErrorList{field.Forbidden(field.NewPath("status", "conditions"), fmt.Sprintf("updates may not add a condition of type %q", kind))})
		}
	}
	if errs := removed(list, old, approved, denied, "Failed"); len(errs) > 0 {
		return c.invalid(c.info.Name, errs)
	}
	state := maps.Clone(asTree(sent["status"]))
	if state == nil {
		state = tree{}
	}
	was, now := asTree(old["status"])["certificate"], state["certificate"]
	if was != nil && !treeEqual(was, now) {
		return c.invalid(c.info.Name, field.ErrorList{field.Forbidden(field.NewPath("status", "certificate"), "updates may not set certificate content to a different value")})
	}
	if encoded, _ := now.(string); encoded != "" && was == nil {
		if err := rules.Certificate(encoded); err != nil {
			return c.invalid(c.info.Name, field.ErrorList{field.Invalid(field.NewPath("status", "certificate"), "<certificate data>", err.Error())})
		}
	}
	// What approves stays as it was written there.
	for i, x := range list {
		if kind := text(asTree(x), "type"); kind == approved || kind == denied {
			if j := indexOf(conditionsOf(old), kind); j >= 0 {
				list[i] = conditionsOf(old)[j]
			}
		}
	}
	setList(state, "conditions", list)
	obj["status"] = state
	if err := c.maySign(obj, old); err != nil {
		return err
	}
	return carryLabels(obj, sent)
}

func conditionsOf(obj tree) []any {
	list, _ := lookup(obj, "status.conditions").([]any)
	return list
}

func has(list []any, kind string) bool { return indexOf(list, kind) >= 0 }

func indexOf(list []any, kind string) int {
	return slices.IndexFunc(list, func(x any) bool { return text(asTree(x), "type") == kind })
}

// removed refuses to take conditions of some types away.
func removed(list []any, old tree, kinds ...string) (errs field.ErrorList) {
	for _, kind := range kinds {
		if has(conditionsOf(old), kind) && !has(list, kind) {
			errs = append(errs, field.Forbidden(field.NewPath("status", "conditions"), fmt.Sprintf("updates may not remove a condition of type %q", kind)))
		}
	}
	return errs
}

// stampConditions returns the conditions that were sent, with the times that they
// leave to the server.
func (c *call) stampConditions(sent, old tree) []any {
	now := timestamp(c.s.cfg.Now())
	before := map[string]tree{}
	for _, x := range conditionsOf(old) {
		if was := asTree(x); before[text(was, "type")] == nil {
			before[text(was, "type")] = was
		}
	}
	var out []any
	for _, x := range conditionsOf(sent) {
		x := maps.Clone(asTree(x))
		if text(x, "lastUpdateTime") == "" {
			x["lastUpdateTime"] = now
		}
		if text(x, "lastTransitionTime") == "" {
			x["lastTransitionTime"] = now
			if was := before[text(x, "type")]; was != nil {
				if at := text(was, "lastTransitionTime"); at != "" && was["status"] == x["status"] {
					x["lastTransitionTime"] = at
				}
			}
		}
		out = append(out, x)
	}
	return out
}

func setList(m tree, name string, list []any) {
	if len(list) == 0 {
		delete(m, name)
		return
	}
	m[name] = list
}
