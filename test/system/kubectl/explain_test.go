package kubectl

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/quorate/quorate/test/harness/cluster"
)

// explained is what is read of an OpenAPI document: models and what they refer to.
type explained struct {
	Components struct {
		Schemas map[string]*model
	}
}

type model struct {
	Ref                  string                                  `json:"$ref"`
	AllOf                []*model                                `json:"allOf"`
	Items                *model                                  `json:"items"`
	AdditionalProperties *model                                  `json:"additionalProperties"`
	Properties           map[string]*model                       `json:"properties"`
	Kinds                []struct{ Group, Version, Kind string } `json:"x-kubernetes-group-version-kind"`
}

// TestExplain: kubectl explains every kind that is served, with every field that its
// document has, and says what each kind is.
func TestExplain(t *testing.T) {
	c := cluster.Start(t, 1)
	n := c.Nodes()[0]
	var root struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	decode(t, n.MustGet(t, "/openapi/v3"), &root)
	kinds, fields := 0, 0
	for name, at := range root.Paths {
		var d explained
		decode(t, n.MustGet(t, at.ServerRelativeURL), &d)
		gv := strings.TrimPrefix(strings.TrimPrefix(name, "apis/"), "api/")
		for _, r := range resourcesOf(t, n, name) {
			m := d.find(gv, r.Kind)
			if m == nil {
				t.Errorf("%s %s: there is no model of %s", gv, r.Name, r.Kind)
				continue
			}
			kinds++
			out := n.Kubectl(t, "explain", r.Name, "--api-version", gv, "--recursive")
			for _, want := range []string{"KIND:       " + r.Kind + "\n", "DESCRIPTION:\n    "} {
				if !strings.Contains(out, want) || strings.Contains(out, "<empty>") {
					t.Errorf("%s %s: %.300s", gv, r.Name, out)
				}
			}
			shown := map[string]bool{}
			for line := range strings.Lines(out) {
				if field, _, ok := strings.Cut(strings.TrimSpace(line), "\t<"); ok {
					shown[field] = true
				}
			}
			for field := range d.fields(m, map[*model]bool{}) {
				fields++
				if !shown[field] {
					t.Errorf("%s %s: kubectl does not show %s", gv, r.Name, field)
				}
			}
		}
	}
	if kinds < 60 || fields < 3000 {
		t.Errorf("%d kinds with %d fields: too few", kinds, fields)
	}
	t.Logf("%d kinds, %d fields", kinds, fields)
	// One field alone, by its path.
	for path, want := range map[string]string{
		"pods.spec.containers.resources.limits":  "FIELD: limits <map[string]Quantity>",
		"deployments.spec.strategy.type":         "ENUM:\n    Recreate\n    RollingUpdate",
		"servicecidrs.metadata.ownerReferences":  "FIELD: ownerReferences <[]OwnerReference>",
		"networkpolicies.spec.ingress.from.port": "",
	} {
		out := n.TryKubectl(t, nil, "", "explain", path)
		if ok := want != ""; ok != (out.Code == 0) || !strings.Contains(out.Stdout, want) {
			t.Errorf("%s: %d %s%s", path, out.Code, out.Stdout, out.Stderr)
		}
	}
}

func decode(t *testing.T, b []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatalf("%v: %.200s", err, b)
	}
}

type resource struct{ Name, Kind, Group string }

// resourcesOf lists what discovery names, without subresources.
func resourcesOf(t *testing.T, n *cluster.Node, path string) (out []resource) {
	t.Helper()
	var list struct{ Resources []resource }
	decode(t, n.MustGet(t, "/"+path), &list)
	for _, r := range list.Resources {
		if !strings.Contains(r.Name, "/") {
			out = append(out, r)
		}
	}
	return out
}

func (d *explained) find(gv, kind string) *model {
	for _, m := range d.Components.Schemas {
		for _, k := range m.Kinds {
			have := k.Version
			if k.Group != "" {
				have = k.Group + "/" + k.Version
			}
			if have == gv && k.Kind == kind {
				return m
			}
		}
	}
	return nil
}

// fields are the names of all fields at and below a model.
func (d *explained) fields(m *model, seen map[*model]bool) map[string]bool {
	out := map[string]bool{}
	if m == nil || seen[m] {
		return out
	}
	seen[m] = true
	below := []*model{m.Items, m.AdditionalProperties, d.Components.Schemas[strings.TrimPrefix(m.Ref, "#/components/schemas/")]}
	below = append(below, m.AllOf...)
	for name, p := range m.Properties {
		out[name] = true
		below = append(below, p)
	}
	for _, b := range below {
		for name := range d.fields(b, seen) {
			out[name] = true
		}
	}
	return out
}
