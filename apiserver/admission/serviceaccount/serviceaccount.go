// Package serviceaccount is the admission plugin ServiceAccount: a Pod runs as a service
// account that is there, and gets the account's token and image pull secrets.
//
// A Pod is looked at as a tree: this happens at every Pod.
package serviceaccount

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/proto"
	upstream "k8s.io/apiserver/pkg/admission"
)

const (
	defaultAccount   = "default"
	mirrorAnnotation = "kubernetes.io/config.mirror"
)

// Plugin is the plugin. Safe for concurrent use.
type Plugin struct{ accounts accounts }

// New returns the plugin. confirm brings this node's state up to date with all writes that
// were acknowledged before the call; it is called before an account is said to be missing.
func New(s *state.State, confirm func(context.Context) error) *Plugin {
	return &Plugin{accounts{state: s, confirm: confirm}}
}

// Handles implements admission.Plugin: Pods that are created, and their ephemeral containers.
func (*Plugin) Handles(a *admission.Attributes) bool {
	if a.Resource.Resource != "pods" || a.Resource.Group != "" {
		return false
	}
	return a.Operation == admission.Create && a.Subresource == "" || a.Operation == admission.Update && a.Subresource == "ephemeralcontainers"
}

// Admit implements admission.Mutator.
func (p *Plugin) Admit(ctx context.Context, a *admission.Attributes) error {
	if a.Operation != admission.Create {
		return nil
	}
	// Kubelets compare a mirror pod with the file that it stands for, and delete it if it differs.
	if isMirror(a.Object) {
		return p.Validate(ctx, a)
	}
	spec := tree.Clone(a.Object["spec"])
	name := accountName(spec)
	if name == "" {
		name = defaultAccount
	}
	// Both fields have the name in v1: the second one is the first one's former name.
	spec["serviceAccountName"], spec["serviceAccount"] = name, name
	account, err := p.lookup(ctx, a, name)
	if err != nil {
		return err
	}
	if account.automounts(spec) {
		mountToken(spec)
	}
	if len(tree.List(spec["imagePullSecrets"])) == 0 {
		tree.SetList(spec, "imagePullSecrets", account.pullSecrets())
	}
	a.Object["spec"] = spec
	return p.Validate(ctx, a)
}

// Validate implements admission.Validator.
func (p *Plugin) Validate(ctx context.Context, a *admission.Attributes) error {
	spec := tree.As(a.Object["spec"])
	if a.Operation == admission.Create && isMirror(a.Object) {
		if err := checkMirror(spec); err != nil {
			return upstream.NewForbidden(a, err)
		}
		return nil
	}
	name := accountName(spec)
	if name == "" {
		return upstream.NewForbidden(a, fmt.Errorf("no service account specified for pod %s/%s", a.Namespace, tree.Text(a.Meta(), "name")))
	}
	account, err := p.lookup(ctx, a, name)
	if err != nil {
		return err
	}
	if !account.limits() {
		return nil
	}
	if a.Operation == admission.Update {
		return admission.Unexplained(account.checkContainers(spec, "ephemeralContainers", "ephemeral container"))
	}
	if err := account.checkSecrets(spec); err != nil {
		return upstream.NewForbidden(a, err)
	}
	return nil
}

// lookup finds the account of a Pod. Errors are for the client.
func (p *Plugin) lookup(ctx context.Context, a *admission.Attributes, name string) (*account, error) {
	a.Consulted(admission.Rules(proto.RuleServiceAccounts))
	account, err := p.accounts.get(ctx, a.Namespace, name)
	if errors.Is(err, errMissing) {
		return nil, upstream.NewForbidden(a, fmt.Errorf("error looking up service account %s/%s: serviceaccount %q not found", a.Namespace, name, name))
	}
	return account, err
}

// accountName is the name of a Pod's account. Clients may use the field's former name; what
// defaults the Pod has copied it then, unless a plugin has written only one of them.
func accountName(spec tree.Object) string { return tree.Text(spec, "serviceAccountName") }

func isMirror(pod tree.Object) bool {
	_, ok := tree.As(tree.Field(pod, "metadata", "annotations"))[mirrorAnnotation]
	return ok
}

// checkMirror refuses what a mirror pod may not have: it runs already, and what it has was
// given to it by a file of its node.
func checkMirror(spec tree.Object) error {
	if accountName(spec) != "" {
		return errors.New("a mirror pod may not reference service accounts")
	}
	if hasSecrets(spec) {
		return errors.New("a mirror pod may not reference secrets")
	}
	for _, v := range tree.List(spec["volumes"]) {
		for _, source := range tree.List(tree.Field(v, "projected", "sources")) {
			if tree.Field(source, "serviceAccountToken") != nil {
				return errors.New("a mirror pod may not use ServiceAccountToken volume projections")
			}
		}
	}
	return nil
}

// isTokenVolume reports whether a volume's name is one that mountToken gives.
func isTokenVolume(name string) bool { return strings.HasPrefix(name, volumePrefix) }
