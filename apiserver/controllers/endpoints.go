package controllers

//lint:file-ignore SA1019 Endpoints are deprecated, and upstream keeps those of the Service kubernetes all the same.

import (
	"context"
	"net/netip"

	"github.com/quorate/quorate/apiserver/objects"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func endpointsFor(endpoints []netip.AddrPort) *corev1.Endpoints {
	e := &corev1.Endpoints{}
	e.Namespace, e.Name = corev1.NamespaceDefault, kubernetesService
	e.Labels = map[string]string{discoveryv1.LabelSkipMirror: "true"}
	for _, g := range groups(endpoints) {
		subset := corev1.EndpointSubset{Ports: []corev1.EndpointPort{{Name: portName, Port: int32(g.port), Protocol: corev1.ProtocolTCP}}}
		for _, a := range g.addrs {
			subset.Addresses = append(subset.Addresses, corev1.EndpointAddress{IP: a})
		}
		e.Subsets = append(e.Subsets, subset)
	}
	return e
}

func ensureEndpoints(ctx context.Context, api objects.Client, want *corev1.Endpoints) error {
	var has corev1.Endpoints
	err := api.Get(ctx, endpointsResource, want.Namespace, want.Name, &has)
	switch {
	case apierrors.IsNotFound(err):
		return api.Create(ctx, endpointsResource, want.Namespace, want)
	case err != nil:
		return err
	case equality.Semantic.DeepEqual(has.Subsets, want.Subsets) && equality.Semantic.DeepEqual(has.Labels, want.Labels):
		return nil
	}
	has.Subsets, has.Labels = want.Subsets, want.Labels
	return api.Update(ctx, endpointsResource, want.Namespace, want.Name, &has)
}
