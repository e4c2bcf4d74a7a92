package apiserver_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/raftstore/mvcc"
	"k8s.io/apimachinery/pkg/api/errors"
)

// plugin labels what is written, and refuses what is called so.
type plugin struct {
	mu    sync.Mutex
	asked []string
}

func (p *plugin) Handles(*admission.Attributes) bool { return true }

func (p *plugin) note(prefix string, a *admission.Attributes) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, fmt.Sprintf("%s%s %s/%s/%s %s dry=%t old=%t", prefix, a.Operation, a.Resource.Resource, a.Subresource, a.Name, a.User.Name, a.DryRun, a.Old != nil))
}

func (p *plugin) Admit(_ context.Context, a *admission.Attributes) error {
	p.note("", a)
	if a.Object == nil {
		return nil
	}
	if a.Operation == admission.Connect && a.Name != "refused" {
		return nil
	}
	meta := a.Meta()
	if a.Name == "refused" {
		return errors.NewForbidden(a.Resource.GroupResource(), a.Name, fmt.Errorf("the plugin says no"))
	}
	labels := tree.Clone(meta["labels"])
	labels["admitted"] = string(a.Operation)
	if a.Name == "ending" {
		meta["deletionTimestamp"], meta["deletionGracePeriodSeconds"] = "2026-11-22T12:00:00Z", int64(0)
	}
	if a.Name == "spoilt" {
		labels["admitted"] = "not a label!"
	}
	meta["labels"] = labels
	return nil
}

func (p *plugin) Validate(_ context.Context, a *admission.Attributes) error {
	p.note("final ", a)
	return nil
}

// TestAdmission: every way to write an object is admitted, once and before anything
// validates it.
func TestAdmission(t *testing.T) {
	p := &plugin{}
	e := newEnv(t, func(c *apiserver.Config) {
		c.Admission = admission.NewChain([]admission.Named{{Name: "Test", Plugin: p}}, nil)
	})
	p.asked = nil
	merge := http.Header{"Content-Type": {"application/merge-patch+json"}}
	apply := http.Header{"Content-Type": {"application/apply-patch+yaml"}}
	const one = maps + "/a"
	for _, r := range []struct {
		method, path, body string
		header             http.Header
		code               int
		asked, answer      string
	}{
		{"POST", maps, `{"metadata":{"name":"a"}}`, nil, 201, "CREATE configmaps//a admin dry=false old=false; final CREATE configmaps//a admin dry=false old=false", `"admitted":"CREATE"`},
		{"POST", maps, `{"metadata":{"name":"ending"}}`, nil, 201, "CREATE configmaps//ending admin dry=false old=false; final CREATE configmaps//ending admin dry=false old=false", `"creationTimestamp":"`},
		{"DELETE", maps + "/ending", "", nil, 200, "DELETE configmaps//ending admin dry=false old=true; final DELETE configmaps//ending admin dry=false old=true", `"status":"Success"`},
		{"POST", maps + "?dryRun=All", `{"metadata":{"name":"b"}}`, nil, 201, "CREATE configmaps//b admin dry=true old=false; final CREATE configmaps//b admin dry=true old=false", `"admitted":"CREATE"`},
		{"PUT", one, `{"metadata":{"name":"a"},"data":{"k":"v"}}`, nil, 200, "UPDATE configmaps//a admin dry=false old=true; final UPDATE configmaps//a admin dry=false old=true", `"admitted":"UPDATE"`},
		{"PATCH", one, `{"data":{"k":"w"}}`, merge, 200, "UPDATE configmaps//a admin dry=false old=true; final UPDATE configmaps//a admin dry=false old=true", `"admitted":"UPDATE"`},
		{"PATCH", one + "?fieldManager=x&force=true", "apiVersion: v1\nkind: ConfigMap\ndata: {l: m}\nmetadata: {name: a}", apply, 200, "UPDATE configmaps//a admin dry=false old=true; final UPDATE configmaps//a admin dry=false old=true", `"l":"m"`},
		{"PATCH", maps + "/c?fieldManager=x", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}", apply, 201, "CREATE configmaps//c admin dry=false old=false; final CREATE configmaps//c admin dry=false old=false", `"admitted":"CREATE"`},
		{"POST", maps, `{"metadata":{"name":"refused"}}`, nil, 403, "CREATE configmaps//refused admin dry=false old=false", "the plugin says no"},
		{"POST", maps, `{"metadata":{"name":"spoilt"}}`, nil, 422, "CREATE configmaps//spoilt admin dry=false old=false", "metadata.labels"},
		{"POST", "/api/v1/nodes", `{"metadata":{"name":"n"}}`, nil, 201, "CREATE nodes//n admin dry=false old=false; final CREATE nodes//n admin dry=false old=false", `"admitted":"CREATE"`},
		{"PATCH", "/api/v1/nodes/n/status", `{"status":{"phase":"Running"}}`, merge, 200, "UPDATE nodes/status/n admin dry=false old=true; final UPDATE nodes/status/n admin dry=false old=true", `"admitted":"UPDATE"`},
		{"GET", one, "", nil, 200, "", ""},
		{"POST", "/api/v1/namespaces/default/pods/p/exec?command=ls&stdout=true", "", nil, 501, "CONNECT pods/exec/p admin dry=false old=false; final CONNECT pods/exec/p admin dry=false old=false", "not implemented"},
		{"GET", "/api/v1/namespaces/default/pods/refused/attach", "", nil, 403, "CONNECT pods/attach/refused admin dry=false old=false", "the plugin says no"},
		{"GET", "/api/v1/namespaces/default/pods/p/log", "", nil, 501, "", ""},
		{"GET", "/api/v1/nodes/n/proxy/x", "", nil, 501, "CONNECT nodes/proxy/n admin dry=false old=false; final CONNECT nodes/proxy/n admin dry=false old=false", ""},
		{"DELETE", one, "", nil, 200, "DELETE configmaps//a admin dry=false old=true; final DELETE configmaps//a admin dry=false old=true", ""},
	} {
		w, answer := e.do(r.method, r.path, r.header, r.body)
		if w.StatusCode != r.code || !strings.Contains(answer, r.answer) || strings.Contains(answer, "deletionTimestamp") {
			t.Errorf("%s %s: %d %s, want %d and %s", r.method, r.path, w.StatusCode, clip(answer), r.code, r.answer)
		}
		p.mu.Lock()
		if asked := strings.Join(p.asked, "; "); asked != r.asked {
			t.Errorf("%s %s: asked for %q, want %q", r.method, r.path, asked, r.asked)
		}
		p.asked = nil
		p.mu.Unlock()
	}
}

// closed refuses everything while there is a ConfigMap of that name, as a webhook's configuration would.
type closed struct{ state func() *mvcc.State }

func (c closed) Handles(*admission.Attributes) bool { return true }

func (c closed) Admit(_ context.Context, a *admission.Attributes) error {
	state := c.state()
	table := state.Table("configmaps")
	if table == nil {
		return nil
	}
	if v, err := table.Get("default/closed", state.Applied()); err == nil && v != nil {
		return errors.NewForbidden(a.Resource.GroupResource(), a.Name, fmt.Errorf("it is closed"))
	}
	return nil
}

func (closed) Validate(context.Context, *admission.Attributes) error { return nil }

// TestAdmissionOfConnections: a connection that is asked for behind a new rule is decided by it,
// on a node that has not heard of the rule.
func TestAdmissionOfConnections(t *testing.T) {
	var store *lagging
	e := newEnv(t, func(c *apiserver.Config) {
		store = &lagging{Store: c.Store}
		c.Store, c.Reads = store, laggingReads{c.Reads, store}
		c.Admission = admission.NewChain([]admission.Named{{Name: "Test", Plugin: closed{store.State}}}, nil)
	})
	const exec = "/api/v1/namespaces/default/pods/p/exec?command=ls"
	if w, answer := e.do("POST", exec, nil, ""); w.StatusCode != 501 {
		t.Fatal(w.StatusCode, answer)
	}
	before := copyState(t, store.Store.State())
	if w, answer := e.do("POST", maps, nil, `{"metadata":{"name":"closed"}}`); w.StatusCode != 201 {
		t.Fatal(answer)
	}
	store.freeze(before)
	if w, answer := e.do("POST", exec, nil, ""); w.StatusCode != 403 || !strings.Contains(answer, "it is closed") {
		t.Error(w.StatusCode, answer)
	}
}
