package auth

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

// impersonationMode is a way in which a user may be allowed to act as another. The constrained ones
// (KEP-5284) need two rights: to act as that user, and to do what the request asks for as one of
// that kind of users. Upstream's package is no handler of ours: it keeps for ten seconds what it
// has allowed, and here a right that is taken away ends with the write that takes it.
type impersonationMode struct {
	name string // "" is the right to act as a user in everything
	// applies reports whether by may ask for the user in this mode. Nil: always.
	applies func(wanted, by *User) bool
}

// impersonationModes are tried in this order. What is told of a request that none allows is what
// the first says.
var impersonationModes = []impersonationMode{
	{"associated-node", func(wanted, by *User) bool {
		node, ok := nodeNamed(wanted.Name)
		if _, _, account := accountNamed(by.Name); !ok || !account || !onlyNamed(wanted) {
			return false
		}
		of := by.Extra[serviceaccount.NodeNameKey]
		return len(of) == 1 && of[0] == node
	}},
	{"arbitrary-node", func(wanted, _ *User) bool {
		_, ok := nodeNamed(wanted.Name)
		return ok && onlyNamed(wanted)
	}},
	{"serviceaccount", func(wanted, _ *User) bool {
		_, _, ok := accountNamed(wanted.Name)
		return ok && onlyNamed(wanted)
	}},
	{"user-info", func(wanted, _ *User) bool {
		_, node := nodeNamed(wanted.Name)
		_, _, account := accountNamed(wanted.Name)
		return !node && !account
	}},
	{},
}

// verb is the right to act as a user. It is "" for the mode without a constraint, whose right is
// called impersonate.
func (m impersonationMode) verb() string {
	if m.name == "" {
		return ""
	}
	return "impersonate:" + m.name
}

// impersonate returns the user that is wanted, as the mode makes it.
func (m impersonationMode) impersonate(ctx context.Context, a Authorizer, on Attributes, wanted *User) (*User, error) {
	ask := asking{ctx: ctx, authorizer: a, by: on.User, mode: m}
	if m.name == "associated-node" {
		// The rights are the account's, on whatever node it asks.
		by := *on.User
		by.Extra = map[string][]string{"authentication.kubernetes.io/associated-node-keys": slices.Sorted(maps.Keys(by.Extra))}
		ask.by = &by
	}
	if m.name != "" {
		on.User, on.Verb = ask.by, "impersonate-on:"+m.name+":"+on.Verb
		if err := ask.about(on); err != nil {
			return nil, err
		}
	}
	u := *wanted
	if err := ask.name(&u); err != nil {
		return nil, err
	}
	if u.UID != "" {
		if err := ask.may("uids", "", "", u.UID); err != nil {
			return nil, err
		}
	}
	if err := ask.groups(wanted.Groups); err != nil {
		return nil, err
	}
	return &u, ask.extra(wanted.Extra)
}

// asking is one mode's questions about what a user may impersonate.
type asking struct {
	ctx        context.Context
	authorizer Authorizer
	by         *User
	mode       impersonationMode
}

func (q asking) constrained() bool { return q.mode.name != "" }

// about asks for one right. The error is the refusal.
func (q asking) about(x Attributes) error {
	decision, reason, err := q.authorizer.Authorize(q.ctx, x)
	switch {
	case decision == Allow: // whatever could not be evaluated besides
		return nil
	case err != nil && reason != "":
		reason = fmt.Sprintf("%v: %s", err, reason)
	case err != nil:
		reason = err.Error()
	}
	return Forbidden(x, reason)
}

// right is that to impersonate a part of a user.
func (q asking) right(resource, subresource, namespace, name string) Attributes {
	x := Attributes{
		User: q.by, Verb: "impersonate", APIVersion: "v1",
		Resource: resource, Subresource: subresource, Namespace: namespace, Name: name, ResourceRequest: true,
	}
	if q.constrained() {
		x.Verb = q.mode.verb()
	}
	if q.constrained() || resource == "uids" || resource == "userextras" {
		x.APIGroup = "authentication.k8s.io"
	}
	return x
}

func (q asking) may(resource, subresource, namespace, name string) error {
	return q.about(q.right(resource, subresource, namespace, name))
}

// name asks for the user by name, and gives it the groups that its name says it has.
func (q asking) name(u *User) error {
	if node, ok := nodeNamed(u.Name); ok && q.constrained() {
		u.Groups = []string{Nodes}
		if q.mode.name == "associated-node" {
			node = "*"
		}
		return q.may("nodes", "", "", node)
	}
	if namespace, name, ok := accountNamed(u.Name); ok {
		if len(u.Groups) == 0 {
			u.Groups = ServiceAccountGroups(namespace)
		}
		return q.may("serviceaccounts", "", namespace, name)
	}
	return q.may("users", "", "", u.Name)
}

// many is from how many questions on the right to all is asked for first.
const many = 4

func (q asking) groups(groups []string) error {
	if q.constrained() {
		switch {
		case slices.Contains(groups, ""):
			return Forbidden(q.right("groups", "", "", ""), "impersonating the empty string group is not allowed")
		case slices.Contains(groups, Masters):
			return Forbidden(q.right("groups", "", "", Masters), "impersonating the system:masters group is not allowed")
		case len(groups) >= many && q.may("groups", "", "", "*") == nil:
			return nil
		}
	}
	for _, g := range groups {
		if err := q.may("groups", "", "", g); err != nil {
			return err
		}
	}
	return nil
}

func (q asking) extra(extra map[string][]string) error {
	if len(extra) == 0 {
		return nil
	}
	if q.constrained() {
		if err := checkExtra(extra); err != nil {
			return Forbidden(q.right("userextras", "", "", ""), err.Error())
		}
		values := 0
		for _, v := range extra {
			values += len(v)
		}
		if max(len(extra), values) >= many && q.may("userextras", "*", "", "*") == nil {
			return nil
		}
	}
	for _, key := range slices.Sorted(maps.Keys(extra)) {
		for _, value := range extra[key] {
			if err := q.may("userextras", key, "", value); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkExtra(extra map[string][]string) error {
	for _, key := range slices.Sorted(maps.Keys(extra)) {
		switch values := extra[key]; {
		case key == "":
			return errors.New("impersonating the empty string key in extra is not allowed")
		case slices.Contains(values, ""):
			return errors.New("impersonating the empty string value in extra is not allowed")
		case key != strings.ToLower(key):
			return fmt.Errorf("impersonating a non-lowercase key in extra is not allowed: %q", key)
		}
		if err := utilvalidation.IsDomainPrefixedPath(field.NewPath("extra", "key"), key).ToAggregate(); err != nil {
			return fmt.Errorf("impersonating an invalid key in extra is not allowed: %w", err)
		}
	}
	return nil
}

// nodeNamed is the node of the name of a kubelet's user.
func nodeNamed(user string) (node string, ok bool) {
	node, ok = strings.CutPrefix(user, nodePrefix)
	return node, ok && len(validation.NameIsDNSSubdomain(node, false)) == 0
}

// accountNamed is the service account of the name of its user. A name that none can have is a user's.
func accountNamed(user string) (namespace, name string, ok bool) {
	namespace, name, err := serviceaccount.SplitUsername(user)
	return namespace, name, err == nil
}

// onlyNamed reports whether nothing is wanted of a user but its name.
func onlyNamed(u *User) bool { return u.UID == "" && len(u.Groups) == 0 && len(u.Extra) == 0 }
