// Package ownerreferences is the plugin OwnerReferencesPermissionEnforcement: who changes the
// owners of an object must be allowed to delete it, and who lets it block the deletion of an
// owner must be allowed to set finalizers on that one. It is off by default.
package ownerreferences

import (
	"context"
	"fmt"
	"strings"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/tree"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type plugin struct {
	authorizer auth.Authorizer
	kinds      func() *kinds.Registry
}

// New returns the plugin. served returns the resources that are served at the time.
func New(authorizer auth.Authorizer, served func() *kinds.Registry) admission.Validator {
	return &plugin{authorizer, served}
}

// Handles implements admission.Plugin. The status of Pods is left out: its strategy keeps the
// owners as they are, and kubelets may not delete.
func (p *plugin) Handles(a *admission.Attributes) bool {
	if a.Operation != admission.Create && a.Operation != admission.Update {
		return false
	}
	if a.Resource.Group == "" && a.Resource.Resource == "pods" && a.Subresource == "status" {
		return false
	}
	return len(ownersOf(a.Object)) > 0 || len(ownersOf(a.Old)) > 0
}

func ownersOf(obj tree.Object) []any {
	return tree.List(tree.Field(obj, "metadata", "ownerReferences"))
}

// Validate implements admission.Validator.
func (p *plugin) Validate(ctx context.Context, a *admission.Attributes) error {
	now, was := ownersOf(a.Object), ownersOf(a.Old)
	if len(now) == len(was) && tree.Equal(now, was) {
		return nil
	}
	// Who creates an object could leave it: the permission to delete it is not asked for.
	if a.Operation != admission.Create {
		decision, reason, err := p.authorizer.Authorize(ctx, auth.Attributes{
			User: a.User, Verb: "delete", Namespace: a.Namespace, APIGroup: a.Resource.Group, APIVersion: a.Resource.Version,
			Resource: a.Resource.Resource, Subresource: a.Subresource, Name: a.Name, ResourceRequest: true,
		})
		if decision != auth.Allow {
			return a.Forbidden(fmt.Errorf("cannot set an ownerRef on a resource you can't delete: %v, %v", reason, err))
		}
	}
	blocking := newlyBlocking(now, was)
	if len(blocking) == 0 || p.finalizesAnything(ctx, a.User) {
		return nil
	}
	for _, ref := range blocking {
		if err := p.mayBlock(ctx, a, ref); err != nil {
			return err
		}
	}
	return nil
}

// newlyBlocking are the owners whose deletion an object blocks, and did not before. Owners are
// known by their uid; of several with one uid the last counts.
func newlyBlocking(now, was []any) (out []tree.Object) {
	blocked := map[string]bool{}
	for _, x := range was {
		ref := tree.As(x)
		blocked[tree.Text(ref, "uid")] = ref["blockOwnerDeletion"] == true
	}
	for _, x := range now {
		if ref := tree.As(x); ref["blockOwnerDeletion"] == true && !blocked[tree.Text(ref, "uid")] {
			out = append(out, ref)
		}
	}
	return out
}

// finalizesAnything reports whether a user may set the finalizers of everything: then the kinds
// of owners need not be known.
func (p *plugin) finalizesAnything(ctx context.Context, user *auth.User) bool {
	decision, _, _ := p.authorizer.Authorize(ctx, auth.Attributes{
		User: user, Verb: "update", APIGroup: "*", APIVersion: "*", Resource: "*", Subresource: "finalizers", Name: "*", ResourceRequest: true,
	})
	return decision == auth.Allow
}

// mayBlock refuses users who may not set the finalizers of an owner.
func (p *plugin) mayBlock(ctx context.Context, a *admission.Attributes, ref tree.Object) error {
	version, kind := tree.Text(ref, "apiVersion"), tree.Text(ref, "kind")
	owner, err := p.resourceOf(version, kind)
	if err != nil {
		return a.Forbidden(fmt.Errorf("cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion %s Kind %s: %w", version, kind, err))
	}
	asked := auth.Attributes{
		User: a.User, Verb: "update", APIGroup: owner.Group, APIVersion: owner.Version, Resource: owner.Plural,
		Subresource: "finalizers", Name: tree.Text(ref, "name"), ResourceRequest: true,
	}
	if owner.Namespaced {
		asked.Namespace = a.Namespace // an owner is in the same namespace
	}
	decision, reason, err := p.authorizer.Authorize(ctx, asked)
	if decision != auth.Allow {
		return a.Forbidden(fmt.Errorf("cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: %v, %v", reason, err))
	}
	return nil
}

// resourceOf is the resource of an owner. As upstream, it takes kinds in lower case, too, and a kind of the core group
// without its version.
func (p *plugin) resourceOf(version, kind string) (*kinds.Resource, error) {
	gv, err := schema.ParseGroupVersion(version)
	if err != nil {
		return nil, err
	}
	served, in := p.kinds(), gv
	if in.Empty() {
		in.Version = "v1"
	}
	if r := served.LookupKind(in.WithKind(kind)); r != nil {
		return r, nil
	}
	for _, r := range served.All() {
		if r.Group == in.Group && r.Version == in.Version && strings.ToLower(r.Kind) == kind {
			return r, nil
		}
	}
	return nil, &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: gv.Group, Kind: kind}, SearchedVersions: []string{gv.Version}}
}
