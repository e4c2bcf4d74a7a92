package ecosystem

import (
	"fmt"
	"strings"
	"testing"
)

// TestCertManager runs cert-manager's webhook and cainjector against three nodes: it
// judges, and while it is dead, slow, flapping or wrongly certified, and while the
// leader changes, a write is refused or let through as its configuration says.
func TestCertManager(t *testing.T) {
	onlyInFull(t)
	m := startCertManager(t)
	t.Run("judges", m.judges)
	m.configure(t, "timeoutSeconds", "1")
	for _, x := range []struct {
		name   string
		breaks func(*testing.T)
		mends  func(*testing.T)
		says   string
	}{
		// The first call may take a connection from before, of which the node does not know yet that it is closed.
		{name: "killed", breaks: m.kill, mends: m.start, says: m.refused(`(connect: connection refused|broken pipe|connection reset by peer|EOF)`)},
		{name: "stopped", breaks: m.freeze, mends: m.thaw, says: m.refused(`context deadline exceeded`)},
		{name: "wrongly certified", breaks: m.otherCA, mends: m.rightCA, says: m.refused(`x509: certificate signed by unknown authority`)},
	} {
		t.Run(x.name, func(t *testing.T) { m.fails(t, strings.Fields(x.name)[0], x.breaks, x.mends, x.says) })
	}
	m.configure(t, "timeoutSeconds", "10")
	t.Run("flapping", func(t *testing.T) {
		m.storms(t, "flapping", 4, func(t *testing.T) {
			m.kill(t)
			m.start(t)
		})
	})
	t.Run("leader changes", func(t *testing.T) {
		m.storms(t, "leader", 3, func(t *testing.T) {
			leader := m.c.Leader(t)
			m.c.Kill(t, leader)
			m.c.Leader(t, m.c.Others(leader)...)
			m.c.Restart(t, leader)
		})
	})
}

// judges: what cert-manager's webhook sets and refuses, asked through every node.
func (m *certManager) judges(t *testing.T) {
	request := `{"apiVersion":"cert-manager.io/v1","kind":"CertificateRequest","metadata":{"name":"%s"},"spec":{"request":"%s","issuerRef":{"name":"selfsigned","kind":"Issuer","group":"cert-manager.io"}}}`
	for i, node := range m.c.Nodes() {
		if err := m.create(t.Context(), t, node, fmt.Sprintf("judged-%d", i), true); err != nil {
			t.Errorf("%s: %v", node.Name, err)
		}
		err := m.create(t.Context(), t, node, fmt.Sprintf("refused-%d", i), false)
		want := `admission webhook "webhook.cert-manager.io" denied the request: spec: Required value: at least one issuer must be configured`
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", node.Name, err, want)
		}
		// The mutating webhook writes who asked, and nobody may say otherwise.
		name := fmt.Sprintf("request-%d", i)
		out := node.TryKubectl(t, nil, fmt.Sprintf(request, name, signingRequest), "--as", "alice", "--as-group", "system:masters", "create", "-f", "-")
		if out.Code != 0 {
			t.Fatalf("%s: %s", node.Name, out.Stderr)
		}
		if who := node.Kubectl(t, "get", "certificaterequest", name, "-o", "jsonpath={.spec.username} {.spec.groups}"); who != `alice ["system:masters","system:authenticated"]` {
			t.Errorf("%s: the request is of %s", node.Name, who)
		}
		out = node.TryKubectl(t, nil, "", "patch", "certificaterequest", name, "--type=merge", `-p={"spec":{"username":"mallory"}}`)
		if out.Code == 0 || !strings.Contains(out.Stderr, "cannot change spec after creation") && !strings.Contains(out.Stderr, "username identity cannot be changed once set") {
			t.Errorf("%s: %d %s", node.Name, out.Code, out.Stderr)
		}
		// To decide on an approval, the webhook asks this cluster who may approve.
		approve := `-p={"status":{"conditions":[{"type":"Approved","status":"True","reason":"r","message":"m","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
		m.kubectl(t, "create", "clusterrole", name, "--verb=get,patch,update", "--resource=certificaterequests.cert-manager.io,certificaterequests.cert-manager.io/status")
		m.kubectl(t, "create", "clusterrolebinding", name, "--clusterrole="+name, "--user=bob")
		out = node.TryKubectl(t, nil, "", "--as=bob", "patch", "certificaterequest", name, "--subresource=status", "--type=merge", approve)
		if out.Code == 0 || !strings.Contains(out.Stderr, `user "bob" does not have permissions to set approved/denied conditions`) {
			t.Errorf("%s: bob approves: %d %s", node.Name, out.Code, out.Stderr)
		}
		node.Kubectl(t, "patch", "certificaterequest", name, "--subresource=status", "--type=merge", approve)
	}
	// A dry run asks as well; a namespace may be left out.
	if out := m.node().TryKubectl(t, nil, `{"apiVersion":"cert-manager.io/v1","kind":"Issuer","metadata":{"name":"dry"},"spec":{}}`, "apply", "--server-side", "--dry-run=server", "-f", "-"); out.Code == 0 || !strings.Contains(out.Stderr, "at least one issuer must be configured") {
		t.Errorf("a dry run: %d %s", out.Code, out.Stderr)
	}
	m.kubectl(t, "create", "namespace", "free")
	m.kubectl(t, "label", "namespace", "free", "cert-manager.io/disable-validation=true")
	m.feed(t, `{"apiVersion":"cert-manager.io/v1","kind":"Issuer","metadata":{"name":"free","namespace":"free"},"spec":{}}`, "create", "-f", "-")
	m.kubectl(t, "label", "namespace", "free", "cert-manager.io/disable-validation-")
	if err := m.create(t.Context(), t, m.node(), "late", false); err == nil {
		t.Error("an Issuer that is not good was created")
	}
}

// signingRequest is a PEM certificate request, in base64.
const signingRequest = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIUU1IZ0NBUUF3RmpFVU1CSUdBMVVFQXd3TFpYaGhiWEJzWlM1amIyMHdXVEFUQmdjcWhrak9QUUlCQmdncQpoa2pPUFFNQkJ3TkNBQVJRdzFHOURCYWpwL2NoVTh3RWtHZ1dETHk3N0dMODMvb0J1dVFBd0lZYTVWT0lqM055CmcvbVVBM1NSZ0JwendiRnladlhNcXZHZ3pzS1pvU1JKQnZzM29BQXdDZ1lJS29aSXpqMEVBd0lEU0FBd1JRSWcKREl1Ri9wc0IwRVFGTGpQWEVNQ0NYeUw4dGhhK0cremJOK0tSbGx3ZTJzQUNJUUR4akVFQ2l4NGErNUlMbTZTaQpsWis4a210K2Vvc3NzbjRmbUppOW1PZGhtUT09Ci0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo="
