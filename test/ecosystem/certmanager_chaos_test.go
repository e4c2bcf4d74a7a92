package ecosystem

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quorate/quorate/test/cluster"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		{name: "killed", breaks: m.kill, mends: m.start, says: `(connect: connection refused|broken pipe|connection reset by peer|EOF)`},
		{name: "stopped", breaks: m.signal(syscall.SIGSTOP), mends: m.signal(syscall.SIGCONT), says: `context deadline exceeded`},
		{name: "wrongly certified", breaks: m.otherCA, mends: m.rightCA, says: `x509: certificate signed by unknown authority`},
	} {
		t.Run(x.name, func(t *testing.T) { m.fails(t, strings.Fields(x.name)[0], x.breaks, x.mends, x.says) })
	}
	m.configure(t, "timeoutSeconds", "10")
	t.Run("flapping", func(t *testing.T) {
		m.storm(t, "flapping", 4, func(t *testing.T) {
			m.kill(t)
			m.start(t)
		})
	})
	t.Run("leader changes", func(t *testing.T) {
		m.storm(t, "leader", 3, func(t *testing.T) {
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
		if err := createIssuer(t.Context(), issuers(t, node), fmt.Sprintf("judged-%d", i), true); err != nil {
			t.Errorf("%s: %v", node.Name, err)
		}
		err := createIssuer(t.Context(), issuers(t, node), fmt.Sprintf("refused-%d", i), false)
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
	if err := m.create(t, "late", false); err == nil {
		t.Error("an Issuer that is not good was created")
	}
}

// fails breaks the webhook. With failurePolicy Fail nothing is written that it would
// have been asked for, with Ignore everything is, and each change of the policy holds
// for the next write through any node. Mended, it judges again.
func (m *certManager) fails(t *testing.T, name string, breaks, mends func(*testing.T), says string) {
	breaks(t)
	closed := regexp.MustCompile(`^Internal error occurred: failed calling webhook "webhook.cert-manager.io": failed to call webhook: Post "https://localhost:\d+/validate\?timeout=1s": .*` + says)
	for i, node := range m.c.Nodes() {
		if err := createIssuer(t.Context(), issuers(t, node), fmt.Sprintf("%s-closed-%d", name, i), true); err == nil || !closed.MatchString(err.Error()) {
			t.Errorf("%s: %v, want %s", node.Name, err, closed)
		}
		if got := storedNames(t, node, true)[fmt.Sprintf("%s-closed-%d", name, i)]; got {
			t.Errorf("%s: what was refused is there", node.Name)
		}
		// What the webhook is not asked for goes on.
		node.Kubectl(t, "create", "configmap", fmt.Sprintf("%s-%d", name, i))
	}
	for i, node := range m.c.Nodes() {
		m.configure(t, "failurePolicy", `"Ignore"`)
		open := fmt.Sprintf("%s-open-%d", name, i)
		before, _ := node.LookupMetric(t, "apiserver_admission_webhook_fail_open_count")
		began := time.Now()
		if err := createIssuer(t.Context(), issuers(t, node), open, false); err != nil {
			t.Errorf("%s: with Ignore: %v", node.Name, err)
		}
		t.Logf("%s: let through after %v", node.Name, time.Since(began).Round(time.Millisecond))
		if after, _ := node.LookupMetric(t, "apiserver_admission_webhook_fail_open_count"); after != before+1 {
			t.Errorf("%s: %v were let through, want %v", node.Name, after, before+1)
		}
		noError(t, issuers(t, node).Delete(t.Context(), open, metav1.DeleteOptions{}))
		m.configure(t, "failurePolicy", `"Fail"`)
		if err := m.create(t, open, false); err == nil {
			t.Error("an Issuer was let through after failurePolicy became Fail")
		}
	}
	mends(t)
	cluster.Await(t, 30*time.Second, "the webhook's judgement", func() string {
		for i, node := range m.c.Nodes() {
			err := createIssuer(t.Context(), issuers(t, node), fmt.Sprintf("%s-mended-%d", name, i), false)
			if err == nil {
				t.Fatal("an Issuer that is not good was created")
			}
			if !strings.Contains(err.Error(), "denied the request") {
				return err.Error()
			}
		}
		return ""
	})
	for i, node := range m.c.Nodes() {
		if err := createIssuer(t.Context(), issuers(t, node), fmt.Sprintf("%s-mended-%d", name, i), true); err != nil {
			t.Errorf("%s: %v", node.Name, err)
		}
	}
}

// storm writes Issuers that are good and others through every node while something
// happens some times: no Issuer that is not good is ever there, and each good one
// that was acknowledged stays.
func (m *certManager) storm(t *testing.T, name string, times int, happens func(*testing.T)) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var mu sync.Mutex
	acknowledged, refused, unanswered, wrong := map[string]bool{}, 0, map[string]int{}, []string{}
	write := func(n *cluster.Node, k, i int, good bool) {
		object := fmt.Sprintf("%s-%d-%d-%v", name, k, i, good)
		err := createIssuer(ctx, issuers(t, n), object, good)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil && good:
			acknowledged[object] = true
		case err == nil:
			wrong = append(wrong, object)
		case strings.Contains(err.Error(), "denied the request"):
			if good {
				wrong = append(wrong, object+": "+err.Error())
			}
			refused++
		default:
			unanswered[regexp.MustCompile(`.*: `).ReplaceAllString(err.Error(), "")]++
		}
	}
	var writers sync.WaitGroup
	for k, node := range m.c.Nodes() {
		client := *node
		writers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				write(&client, k, i, i%2 == 0)
			}
		})
	}
	for range times {
		happens(t)
		// As much again is written while nothing happens.
		mu.Lock()
		sofar := len(acknowledged) + refused
		mu.Unlock()
		cluster.Await(t, time.Minute, "writes that are judged", func() string {
			mu.Lock()
			defer mu.Unlock()
			if len(acknowledged)+refused < sofar+60 {
				return fmt.Sprint(len(acknowledged)+refused-sofar, unanswered)
			}
			return ""
		})
	}
	stop()
	writers.Wait()
	t.Logf("%d created, %d refused, and without a judgement: %v", len(acknowledged), refused, unanswered)
	if len(wrong) > 0 {
		t.Errorf("wrongly decided: %q", wrong)
	}
	for _, node := range m.c.Nodes() {
		if bad := storedNames(t, node, false); len(bad) > 0 {
			t.Errorf("%s has what was to be refused: %v", node.Name, bad)
		}
		there := storedNames(t, node, true)
		for object := range acknowledged {
			if !there[object] {
				t.Errorf("%s has lost %s", node.Name, object)
			}
		}
	}
}

// signingRequest is a PEM certificate request, in base64.
const signingRequest = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIUU1IZ0NBUUF3RmpFVU1CSUdBMVVFQXd3TFpYaGhiWEJzWlM1amIyMHdXVEFUQmdjcWhrak9QUUlCQmdncQpoa2pPUFFNQkJ3TkNBQVJRdzFHOURCYWpwL2NoVTh3RWtHZ1dETHk3N0dMODMvb0J1dVFBd0lZYTVWT0lqM055CmcvbVVBM1NSZ0JwendiRnladlhNcXZHZ3pzS1pvU1JKQnZzM29BQXdDZ1lJS29aSXpqMEVBd0lEU0FBd1JRSWcKREl1Ri9wc0IwRVFGTGpQWEVNQ0NYeUw4dGhhK0cremJOK0tSbGx3ZTJzQUNJUUR4akVFQ2l4NGErNUlMbTZTaQpsWis4a210K2Vvc3NzbjRmbUppOW1PZGhtUT09Ci0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo="
