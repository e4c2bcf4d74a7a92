// Package deny is upstream's plugin AlwaysDeny, which refuses all that clients write.
package deny

import (
	"context"
	"errors"

	"github.com/quorate/quorate/apiserver/admission"
	upstream "k8s.io/apiserver/pkg/admission"
)

// Plugin refuses everything.
type Plugin struct{}

// Handles implements admission.Plugin.
func (Plugin) Handles(*admission.Attributes) bool { return true }

// Admit implements admission.Mutator.
func (Plugin) Admit(_ context.Context, a *admission.Attributes) error {
	return upstream.NewForbidden(a, errors.New("admission control is denying all modifications"))
}

// Validate implements admission.Validator.
func (p Plugin) Validate(ctx context.Context, a *admission.Attributes) error { return p.Admit(ctx, a) }
