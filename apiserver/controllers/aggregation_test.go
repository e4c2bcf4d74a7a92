package controllers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"testing"

	"github.com/quorate/quorate/apiserver/backends/aggregator"
	"github.com/quorate/quorate/internal/must"
	corev1 "k8s.io/api/core/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// TestAvailability: the status says what is in the way of a server's answer, one thing after the other.
func TestAvailability(t *testing.T) {
	e := newEnv(t, Config{Controllers: []Name{AvailabilityController}})
	e.manager.cfg.Aggregator = aggregator.New(aggregator.Config{
		Store: e.store, Builtin: e.objects.Kinds(), Certificate: func() *tls.Certificate { return &tls.Certificate{} }, Log: slog.New(slog.DiscardHandler),
		Resolve: func(context.Context, string, string, int32) (string, error) { return "192.0.2.1:443", nil },
		Dial:    func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no way") },
	})
	port := int32(443)
	s := &apiregistrationv1.APIService{Spec: apiregistrationv1.APIServiceSpec{
		Group: "x.example.com", Version: "v1", GroupPriorityMinimum: 10, VersionPriority: 10, InsecureSkipTLSVerify: true,
		Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "x", Port: &port},
	}}
	s.Name = "v1.x.example.com"
	must.OK(t, e.client.Create(t.Context(), apiServicesGVR, "", s))
	e.run()
	is := func(status apiregistrationv1.ConditionStatus, reason, message string) {
		t.Helper()
		e.await(reason, func() string {
			var s apiregistrationv1.APIService
			if err := e.client.Get(t.Context(), apiServicesGVR, "", "v1.x.example.com", &s); err != nil {
				return err.Error()
			}
			if c := s.Status.Conditions; len(c) != 1 || c[0].Type != apiregistrationv1.Available || c[0].Status != status || c[0].Reason != reason || c[0].Message != message || c[0].LastTransitionTime.IsZero() {
				return fmt.Sprintf("%+v", c)
			}
			return ""
		})
	}
	is("False", "ServiceNotFound", `service/x in "default" is not present`)
	services := corev1.SchemeGroupVersion.WithResource("services")
	svc := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 444}}}}
	svc.Name, svc.Namespace = "x", "default"
	must.OK(t, e.client.Create(t.Context(), services, "default", svc))
	is("False", "ServicePortError", `service/x in "default" is not listening on port 443`)
	var has corev1.Service
	must.OK(t, e.client.Get(t.Context(), services, "default", "x", &has))
	has.Spec.Ports[0].Port = 443
	must.OK(t, e.client.Update(t.Context(), services, "default", "x", &has))
	is("False", "EndpointsNotFound", `cannot find endpointslices for service/x in "default"`)
	must.OK(t, e.client.Get(t.Context(), services, "default", "x", &has))
	has.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "x.example.com"}
	must.OK(t, e.client.Update(t.Context(), services, "default", "x", &has))
	is("False", "FailedDiscoveryCheck", `failing or missing response from service/x in "default": GET https://192.0.2.1:443/apis/x.example.com/v1: no way`)
	var stored apiregistrationv1.APIService
	must.OK(t, e.client.Get(t.Context(), apiServicesGVR, "", s.Name, &stored))
	stored.Spec.Service, stored.Spec.InsecureSkipTLSVerify = nil, false
	must.OK(t, e.client.Update(t.Context(), apiServicesGVR, "", s.Name, &stored))
	is("True", "Local", "Local APIServices are always available")
}

// TestAuthenticationInfo: the ConfigMap for aggregated API servers comes, and what others put beside it stays.
func TestAuthenticationInfo(t *testing.T) {
	e := newEnv(t, Config{Controllers: []Name{ClusterAuthenticationController}, Authentication: func() map[string]string { return map[string]string{"client-ca-file": "A"} }})
	mine := &corev1.ConfigMap{Data: map[string]string{"client-ca-file": "old", "mine": "x"}}
	mine.Name, mine.Namespace = authenticationName, "kube-system"
	must.OK(t, e.client.Create(t.Context(), mapsGVR, "kube-system", mine))
	e.run()
	e.await("the ConfigMap", func() string {
		var m corev1.ConfigMap
		if err := e.client.Get(t.Context(), mapsGVR, "kube-system", authenticationName, &m); err != nil {
			return err.Error()
		}
		if len(m.Data) != 2 || m.Data["client-ca-file"] != "A" || m.Data["mine"] != "x" {
			return fmt.Sprint(m.Data)
		}
		return ""
	})
}
