package rules

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
)

const (
	writers = 100
	lag     = 200 * time.Millisecond
	// raced is how long one rule is raced, changed how often it changes.
	raced   = 10 * time.Second
	changed = time.Second
)

// party is a server that clients talk to.
type party struct {
	name, url string
	http      *http.Client // an administrator's
	plain     *http.Client // nobody's
}

// newParty is a server by a client of an administrator.
func newParty(name, url string, admin *http.Client) *party {
	t := admin.Transport.(*http.Transport).Clone()
	t.TLSClientConfig.Certificates, t.TLSClientConfig.GetClientCertificate = nil, nil
	return &party{name, url, admin, &http.Client{Transport: t}}
}

// request is what a client sends.
type request struct {
	method, path, contentType string
	as                        string // the user who is impersonated
	token                     string // instead of the administrator's certificate
	body                      any
}

// do sends a request and returns the code; 0 if there was no answer.
func (p *party) do(ctx context.Context, q request) (int, string) {
	raw, err := json.Marshal(q.body)
	if err != nil {
		return 0, err.Error()
	}
	r, err := http.NewRequestWithContext(ctx, q.method, p.url+q.path, bytes.NewReader(raw))
	if err != nil {
		return 0, err.Error()
	}
	r.Header.Set("Content-Type", q.contentType)
	if q.as != "" {
		r.Header.Set("Impersonate-User", q.as)
	}
	client := p.http
	if q.token != "" {
		client = p.plain
		r.Header.Set("Authorization", "Bearer "+q.token)
	}
	resp, err := client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(answer)
}

type object = map[string]any

const (
	plain = "application/json"
	merge = "application/merge-patch+json"
	rbac  = "/apis/rbac.authorization.k8s.io/v1"
	rules = "/apis/admissionregistration.k8s.io/v1"
)

// rule is one that changes: after its change to epoch k, only what is of epoch k, or later, may
// be written.
type rule struct {
	name string
	// setUp makes it with epoch 0. hook is the address and the CA of a webhook that refuses all.
	setUp func(must func(method, path string, body any) string, namespace string, hook object)
	// change makes it that of an epoch.
	change func(must func(method, path string, body any) string, namespace string, epoch int)
	// write is what a client sends that has an epoch.
	write func(namespace string, epoch int) request
}

// inNamespace selects a namespace.
func inNamespace(namespace string) object {
	return object{"matchLabels": object{"kubernetes.io/metadata.name": namespace}}
}

// notOf selects what is not of an epoch.
func notOf(epoch int) object {
	return object{"matchExpressions": []any{object{"key": "epoch", "operator": "NotIn", "values": []any{fmt.Sprint(epoch)}}}}
}

func configMaps(namespace string) string { return "/api/v1/namespaces/" + namespace + "/configmaps" }

var onConfigMaps = []any{object{"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE"}, "resources": []any{"configmaps"}, "scope": "*"}}

// labelled is a ConfigMap with its epoch as a label and as data.
func labelled(namespace string, epoch int) request {
	return request{method: "POST", path: configMaps(namespace), contentType: plain, body: object{
		"metadata": object{"generateName": "w-", "labels": object{"epoch": fmt.Sprint(epoch)}}, "data": object{"epoch": fmt.Sprint(epoch)},
	}}
}

func policy(name, namespace, expression string) object {
	return object{"metadata": object{"name": name}, "spec": object{
		"matchConstraints": object{"namespaceSelector": inNamespace(namespace), "resourceRules": onConfigMaps},
		"validations":      []any{object{"expression": expression}},
	}}
}

// kinds are what the role allows to create, in turn: each epoch another one.
var kinds = [...]string{"configmaps", "secrets", "limitranges"}

func kindOf(epoch int) string { return kinds[epoch%len(kinds)] }

func writerRole(epoch int) object {
	return object{"metadata": object{"name": "writer"}, "rules": []any{object{
		"apiGroups": []any{""}, "resources": []any{kindOf(epoch)}, "verbs": []any{"create"},
	}}}
}

var all = []rule{
	{
		name: "policy",
		setUp: func(must func(string, string, any) string, ns string, _ object) {
			must("POST", rules+"/validatingadmissionpolicies", policy("epoch", ns, "true"))
			must("POST", rules+"/validatingadmissionpolicybindings", object{"metadata": object{"name": "epoch"}, "spec": object{"policyName": "epoch", "validationActions": []any{"Deny"}}})
		},
		change: func(must func(string, string, any) string, _ string, epoch int) {
			must("PATCH", rules+"/validatingadmissionpolicies/epoch", object{"spec": object{"validations": []any{object{"expression": fmt.Sprintf("int(object.data.epoch) >= %d", epoch)}}}})
		},
		write: labelled,
	},
	{
		name: "binding",
		setUp: func(must func(string, string, any) string, ns string, _ object) {
			must("POST", rules+"/validatingadmissionpolicies", policy("never", ns, "false"))
			must("POST", rules+"/validatingadmissionpolicybindings", object{"metadata": object{"name": "never"}, "spec": object{
				"policyName": "never", "validationActions": []any{"Deny"}, "matchResources": object{"objectSelector": notOf(0)}}})
		},
		change: func(must func(string, string, any) string, _ string, epoch int) {
			must("PATCH", rules+"/validatingadmissionpolicybindings/never", object{"spec": object{"matchResources": object{"objectSelector": notOf(epoch)}}})
		},
		write: labelled,
	},
	{
		name: "webhook",
		setUp: func(must func(string, string, any) string, ns string, hook object) {
			must("POST", rules+"/validatingwebhookconfigurations", object{"metadata": object{"name": "never"}, "webhooks": []any{object{
				"name": "never.example.com", "clientConfig": hook, "rules": onConfigMaps, "sideEffects": "None", "admissionReviewVersions": []any{"v1"},
				"namespaceSelector": inNamespace(ns), "objectSelector": notOf(0), "timeoutSeconds": 10,
			}}})
		},
		change: func(must func(string, string, any) string, ns string, epoch int) {
			must("JSONPATCH", rules+"/validatingwebhookconfigurations/never", []any{object{"op": "replace", "path": "/webhooks/0/objectSelector", "value": notOf(epoch)}})
		},
		write: labelled,
	},
	{
		name: "role",
		setUp: func(must func(string, string, any) string, ns string, _ object) {
			must("POST", rbac+"/namespaces/"+ns+"/roles", writerRole(0))
			must("POST", rbac+"/namespaces/"+ns+"/rolebindings", object{"metadata": object{"name": "writer"},
				"roleRef":  object{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "writer"},
				"subjects": []any{object{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "writer"}}})
		},
		change: func(must func(string, string, any) string, ns string, epoch int) {
			must("PATCH", rbac+"/namespaces/"+ns+"/roles/writer", object{"rules": writerRole(epoch)["rules"]})
		},
		write: func(ns string, epoch int) request {
			return request{method: "POST", path: "/api/v1/namespaces/" + ns + "/" + kindOf(epoch), contentType: plain, as: "writer",
				body: object{"metadata": object{"generateName": "w-"}}}
		},
	},
	ended("account", "", "serviceaccounts", nil),
	ended("pod", "Pod", "pods", object{"containers": []any{object{"name": "c", "image": "i"}}}),
	ended("secret", "Secret", "secrets", nil),
	bootstrapTokens,
}

// bootstrapTokens is the rule that a bootstrap token ends with its Secret, or with what that says: each
// epoch has a token of its own, and ends that of the one before.
var bootstrapTokens = rule{
	name: "bootstrap-token",
	setUp: func(must func(string, string, any) string, ns string, _ object) {
		must("POST", rbac+"/namespaces/"+ns+"/roles", writerRole(0))
		must("POST", rbac+"/namespaces/"+ns+"/rolebindings", object{"metadata": object{"name": "writer"},
			"roleRef":  object{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "writer"},
			"subjects": []any{object{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:bootstrappers"}}})
		must("POST", tokenSecrets, tokenOf(0))
	},
	change: func(must func(string, string, any) string, _ string, epoch int) {
		must("POST", tokenSecrets, tokenOf(epoch))
		before := fmt.Sprintf("%s/bootstrap-token-e%05d", tokenSecrets, epoch-1)
		switch epoch % 3 {
		case 0:
			must("DELETE", before, nil)
		case 1:
			must("PATCH", before, object{"stringData": object{"usage-bootstrap-authentication": "false"}})
		case 2:
			must("PATCH", before, object{"stringData": object{"expiration": "2020-01-01T00:00:00Z"}})
		}
	},
	write: func(ns string, epoch int) request {
		q := labelled(ns, epoch)
		q.token = fmt.Sprintf("e%05d.0123456789abcdef", epoch)
		return q
	},
}

const tokenSecrets = "/api/v1/namespaces/kube-system/secrets"

// tokenOf is the Secret of a bootstrap token.
func tokenOf(epoch int) object {
	id := fmt.Sprintf("e%05d", epoch)
	return object{"metadata": object{"name": "bootstrap-token-" + id}, "type": "bootstrap.kubernetes.io/token", "stringData": object{
		"token-id": id, "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
	}}
}

// ended is the rule that a token ends with what it is bound to, which is a service account and
// maybe an object of a kind: each epoch has a token of its own, and ends that of the one before by
// the deletion of one of the two. spec is that of the object.
func ended(name, kind, deleted string, spec object) rule {
	var tokens sync.Map // by epoch
	begin := func(must func(string, string, any) string, ns string, epoch int) {
		in, of := "/api/v1/namespaces/"+ns+"/", fmt.Sprint("e-", epoch)
		must("POST", in+"serviceaccounts", object{"metadata": object{"name": of}})
		ask := object{}
		if kind != "" {
			bound := object{"metadata": object{"name": of}}
			if spec != nil {
				spec := maps.Clone(spec)
				bound["spec"], spec["serviceAccountName"] = spec, of
			}
			must("POST", in+deleted, bound)
			ask["boundObjectRef"] = object{"apiVersion": "v1", "kind": kind, "name": of}
		}
		var made struct{ Status struct{ Token string } }
		answer := must("POST", in+"serviceaccounts/"+of+"/token", object{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": ask})
		if err := json.Unmarshal([]byte(answer), &made); err != nil {
			panic(err) // must has seen to it that it is an answer
		}
		tokens.Store(epoch, made.Status.Token)
	}
	return rule{
		name: name,
		setUp: func(must func(string, string, any) string, ns string, _ object) {
			must("POST", rbac+"/namespaces/"+ns+"/roles", writerRole(0))
			must("POST", rbac+"/namespaces/"+ns+"/rolebindings", object{"metadata": object{"name": "writer"},
				"roleRef":  object{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "writer"},
				"subjects": []any{object{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:serviceaccounts:" + ns}}})
			begin(must, ns, 0)
		},
		change: func(must func(string, string, any) string, ns string, epoch int) {
			begin(must, ns, epoch)
			must("DELETE", fmt.Sprintf("/api/v1/namespaces/%s/%s/e-%d", ns, deleted, epoch-1), nil)
		},
		write: func(ns string, epoch int) request {
			q := labelled(ns, epoch)
			token, _ := tokens.Load(epoch)
			q.token, _ = token.(string)
			return q
		},
	}
}

// counts are what became of the writes of one race.
type counts struct {
	// stale were admitted by a rule that was replaced before they began.
	stale            atomic.Int64
	refused, current atomic.Int64 // of the epoch before, of the newest one
	unlucky          atomic.Int64 // of the newest one, and refused: the rule has changed meanwhile
	busy             atomic.Int64 // 429 and no answer
}

func (c *counts) String() string {
	return fmt.Sprintf("%d admitted by a rule that was replaced before they began, %d refused by the new one, %d admitted by it, %d overtaken by the next, %d not decided",
		c.stale.Load(), c.refused.Load(), c.current.Load(), c.unlucky.Load(), c.busy.Load())
}

// refusal are the codes of what was decided, and not admitted.
var refusal = map[int]bool{http.StatusForbidden: true, http.StatusUnprocessableEntity: true, http.StatusUnauthorized: true}

// run races one rule: it is changed through one server, and written against through others.
func (r *rule) run(t *testing.T, admin *party, others []*party, hook object) *counts {
	ctx := t.Context()
	namespace := "race-" + r.name
	must := func(method, path string, body any) string {
		t.Helper()
		contentType := map[string]string{"POST": plain, "PATCH": merge, "JSONPATCH": "application/json-patch+json", "DELETE": plain}[method]
		code, answer := admin.do(ctx, request{method: strings.TrimPrefix(method, "JSON"), path: path, contentType: contentType, body: body})
		if code/100 != 2 {
			t.Fatalf("%s %s: %d %.300s", method, path, code, answer)
		}
		return answer
	}
	must("POST", "/api/v1/namespaces", object{"metadata": object{"name": namespace}})
	r.setUp(must, namespace, hook)
	r.change(must, namespace, 1)
	var epoch atomic.Int64 // that was acknowledged
	epoch.Store(1)
	var c counts
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for i := range writers {
		wg.Go(func() {
			to := others[i%len(others)]
			for {
				select {
				case <-stop:
					return
				default:
				}
				known, old := int(epoch.Load()), rand.IntN(2) == 0
				of := known
				if old {
					of--
				}
				code, answer := to.do(ctx, r.write(namespace, of))
				switch {
				case code/100 == 2 && old:
					if c.stale.Add(1) == 1 {
						t.Logf("%s: admitted of epoch %d after epoch %d was acknowledged: %.200s", to.name, of, known, answer)
					}
				case code/100 == 2:
					c.current.Add(1)
				case refusal[code] && old:
					c.refused.Add(1)
				case refusal[code]:
					c.unlucky.Add(1)
				default:
					if c.busy.Add(1) == 1 {
						t.Logf("%s: %d %.200s", to.name, code, answer)
					}
				}
			}
		})
	}
	end := time.After(raced)
	tick := time.NewTicker(changed)
	defer tick.Stop()
	for next := 2; ; next++ {
		select {
		case <-end:
			close(stop)
			wg.Wait()
			return &c
		case <-tick.C:
			r.change(must, namespace, next)
			epoch.Store(int64(next))
		}
	}
}

// refuser starts a webhook that refuses everything, and returns how it is reached.
func refuser(t *testing.T) object {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct{ Request struct{ UID string } }
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer := object{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": object{
			"uid": review.Request.UID, "allowed": false, "status": object{"code": 403, "message": "not of this epoch"}}}
		w.Header().Set("Content-Type", plain)
		_ = json.NewEncoder(w).Encode(answer) // the server may be gone
	}))
	t.Cleanup(s.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return object{"url": s.URL + "/refuse", "caBundle": base64.StdEncoding.EncodeToString(ca)}
}

// TestRulesRace: a policy, a binding, a webhook and a role change through one node, or that is
// deleted there which the clients' tokens follow from, while a hundred clients write through two
// others that lag by 200 ms. No write that began after the acknowledgement of a change is admitted
// by the rule before it.
func TestRulesRace(t *testing.T) {
	c := cluster.Start(t, 3)
	admin := c.Leader(t)
	party1 := func(n *cluster.Node) *party { return newParty(n.Name, n.API, n.HTTP(t)) }
	var others []*party
	for _, name := range []string{"n4", "n5"} {
		n, link := c.JoinNonvoter(t, name)
		link.Delayed(t, lag)
		others = append(others, party1(n))
	}
	hook := refuser(t)
	for i := range all {
		t.Run(all[i].name, func(t *testing.T) {
			got := all[i].run(t, party1(admin), others, hook)
			t.Log(got)
			if n := got.stale.Load(); n > 0 {
				t.Errorf("%d writes were admitted by a rule that was replaced before they began", n)
			}
			if got.refused.Load() < 20 || got.current.Load() < 20 {
				t.Errorf("nothing was raced: %s", got)
			}
		})
	}
}

// TestUpstreamRace is the same race on servers that run already, for comparison: RULES_SERVERS
// are their addresses, the first is the one that rules change through; RULES_CERTIFICATE and
// RULES_KEY are an administrator's. It judges nothing.
func TestUpstreamRace(t *testing.T) {
	urls := strings.Split(os.Getenv("RULES_SERVERS"), ",")
	if len(urls) < 2 {
		t.Log("RULES_SERVERS names no servers to compare with")
		return
	}
	cert, err := tls.LoadX509KeyPair(os.Getenv("RULES_CERTIFICATE"), os.Getenv("RULES_KEY"))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(os.Getenv("RULES_CA"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
	}}
	var servers []*party
	for _, u := range urls {
		servers = append(servers, newParty(u, u, client))
	}
	hook := refuser(t)
	for i := range all {
		t.Run(all[i].name, func(t *testing.T) { t.Log(all[i].run(t, servers[0], servers[1:], hook)) })
	}
}
