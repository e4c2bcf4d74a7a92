package controllers

import (
	"slices"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/objects/builtin"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// TestRepairClaims: rows that no Service holds go, rows that are missing come.
func TestRepairClaims(t *testing.T) {
	e := newEnv(t, Config{})
	made := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80}}}}
	made.Name = "a"
	must.OK(t, e.client.Create(t.Context(), servicesResource, "default", made))
	var service corev1.Service
	must.OK(t, e.client.Get(t.Context(), servicesResource, "default", "a", &service))
	ip := service.Spec.ClusterIP
	// As a node leaves it that dies between the entries of a write.
	e.write(&proto.Write{Table: builtin.NodePortsTable, Key: "32000", Op: proto.Op_OP_PUT, Value: []byte("{}")})
	e.write(&proto.Write{Table: builtin.AddressesTable, Key: ip, Op: proto.Op_OP_DELETE})
	// An IPAddress of somebody else is none of ours.
	const foreign = "10.0.0.200"
	address := &networkingv1.IPAddress{Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Resource: "services", Namespace: "default", Name: "z"}}}
	address.Name = foreign
	must.OK(t, e.client.Create(t.Context(), networkingv1.SchemeGroupVersion.WithResource("ipaddresses"), "", address))
	c := &claimRepair{base: e.base, orphanAge: time.Nanosecond}
	e.await("rows are repaired", func() string { // found in one round, removed in a later one
		must.OK(t, c.repair(t.Context()))
		if ports := e.keys(builtin.NodePortsTable); len(ports) != 1 {
			return "ports " + ports[0] + "..."
		}
		return ""
	})
	if got := e.keys(builtin.AddressesTable); !slices.Contains(got, ip) || !slices.Contains(got, foreign) {
		t.Errorf("addresses %q, want %s and %s among them", got, ip, foreign)
	}
}
