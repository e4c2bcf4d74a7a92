// Package externalips is the plugin DenyServiceExternalIPs: no Service gets external IPs that it
// did not have before. It is off by default.
package externalips

import (
	"context"
	"errors"
	"slices"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/tree"
	corev1 "k8s.io/api/core/v1"
)

var errDenied = errors.New("Use of external IPs is denied by admission control") //lint:ignore ST1005 upstream's text

type plugin struct{}

// New returns the plugin.
func New() admission.Validator { return plugin{} }

// Handles implements admission.Plugin.
func (plugin) Handles(a *admission.Attributes) bool {
	return (a.Operation == admission.Create || a.Operation == admission.Update) && a.Is(corev1.GroupName, "services")
}

// Validate implements admission.Validator.
func (plugin) Validate(_ context.Context, a *admission.Attributes) error {
	had := tree.List(tree.Field(a.Old, "spec", "externalIPs"))
	for _, ip := range tree.List(tree.Field(a.Object, "spec", "externalIPs")) {
		if !slices.Contains(had, ip) {
			return a.Forbidden(errDenied)
		}
	}
	return nil
}
