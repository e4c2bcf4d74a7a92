// Package exists is upstream's plugin NamespaceExists: what concerns a namespace that is not there
// is refused.
package exists

import (
	"context"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/state"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Plugin looks namespaces up in this node's state.
type Plugin struct{ state *state.State }

// New returns the plugin.
func New(s *state.State) *Plugin { return &Plugin{s} }

// Handles implements admission.Plugin.
func (*Plugin) Handles(a *admission.Attributes) bool {
	return a.Operation != admission.Connect && a.Namespace != "" && !a.Is("", "namespaces")
}

// Validate implements admission.Validator. The write depends on its namespace anyway.
func (p *Plugin) Validate(_ context.Context, a *admission.Attributes) error {
	gr := corev1.Resource("namespaces")
	if p.state.Version(gr, "", a.Namespace) == nil {
		return apierrors.NewNotFound(gr, a.Namespace)
	}
	return nil
}
