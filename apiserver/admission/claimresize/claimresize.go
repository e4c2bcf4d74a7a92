// Package claimresize is the plugin PersistentVolumeClaimResize: a claim may only ask for more
// storage than before if it is bound and its class allows volumes to grow.
package claimresize

import (
	"context"
	"errors"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/proto"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The texts are upstream's.
var (
	errNotBound   = errors.New("Only bound persistent volume claims can be expanded") //lint:ignore ST1005 upstream's
	errNotAllowed = errors.New("only dynamically provisioned pvc can be resized and " +
		"the storageclass that provisions the pvc must support resize")
)

type plugin struct{ state *state.State }

// New returns the plugin.
func New(s *state.State) admission.Validator { return &plugin{s} }

// Handles implements admission.Plugin.
func (p *plugin) Handles(a *admission.Attributes) bool {
	return a.Operation == admission.Update && a.Is(corev1.GroupName, "persistentvolumeclaims")
}

// Validate implements admission.Validator.
func (p *plugin) Validate(_ context.Context, a *admission.Attributes) error {
	now, was := requested(a.Object), requested(a.Old)
	if now.Cmp(was) <= 0 {
		return nil
	}
	if tree.Field(a.Old, "status", "phase") != string(corev1.ClaimBound) {
		return a.Forbidden(errNotBound)
	}
	a.Consulted(admission.Rules(proto.RuleStorageClasses))
	class := classOf(a.Object)
	if class == "" || class != classOf(a.Old) {
		return a.Forbidden(errNotAllowed)
	}
	c, err := state.Get[storagev1.StorageClass](p.state, storagev1.Resource("storageclasses"), "", class)
	if err != nil || c == nil || c.AllowVolumeExpansion == nil || !*c.AllowVolumeExpansion {
		return a.Forbidden(errNotAllowed)
	}
	return nil
}

// requested is how much storage a claim asks for; zero if it does not say. Claims were
// validated: what cannot be read is not there.
func requested(claim tree.Object) resource.Quantity {
	q, _ := tree.ParseQuantity(tree.Scalar(tree.Field(claim, "spec", "resources", "requests", "storage")))
	return q
}

// classOf is the class of a claim, "" if it has none. The annotation is older than the field,
// and wins, also if it is empty.
func classOf(claim tree.Object) string {
	if annotated, ok := tree.Field(claim, "metadata", "annotations", corev1.BetaStorageClassAnnotation).(string); ok {
		return annotated
	}
	return tree.Text(tree.As(claim["spec"]), "storageClassName")
}
