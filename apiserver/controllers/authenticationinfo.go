package controllers

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/quorate/quorate/apiserver/objects"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	authenticationName = "extension-apiserver-authentication"
	// authenticationLook is how often it is looked at: others hardly ever change it.
	authenticationLook = 10 * time.Second
)

// authenticationPublisher keeps the ConfigMap by which aggregated API servers know whom to believe.
type authenticationPublisher struct {
	base
	data func() map[string]string
}

func (p *authenticationPublisher) run(ctx context.Context) error {
	return p.keep(ctx, []string{objects.NamespacesTable}, authenticationLook, "cannot write the ConfigMap for aggregated API servers, retrying", p.publish,
		"namespace", metav1.NamespaceSystem, "name", authenticationName)
}

func (p *authenticationPublisher) publish(ctx context.Context) error {
	want := p.data()
	var has corev1.ConfigMap
	err := p.api.Get(ctx, mapsGVR, metav1.NamespaceSystem, authenticationName, &has)
	switch {
	case apierrors.IsNotFound(err):
		made := &corev1.ConfigMap{Data: want}
		made.Namespace, made.Name = metav1.NamespaceSystem, authenticationName
		err = p.api.Create(ctx, mapsGVR, metav1.NamespaceSystem, made)
		if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
			return nil // the namespace wakes this loop
		}
	case err == nil:
		next := maps.Clone(has.Data)
		if next == nil {
			next = map[string]string{}
		}
		maps.Copy(next, want)
		if maps.Equal(has.Data, next) {
			return nil
		}
		has.Data = next
		err = p.api.Update(ctx, mapsGVR, metav1.NamespaceSystem, authenticationName, &has)
	}
	if err != nil {
		return fmt.Errorf("publish the authorities of clients: %w", err)
	}
	return nil
}
