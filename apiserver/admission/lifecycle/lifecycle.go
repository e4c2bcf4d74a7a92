// Package lifecycle is the admission plugin NamespaceLifecycle: nothing is written to a
// namespace that is not there, and nothing is created in one that is being deleted. A guard in
// the log refuses the same without a race; here it is refused first, before other plugins,
// webhooks among them, are asked about what cannot be.
package lifecycle

import (
	"context"
	"errors"
	"fmt"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/proto"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var namespaces = schema.GroupResource{Resource: "namespaces"}

// reviews show permissions in a namespace. Whether it is there is not for everybody to know.
var reviews = schema.GroupResource{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"}

type plugin struct{ state *state.State }

// New returns the plugin.
func New(s *state.State) admission.Mutator { return plugin{s} }

// Handles implements admission.Plugin.
func (plugin) Handles(a *admission.Attributes) bool {
	return a.Namespace != "" && (a.Operation == admission.Create || a.Operation == admission.Update)
}

// Admit implements admission.Mutator.
func (p plugin) Admit(_ context.Context, a *admission.Attributes) error {
	gr := a.Resource.GroupResource()
	if gr == reviews || gr == namespaces {
		return nil
	}
	v := p.state.Version(namespaces, "", a.Namespace)
	switch {
	case v == nil:
		return apierrors.NewNotFound(namespaces, a.Namespace)
	case a.Operation != admission.Create || v.Flags&proto.FlagTerminating == 0:
		return nil
	}
	why := fmt.Sprintf("unable to create new content in namespace %s because it is being terminated", a.Namespace)
	refusal := apierrors.NewForbidden(gr, a.Name, errors.New(why))
	refusal.ErrStatus.Details.Causes = append(refusal.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: corev1.NamespaceTerminatingCause, Message: fmt.Sprintf("namespace %s is being terminated", a.Namespace), Field: "metadata.namespace",
	})
	return refusal
}
