package builtin

import (
	"fmt"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/tree"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var signingRequestStrategy = objects.Strategy{
	ForUser:  requestedBy,
	Validate: validateSigningRequest,
	Parts:    map[string]objects.Part{"approval": copyApproval, "status": copyRequestStatus},
}

// requestedBy writes who asks into a new CertificateSigningRequest, whatever it says
// itself: signers go by it. Nobody asks and approves at once.
func requestedBy(o *objects.Op, obj, old tree.Object) error {
	if old != nil {
		return nil
	}
	spec := tree.Clone(obj["spec"])
	for _, name := range [...]string{"username", "uid", "groups", "extra"} {
		delete(spec, name)
	}
	if o.User.Name != "" {
		spec["username"] = o.User.Name
	}
	if o.User.UID != "" {
		spec["uid"] = o.User.UID
	}
	if len(o.User.Groups) > 0 {
		spec["groups"] = tree.FromStrings(o.User.Groups)
	}
	if len(o.User.Extra) > 0 {
		extra := tree.Object{}
		for k, v := range o.User.Extra {
			extra[k] = tree.FromStrings(v)
		}
		spec["extra"] = extra
	}
	obj["spec"], obj["status"] = spec, tree.Object{}
	return nil
}

const (
	approved = "Approved"
	denied   = "Denied"
)

// copyApproval is the part of certificatesigningrequests/approval: the conditions.
func copyApproval(o *objects.Op, obj, sent, old tree.Object) error {
	list := stampConditions(o, sent, old)
	state := tree.Clone(old["status"])
	tree.SetList(state, "conditions", list)
	obj["status"] = state
	if has(list, approved) && has(list, denied) {
		second := denied
		if tree.ConditionIndex(list, approved) > tree.ConditionIndex(list, denied) {
			second = approved
		}
		return o.Invalid(o.Info.Name, field.ErrorList{field.Invalid(field.NewPath("status", "conditions"), second, "Approved and Denied conditions are mutually exclusive")})
	}
	if errs := removed(list, old, approved, denied, "Failed"); len(errs) > 0 {
		return o.Invalid(o.Info.Name, errs)
	}
	return objects.CopyLabels(obj, sent)
}

// copyRequestStatus is the part of certificatesigningrequests/status, of which the
// approval is not.
func copyRequestStatus(o *objects.Op, obj, sent, old tree.Object) error {
	list := stampConditions(o, sent, old)
	for _, kind := range [...]string{approved, denied} {
		if has(list, kind) && !has(conditionsOf(old), kind) {
			return o.Invalid(o.Info.Name, field.ErrorList{field.Forbidden(field.NewPath("status", "conditions"), fmt.Sprintf("updates may not add a condition of type %q", kind))})
		}
	}
	if errs := removed(list, old, approved, denied, "Failed"); len(errs) > 0 {
		return o.Invalid(o.Info.Name, errs)
	}
	state := tree.Clone(sent["status"])
	was, now := tree.As(old["status"])["certificate"], state["certificate"]
	if was != nil && !tree.Equal(was, now) {
		return o.Invalid(o.Info.Name, field.ErrorList{field.Forbidden(field.NewPath("status", "certificate"), "updates may not set certificate content to a different value")})
	}
	if encoded, _ := now.(string); encoded != "" && was == nil {
		if err := validateCertificate(encoded); err != nil {
			return o.Invalid(o.Info.Name, field.ErrorList{field.Invalid(field.NewPath("status", "certificate"), "<certificate data>", err.Error())})
		}
	}
	// What approves stays as it was written there.
	for i, x := range list {
		if kind := tree.Text(tree.As(x), "type"); kind == approved || kind == denied {
			if j := tree.ConditionIndex(conditionsOf(old), kind); j >= 0 {
				list[i] = conditionsOf(old)[j]
			}
		}
	}
	tree.SetList(state, "conditions", list)
	obj["status"] = state
	return objects.CopyLabels(obj, sent)
}

func conditionsOf(obj tree.Object) []any {
	list, _ := tree.Lookup(obj, "status.conditions").([]any)
	return list
}

func has(list []any, kind string) bool { return tree.ConditionIndex(list, kind) >= 0 }

// removed refuses to take conditions of some types away.
func removed(list []any, old tree.Object, kinds ...string) (errs field.ErrorList) {
	for _, kind := range kinds {
		if has(conditionsOf(old), kind) && !has(list, kind) {
			errs = append(errs, field.Forbidden(field.NewPath("status", "conditions"), fmt.Sprintf("updates may not remove a condition of type %q", kind)))
		}
	}
	return errs
}

// stampConditions returns the conditions that were sent, with the times that they
// leave to the server.
func stampConditions(o *objects.Op, sent, old tree.Object) []any {
	now := tree.Timestamp(o.Store.Now())
	before := map[string]tree.Object{}
	for _, x := range conditionsOf(old) {
		if was := tree.As(x); before[tree.Text(was, "type")] == nil {
			before[tree.Text(was, "type")] = was
		}
	}
	var out []any
	for _, x := range conditionsOf(sent) {
		x := tree.Clone(x)
		if tree.Text(x, "lastUpdateTime") == "" {
			x["lastUpdateTime"] = now
		}
		if tree.Text(x, "lastTransitionTime") == "" {
			x["lastTransitionTime"] = now
			if was := before[tree.Text(x, "type")]; was != nil {
				if at := tree.Text(was, "lastTransitionTime"); at != "" && was["status"] == x["status"] {
					x["lastTransitionTime"] = at
				}
			}
		}
		out = append(out, x)
	}
	return out
}
