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
	"github.com/quorate/quorate/apiserver/tree"
	"k8s.io/apimachinery/pkg/api/errors"
)

// plugin labels what is written, and refuses what is called so.
type plugin struct {
	mu    sync.Mutex
	asked []string
}

func (p *plugin) Admit(_ context.Context, a *admission.Attributes) error {
	p.mu.Lock()
	p.asked = append(p.asked, fmt.Sprintf("%s %s/%s/%s %s dry=%t old=%t", a.Operation, a.Resource.Resource, a.Subresource, a.Name, a.User.Name, a.DryRun, a.Old != nil))
	p.mu.Unlock()
	meta := tree.As(a.Object["metadata"])
	if a.Name == "refused" {
		return errors.NewForbidden(a.Resource.GroupResource(), a.Name, fmt.Errorf("the plugin says no"))
	}
	labels := tree.Clone(meta["labels"])
	labels["admitted"] = a.Operation
	if a.Name == "spoilt" {
		labels["admitted"] = "not a label!"
	}
	meta["labels"] = labels
	return nil
}

// TestAdmission: every way to write an object is admitted, once and before anything
// validates it.
func TestAdmission(t *testing.T) {
	p := &plugin{}
	e := newEnv(t, func(c *apiserver.Config) { c.Admission = p })
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
		{"POST", maps, `{"metadata":{"name":"a"}}`, nil, 201, "create configmaps//a admin dry=false old=false", `"admitted":"create"`},
		{"POST", maps + "?dryRun=All", `{"metadata":{"name":"b"}}`, nil, 201, "create configmaps//b admin dry=true old=false", `"admitted":"create"`},
		{"PUT", one, `{"metadata":{"name":"a"},"data":{"k":"v"}}`, nil, 200, "update configmaps//a admin dry=false old=true", `"admitted":"update"`},
		{"PATCH", one, `{"data":{"k":"w"}}`, merge, 200, "update configmaps//a admin dry=false old=true", `"admitted":"update"`},
		{"PATCH", one + "?fieldManager=x&force=true", "apiVersion: v1\nkind: ConfigMap\ndata: {l: m}\nmetadata: {name: a}", apply, 200, "update configmaps//a admin dry=false old=true", `"l":"m"`},
		{"PATCH", maps + "/c?fieldManager=x", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}", apply, 201, "create configmaps//c admin dry=false old=false", `"admitted":"create"`},
		{"POST", maps, `{"metadata":{"name":"refused"}}`, nil, 403, "create configmaps//refused admin dry=false old=false", "the plugin says no"},
		{"POST", maps, `{"metadata":{"name":"spoilt"}}`, nil, 422, "create configmaps//spoilt admin dry=false old=false", "metadata.labels"},
		{"POST", "/api/v1/nodes", `{"metadata":{"name":"n"}}`, nil, 201, "create nodes//n admin dry=false old=false", `"admitted":"create"`},
		{"PATCH", "/api/v1/nodes/n/status", `{"status":{"phase":"Running"}}`, merge, 200, "update nodes/status/n admin dry=false old=true", `"admitted":"update"`},
		{"GET", one, "", nil, 200, "", ""},
		{"DELETE", one, "", nil, 200, "", ""},
	} {
		w, answer := e.do(r.method, r.path, r.header, r.body)
		if w.StatusCode != r.code || !strings.Contains(answer, r.answer) {
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
