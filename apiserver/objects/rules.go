package objects

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/objects/storage"
	"github.com/quorate/quorate/proto"
	storeerrors "github.com/quorate/quorate/raftstore/errors"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// A client's write is decided by rules: who it says to be, the roles that allow it, the plugins'
// configurations, the labels of its namespace, the definition of its kind. This node may lag behind them. So
// the entry says which rules those are and as of when, and the state machine refuses it if one
// of them has changed since. Then this node has applied the change: the write is authorized
// and decided again. A refusal is not written; it is given once this node is known to be
// current, and decided again, once, if a rule has changed meanwhile.

// Rules that decide on every write of a client, whatever its kind.
const (
	roleRules      = proto.RuleRoles | proto.RuleClusterRoles | proto.RuleRoleBindings | proto.RuleClusterRoleBindings
	admissionRules = proto.RuleMutatingWebhooks | proto.RuleValidatingWebhooks | proto.RuleValidatingPolicies | proto.RuleValidatingPolicyBindings |
		proto.RuleMutatingPolicies | proto.RuleMutatingPolicyBindings | proto.RuleAdmissionSuspensions
)

// Requester is the request behind an operation.
type Requester interface {
	// AuthorizeAgain decides as the state is now whether the client is still who it was, and the
	// operation allowed. The error is the refusal.
	AuthorizeAgain() error
	// Basis are the objects, beside roles, that it was allowed by: of a kubelet, the Pods that
	// run on its node. Safe for concurrent use with AuthorizeAgain. The slice is shared.
	Basis() []auth.Object
}

// errDecideAgain ends a decision when the rules have changed that it follows from:
// nothing was written, but what a Creater may have written of what it does, the operation was authorized again, and all of it has to
// begin once more, with what the client has sent.
var errDecideAgain = errors.New("decide again: rules have changed")

// decideAgain decides as often as rules change meanwhile. Every write of a client runs in it. What is done on behalf of another operation ends
// instead, and that one begins again.
func (d *decision) decideAgain(decide func() error) error {
	for {
		if err := decide(); d.behalf != nil || !errors.Is(err, errDecideAgain) {
			return err
		}
	}
}

// rules are the bits of what the operation was decided by, without what plugins have consulted.
func (d *decision) rules() uint32 {
	rules := admissionRules
	if d.Impersonated || !d.User.InGroup(auth.Masters) {
		rules |= roleRules
	}
	if d.Resource.Namespaced {
		rules |= proto.RuleNamespaces
	}
	if d.Resource.Custom {
		rules |= proto.RuleCustomResourceDefinitions
	}
	return rules
}

// Asks notes that what is decided follows from permissions in a namespace that may not be the
// operation's own: see admission.Attributes.ConsultedRoles.
func (d *decision) Asks(namespace string) { d.attributes.ConsultedRoles(namespace) }

// decided notes in an entry what the operation was decided by.
func (d *decision) decided(w *proto.Write) {
	if d.behalf != nil {
		d = d.behalf
	}
	if d.DecidedAt == 0 {
		return // the node's own: no rules
	}
	if d.Impersonated {
		// Who may act as a service account may do so by roles of its namespace.
		if namespace, _, ok := auth.SplitServiceAccount(d.User.Name); ok {
			d.attributes.ConsultedRoles(namespace)
		}
	}
	rules, ranges := d.attributes.Decided()
	w.DecidedAt, w.Rules = uint64(d.DecidedAt), d.rules()|uint32(rules)
	for _, r := range ranges {
		w.RuleRanges = append(w.RuleRanges, &proto.RuleRange{Table: r.Table, Prefix: r.Prefix, Uid: r.UID})
	}
	for _, x := range d.basis() {
		w.RuleRanges = append(w.RuleRanges, &proto.RuleRange{Table: x.Table, Prefix: x.Key, Uid: x.UID})
	}
	if d.Credential == nil {
		return
	}
	for _, x := range d.Credential.Objects() {
		w.RuleRanges = append(w.RuleRanges, &proto.RuleRange{Table: x.Table, Prefix: x.Key, Uid: x.UID})
	}
}

// basis are the objects that the permission of the request follows from, beside roles.
func (d *decision) basis() []auth.Object {
	if d.Requester == nil {
		return nil
	}
	return d.Requester.Basis()
}

// stale reports whether what was decided as of DecidedAt, and follows from an object, has to be
// decided again.
func (d *decision) stale(state *mvcc.State, x auth.Object) bool {
	if x.UID == "" {
		return changedSince(state, x.Table, d.DecidedAt, func(v *mvcc.Version) bool { return strings.HasPrefix(v.Key, x.Key) })
	}
	v, err := d.Store.Current(x.Table, x.Key)
	return err != nil || mvcc.Gone(v, x.UID, d.DecidedAt)
}

// CredentialStale reports whether an object has gone that the credential follows from, or may have.
func (d *decision) CredentialStale() bool {
	if d.Credential == nil {
		return false
	}
	state := d.Store.Storage.State()
	return slices.ContainsFunc(d.Credential.Objects(), func(x auth.Object) bool { return d.stale(state, x) })
}

// race is the operation as the loop of its writes sees it.
type race struct{ *decision }

// Retried implements storage.Caller.
func (r race) Retried() { r.Store.Retried(&r.Kind) }

// RulesStale implements storage.Caller. It looks at the same changes as the state machine does.
func (r race) RulesStale() bool {
	if r.behalf != nil {
		return race{r.behalf}.RulesStale()
	}
	if r.DecidedAt == 0 {
		return false
	}
	state := r.Store.Storage.State()
	rules, ranges := r.attributes.Decided()
	all := r.rules() | uint32(rules)
	namespace, _, _ := strings.Cut(r.Key(), "/")
	for i, rule := range proto.Rules {
		if all&(1<<i) == 0 {
			continue
		}
		var counts func(v *mvcc.Version) bool
		switch rule.Scope {
		case proto.RuleOfNamespace:
			counts = func(v *mvcc.Version) bool { return v.ChangesRuleIn(namespace) }
		case proto.RuleOfName:
			counts = func(v *mvcc.Version) bool { return v.Key == namespace }
		}
		if changedSince(state, rule.Table, r.DecidedAt, counts) {
			return true
		}
	}
	for _, x := range ranges {
		if r.stale(state, auth.Object{Table: x.Table, Key: x.Prefix, UID: x.UID}) {
			return true
		}
	}
	if slices.ContainsFunc(r.basis(), func(x auth.Object) bool { return r.stale(state, x) }) {
		return true
	}
	return r.CredentialStale() || r.usageStale()
}

// changedSince reports whether a version of a table that counts has come since a revision, or
// may have. counts is nil if all do.
func changedSince(state *mvcc.State, table string, since proto.Revision, counts func(*mvcc.Version) bool) bool {
	if state.Latest(table) <= since {
		return false
	}
	t := state.Table(table)
	if counts == nil || t == nil {
		return true
	}
	at := state.Applied()
	changes, err := t.Watch(since)
	if err != nil {
		return true // what changed may be forgotten
	}
	var buf [64]*mvcc.Version
	for {
		n, err := changes.Next(buf[:], at)
		if err != nil {
			return true
		}
		for _, v := range buf[:n] {
			if counts(v) {
				return true
			}
		}
		if n < len(buf) {
			return false
		}
	}
}

// RulesChanged implements storage.Caller: what is decided from here on is decided as of now.
func (r race) RulesChanged(ctx context.Context) error {
	if r.behalf != nil {
		return r.behalf.over(ctx)
	}
	r.DecidedAt = r.Store.Storage.State().Applied()
	if r.Requester == nil {
		return nil
	}
	return r.Requester.AuthorizeAgain()
}

// over has the whole of a request begin again that an operation was derived from.
func (d *decision) over(ctx context.Context) error {
	if d.redecided++; d.redecided == storage.MaxRulesChanged {
		return &storeerrors.RulesChangingError{Times: storage.MaxRulesChanged}
	}
	if err := (race{d}).RulesChanged(ctx); err != nil {
		return err
	}
	return errDecideAgain
}

// StillDecided returns nil if no rule has changed that the operation was decided by. It is for
// what is given away without a log entry, after this node was known to be current. Errors:
// errDecideAgain, and what is for the client.
func (d *decision) StillDecided() error {
	if !(race{d}).RulesStale() {
		return nil
	}
	d.Store.Retried(&d.Kind)
	return d.over(d.Context)
}

// again has Create begin again. cause is what it would return otherwise.
func (d *decision) again(cause error) error {
	if d.redecided++; d.redecided == storage.MaxRulesChanged {
		return cause
	}
	d.Store.Retried(&d.Kind)
	if d.Context.Err() != nil {
		return context.Cause(d.Context)
	}
	if err := (race{d}).RulesChanged(d.Context); err != nil {
		return err
	}
	return errDecideAgain
}

// refused is the refusal of a create. That of a plugin is given once it is known to be
// today's; what makes an object invalid does not change. Who is refused a second time is
// refused by what this node saw when the request was here already: to wait for rules that do
// not change while plugins decide would have a slow webhook asked without an end.
func (d *decision) refused(cause error) error {
	if d.DecidedAt == 0 || !d.refusedByPlugin || d.redecided > 0 {
		return cause
	}
	if d.Context.Err() != nil {
		return context.Cause(d.Context) // the plugin had no time to decide
	}
	if err := d.Store.Confirm(d.Context); err != nil {
		return err
	}
	if (race{d}).RulesStale() {
		return d.again(cause)
	}
	return cause
}
