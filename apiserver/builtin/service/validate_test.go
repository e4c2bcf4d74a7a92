package service

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestLongLists: ports and families are compared in a time that grows with their number.
func TestLongLists(t *testing.T) {
	const n = 60_000
	s := &corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort}
	for i := range int32(n) {
		s.Ports = append(s.Ports, corev1.ServicePort{Protocol: corev1.ProtocolTCP, Port: i + 1, NodePort: i + 1})
		s.IPFamilies = append(s.IPFamilies, corev1.IPFamily(fmt.Sprint("IPv", i)))
	}
	s.Ports[n-1].Port, s.Ports[n-2].NodePort = 1, 2
	s.Ports[n-3].Protocol, s.Ports[n-3].Port = corev1.ProtocolUDP, 1
	began := time.Now()
	errs := append(duplicatePorts(s), validateAddresses(s, nil)...)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %s", took)
	}
	if len(errs) != 2 || errs[0].Field != fmt.Sprintf("spec.ports[%d].nodePort", n-2) || errs[1].Field != fmt.Sprintf("spec.ports[%d]", n-1) {
		t.Errorf("errors: %v", errs)
	}
}
