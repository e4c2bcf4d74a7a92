package controllers

import (
	"context"
	"maps"
	"time"

	"github.com/quorate/quorate/apiserver/objects"
	corev1 "k8s.io/api/core/v1"
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
	alter := func(m *corev1.ConfigMap) (changed bool) {
		has := m.Data
		if m.Data = maps.Clone(has); m.Data == nil {
			m.Data = map[string]string{}
		}
		maps.Copy(m.Data, p.data())
		return !maps.Equal(has, m.Data)
	}
	return p.keep(ctx, []string{objects.NamespacesTable}, authenticationLook, "cannot write the ConfigMap for aggregated API servers, retrying", func(ctx context.Context) error {
		return p.keepConfigMap(ctx, metav1.NamespaceSystem, authenticationName, alter)
	}, "namespace", metav1.NamespaceSystem, "name", authenticationName)
}
