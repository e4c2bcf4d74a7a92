// Package autoprovision is upstream's plugin NamespaceAutoProvision: a namespace that is not there is
// created with the first object that is created in it.
package autoprovision

import (
	"context"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/state"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	upstream "k8s.io/apiserver/pkg/admission"
)

// Plugin creates namespaces.
type Plugin struct {
	state  *state.State
	create func(ctx context.Context, name string) error
}

// New returns the plugin. create makes a namespace, as the node itself; its errors are Status errors,
// and AlreadyExists is none here.
func New(s *state.State, create func(ctx context.Context, name string) error) *Plugin {
	return &Plugin{s, create}
}

// Handles implements admission.Plugin.
func (*Plugin) Handles(a *admission.Attributes) bool {
	return a.Operation == admission.Create && a.Namespace != "" && !a.DryRun && !a.Is("", "namespaces")
}

// Admit implements admission.Mutator.
func (p *Plugin) Admit(ctx context.Context, a *admission.Attributes) error {
	if p.state.Version(corev1.Resource("namespaces"), "", a.Namespace) != nil {
		return nil
	}
	if err := p.create(ctx, a.Namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		return upstream.NewForbidden(a, err)
	}
	return nil
}
