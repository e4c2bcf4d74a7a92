package controllers

import (
	"context"
	"fmt"

	"github.com/quorate/quorate/apiserver/objects"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ensureSlices makes the slices of the Service what they should be, and deletes those
// that were made here before and are none of them any more.
func ensureSlices(ctx context.Context, api objects.Client, want []*discoveryv1.EndpointSlice) error {
	ours, err := api.Labelled(ctx, slicesResource, corev1.NamespaceDefault, discoveryv1.LabelManagedBy, string(KubernetesController))
	if err != nil {
		return fmt.Errorf("list endpoint slices: %w", err)
	}
	for _, s := range want {
		delete(ours, s.Name)
		if err := ensureSlice(ctx, api, s); err != nil {
			return fmt.Errorf("endpoint slice %s: %w", s.Name, err)
		}
	}
	for name, uid := range ours {
		if err := api.Delete(ctx, slicesResource, corev1.NamespaceDefault, name, uid); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("endpoint slice %s: %w", name, err)
		}
	}
	return nil
}

func ensureSlice(ctx context.Context, api objects.Client, want *discoveryv1.EndpointSlice) error {
	var has discoveryv1.EndpointSlice
	err := api.Get(ctx, slicesResource, want.Namespace, want.Name, &has)
	switch {
	case err == nil && has.AddressType != want.AddressType: // it cannot change
		if err := api.Delete(ctx, slicesResource, want.Namespace, want.Name, has.UID); err != nil {
			return err
		}
		return api.Create(ctx, slicesResource, want.Namespace, want)
	case apierrors.IsNotFound(err):
		return api.Create(ctx, slicesResource, want.Namespace, want)
	case err != nil:
		return err
	case equality.Semantic.DeepEqual(has.Endpoints, want.Endpoints) && equality.Semantic.DeepEqual(has.Ports, want.Ports) && equality.Semantic.DeepEqual(has.Labels, want.Labels):
		return nil
	}
	has.Endpoints, has.Ports, has.Labels = want.Endpoints, want.Ports, want.Labels
	return api.Update(ctx, slicesResource, want.Namespace, want.Name, &has)
}
